# observe TOPLEVEL: prints what this host is, runs and boots, one "name value" a line.
# POSIX sh; nothing is written and no connection is made. What can't be read is left out.
# A value stays on its line, whatever it is: some come from processes and files
# that anybody on the host can shape. A fleet's hosts are asked at once, and each process
# started costs a millisecond, so what the shell can read itself it does.
newline='
'
say() {
    case $2 in *"$newline"*) set -- "$1" "$(printf '%s' "$2" | tr '\n\r' '  ')" ;; esac
    printf '%s %s\n' "$1" "$2"
}

# Files of a toplevel have no newline at their end, at which read fails although it has read.
first_line() {
    [ -r "$1" ] || return 1
    IFS= read -r line <"$1" || :
    [ -n "$line" ] && say "$2" "$line"
}

# links TOPLEVEL: where the host's systems lead, and what of the wanted one runs only
# after a reboot. One process for all.
links() {
    names= paths=
    look() { [ -e "$2" ] && names="$names $1" paths="$paths $2"; }
    look running "$root/run/current-system"
    look booted "$root/run/booted-system"
    look profile "$root/nix/var/nix/profiles/system"
    parts=
    if [ -e "$root/run/booted-system/kernel" ] && [ -e "$1/kernel" ]; then
        for part in kernel initrd kernel-modules; do
            look booted-$part "$root/run/booted-system/$part"
            look wanted-$part "$1/$part"
            { [ -e "$root/run/booted-system/$part" ] || [ -e "$1/$part" ]; } && parts="$parts $part"
        done
    fi
    [ -n "$paths" ] || return 0
    # One that went meanwhile has no line, and all behind it would stand for another.
    targets=$(
        set -f # a store path can have a ?
        readlink -f $paths
    ) || return 0
    wanted=$1
    set -- $names
    same= was=
    while IFS= read -r target; do
        case $1 in
        booted-*) was="$target $1" ;;
        wanted-*) [ "$was" = "$target booted-${1#wanted-}" ] && same="$same ${1#wanted-} " ;;
        *) say "$1" "$target" ;;
        esac
        shift
    done <<END
$targets
END
    for part in $parts; do
        case $same in *" $part "*) ;; *) say needs-reboot $part ;; esac
    done
    set -- "$wanted"
    [ -n "$parts" ] && [ "$(params "$root/run/booted-system")" != "$(params "$1")" ] && say needs-reboot kernel-params
    return 0
}

# The toplevel is what stands before /init in the kernel command line of an entry.
init_of() { sed -n '/.*[[:space:]]init=\([^[:space:]]*\)\/init\([[:space:]].*\)\{0,1\}$/{s//\1/p;q;}' "$@"; }

# of_pattern PATTERN: finds the entry that systemd-boot takes for a default: the newest
# version that matches, entries without boot tries left last; see systemd-boot(7)
# and the Boot Loader Specification.
of_pattern() {
    good= bad= goods=0 bads=0
    for candidate in $1; do
        [ -f "$candidate" ] || continue
        case $candidate in
        *+0.conf | *+0-*.conf) bad=$bad$candidate$newline bads=$((bads + 1)) ;;
        *) good=$good$candidate$newline goods=$((goods + 1)) ;;
        esac
    done
    [ $goods -gt 0 ] || good=$bad goods=$bads
    found=${good%"$newline"}
    if [ $goods -gt 1 ]; then
        found=$(printf '%s' "$good" | sort -V | tail -n 1)
    fi
}

# efi_default: the entry that a variable of the firmware sets over loader.conf.
efi_default() {
    for name in LoaderEntryOneShot LoaderEntryPreferred LoaderEntryDefault; do
        variable=$root/sys/firmware/efi/efivars/$name-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f
        [ -r "$variable" ] || continue
        # Four bytes of attributes, then UTF-16.
        id=$(tail -c +5 "$variable" | tr -d '\0')
        [ -n "$id" ] && printf '%s\n' "$id" && return 0
    done
    return 1
}

systemd_boot() {
    default=
    [ -d "$root/sys/firmware/efi/efivars" ] && default=$(efi_default)
    if [ -z "$default" ]; then
        while read -r key value || [ -n "$key" ]; do
            [ "$key" = default ] && default=$value
        done <"$1/loader/loader.conf"
    fi
    # A default that is worked out at boot, or that matches no entry of this kind
    # (a unified kernel image, say), tells nothing: then no loader is known.
    entry=
    case $default in
    @* | auto-*) return 0 ;;
    ?*)
        # The entries can be on another partition than loader.conf (XBOOTLDR).
        for entries in "$1/loader/entries" "$root/boot/loader/entries"; do
            for name in "$default" "$default.conf"; do
                [ -n "$entry" ] && break 2
                of_pattern "$entries/$name"
                entry=$found
            done
        done
        ;;
    esac
    if [ -z "$entry" ]; then
        case $default in *[*?[]*) return 0 ;; esac
    fi
    say loader systemd-boot
    [ -n "$entry" ] && say boot-entry "$(init_of "$entry")"
    return 0
}

grub() {
    default=$(sed -n 's/^[[:space:]]*set default=//p' "$1" | tr -d '"' | tail -n 1)
    # Only the first entry is NixOS's default; another one, or one that is saved, is somebody's choice.
    case $default in '' | 0) ;; *) return 0 ;; esac
    say loader grub
    say boot-entry "$(sed -n '/^menuentry .*NixOS - Default/,/^}/p' "$1" | init_of)"
}

