# in_caches SECONDS PATHS URLS says which of some paths some caches have, or that these
# did not tell in time; nothing of it when they failed. Nix asks them side by side, and
# lists what it would fetch below a line that says so. POSIX sh.
in_caches() {
    said=$(
        NIX_CONFIG="$NIX_CONFIG
substituters = $3
substitute = true
connect-timeout = 3
download-attempts = 1"
        export NIX_CONFIG
        printf '%s\n' "$2" | timeout "$1" xargs nix-store --realise --dry-run 2>&1 >/dev/null
    )
    case $? in
    0)
        say caches-asked yes
        printf '%s\n' "$said" | sed -n '/^[^ ]/h; /^  \/nix\/store\//{ s/^  /in-cache /; G; /\n.*will be fetched/{ s/\n.*//; p; }; }'
        ;;
    124) say caches-slow yes ;;
    esac
}