# The boot loaders' default entries, as the scripts in nixpkgs under
# nixos/modules/system/boot/loader write them. The tests set root. Where two
# loaders have left their files, the one whose files are newer is in use.
boot_entry() {
    conf=
    for boot in "$root/boot" "$root/efi" "$root/boot/efi"; do
        [ -r "$boot/loader/loader.conf" ] && conf=$boot/loader/loader.conf && break
    done
    if [ -r "$root/boot/grub/grub.cfg" ] && { [ -z "$conf" ] || [ "$root/boot/grub/grub.cfg" -nt "$conf" ]; }; then
        grub "$root/boot/grub/grub.cfg"
    elif [ -n "$conf" ]; then
        systemd_boot "${conf%/loader/loader.conf}"
    elif [ -r "$root/boot/extlinux/extlinux.conf" ]; then
        say loader extlinux
        say boot-entry "$(sed -n '/^LABEL nixos-default[[:space:]]*$/,/^LABEL nixos-[0-9]/p' "$root/boot/extlinux/extlinux.conf" | sed 's/APPEND//' | init_of)"
    elif [ -f "$root/sbin/init" ] && systemConfig=$(head -c 4096 "$root/sbin/init" | tr -d '\0' | sed -n 's/^systemConfig=\(.*\)$/\1/p' | head -n 1) && [ -n "$systemConfig" ]; then
        say loader init-script
        say boot-entry "$systemConfig"
    fi
}

# failed_units: the failed units, one a line, with those that wait for their next
# restart after a failure; fails when they can't be listed, which is not the same as none.
failed_units() {
    listed=$(timeout 30 systemctl list-units --state=failed,auto-restart --plain --no-legend --no-pager --full 2>/dev/null) || {
        # Asked again for its words alone: in the list they would pass for units.
        listed=$(timeout 30 systemctl list-units --state=failed --no-legend --no-pager 2>&1 >/dev/null)
        printf '%s\n' "${listed:-systemctl gave no answer within 30 s}"
        return 1
    }
    [ -n "$listed" ] && printf '%s\n' "$listed" | while read -r unit load active rest; do
        [ -n "$unit" ] || continue
        [ "$active" = activating ] && [ "$(timeout 10 systemctl show -P Result "$unit")" = success ] && continue
        printf '%s\n' "$unit"
    done
    return 0
}

# deploys: the runs that have a record here, each "ID NAME STATE EXIT-STATUS TOPLEVEL".
# A run without a result whose unit is gone was cut off by a crash or a reboot.
deploys() {
    for run in /run/deploy-ssh/*/; do
        id=${run%/} id=${id##*/}
        for name in test boot dry-activate back; do
            [ -e "$run$name.sh" ] || continue
            status=-
            if [ -e "$run$name.result" ]; then
                state=ended
                while read -r key value; do
                    [ "$key" = exit-status ] && status=$value
                done <"$run$name.result"
            else
                case $(timeout 10 systemctl show -P ActiveState "deploy-ssh-$id-$name.service" 2>/dev/null) in
                active | activating | deactivating) state=running ;;
                *) state=cut ;;
                esac
            fi
            of=
            [ -r "$run$name.toplevel" ] && IFS= read -r of <"$run$name.toplevel"
            say run "$id $name $state ${status:--} $of"
        done
    done
}

# params TOPLEVEL: its kernel parameters, a line that need not have an end.
params() {
    line=
    [ -r "$1/kernel-params" ] && { IFS= read -r line <"$1/kernel-params" || :; }
    printf '%s' "$line"
}

observe() {
    root=
    while read -r key real effective rest; do
        [ "$key" = Uid: ] && say uid "$effective" && break
    done </proc/self/status
    names=$(uname -nm)
    say hostname "${names% *}"
    say machine "${names##* }"
    first_line /proc/sys/kernel/random/boot_id boot-id
    first_line /etc/machine-id machine-id
    first_line /run/systemd/container container
    { [ -e /etc/NIXOS ] || grep -Eqs '^ID="?nixos"?$' /etc/os-release; } && say nixos yes
    [ -d /run/systemd/system ] && say systemd yes
    links "$1"
    link=$(readlink /nix/var/nix/profiles/system 2>/dev/null) && link=${link##*system-} && say generation "${link%-link}"
    for list in start-list restart-list reload-list; do
        [ -s "/run/nixos/$list" ] && say list "$list"
    done
    for tool in nix-store nix-daemon nix-env systemd-run flock; do
        command -v $tool >/dev/null && printf 'tool-%s ' $tool && command -v $tool
    done
    # A path can be there and yet be half a copy; only the store's database knows.
    [ -e "$1" ] && timeout 60 nix-store --check-validity "$1" 2>/dev/null && say valid yes
    if units=$(failed_units); then
        say units-read yes
        [ -n "$units" ] && printf '%s\n' "$units" | while read -r unit; do say failed "$unit"; done
    else
        say units-error "$(printf '%s' "$units" | head -n 1)"
    fi
    holder=$(lock_holder) && say lock-holder "$holder"
    # What can keep the running system from being switched to this one.
    first_line /run/current-system/init-interface-version interface
    [ -r /run/current-system/switch-inhibitors ] && say inhibitors "$(tr -d '\n' </run/current-system/switch-inhibitors)"
    deploys
    # What had failed before an activation that has not ended well.
    if [ -r /run/deploy-ssh/failed-before ]; then
        {
            read -r new old
            say baseline "$new $old"
            while read -r unit; do say baseline-failed "$unit"; done
        } </run/deploy-ssh/failed-before
    fi
    boot_entry
    say observed yes
}
