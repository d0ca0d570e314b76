# observe TOPLEVEL: prints what this host is, runs and boots, one "name value" a line.
# POSIX sh; nothing is written and no connection is made. What can't be read is left out.
say() { printf '%s %s\n' "$1" "$2"; }

first_line() { [ -r "$1" ] && IFS= read -r line <"$1" && [ -n "$line" ] && say "$2" "$line"; }

leads_to() { target=$(readlink -f "$1" 2>/dev/null) && [ -e "$target" ] && say "$2" "$target"; }

# The toplevel is what stands before /init in the kernel command line of an entry.
init_of() { sed -n 's/.*[[:space:]]init=\([^[:space:]]*\)\/init\([[:space:]].*\)\{0,1\}$/\1/p' "$@" | head -n 1; }

# The boot loaders' default entries, as the scripts in nixpkgs under
# nixos/modules/system/boot/loader write them. The tests set root.
boot_entry() {
    for boot in "$root/boot" "$root/efi" "$root/boot/efi"; do
        [ -r "$boot/loader/loader.conf" ] || continue
        default=$(sed -n 's/^default[[:space:]][[:space:]]*//p' "$boot/loader/loader.conf" | tail -n 1)
        entry=
        # loader.conf(5): the default is a pattern, with or without .conf.
        for entry in "$boot/loader/entries/"$default "$boot/loader/entries/"$default.conf; do
            [ -f "$entry" ] && break
            entry=
        done
        say loader systemd-boot
        [ -n "$default" ] && [ -n "$entry" ] && say boot-entry "$(sed 's/^options//' "$entry" | init_of)"
        return 0
    done
    if [ -r "$root/boot/grub/grub.cfg" ]; then
        say loader grub
        say boot-entry "$(sed -n '/^menuentry .*NixOS - Default/,/^}/p' "$root/boot/grub/grub.cfg" | init_of)"
    elif [ -r "$root/boot/extlinux/extlinux.conf" ]; then
        say loader extlinux
        say boot-entry "$(sed -n '/^LABEL nixos-default[[:space:]]*$/,/^LABEL nixos-[0-9]/p' "$root/boot/extlinux/extlinux.conf" | sed 's/APPEND//' | init_of)"
    elif [ -f "$root/sbin/init" ] && systemConfig=$(head -c 4096 "$root/sbin/init" | tr -d '\0' | sed -n 's/^systemConfig=\(.*\)$/\1/p' | head -n 1) && [ -n "$systemConfig" ]; then
        say loader init-script
        say boot-entry "$systemConfig"
    fi
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
                status=$(sed -n 's/^exit-status //p' "$run$name.result")
            else
                case $(timeout 10 systemctl show -P ActiveState "deploy-ssh-$id-$name.service" 2>/dev/null) in
                active | activating | deactivating) state=running ;;
                *) state=cut ;;
                esac
            fi
            say run "$id $name $state ${status:--} $(cat "$run$name.toplevel" 2>/dev/null)"
        done
    done
}

observe() {
    root=
    say uid "$(id -u)"
    say machine "$(uname -m)"
    say hostname "$(uname -n)"
    first_line /proc/sys/kernel/random/boot_id boot-id
    first_line /etc/machine-id machine-id
    first_line /run/systemd/container container
    { [ -e /etc/NIXOS ] || grep -Eqs '^ID="?nixos"?$' /etc/os-release; } && say nixos yes
    [ -d /run/systemd/system ] && say systemd yes
    leads_to /run/current-system running
    leads_to /run/booted-system booted
    leads_to /nix/var/nix/profiles/system profile
    link=$(readlink /nix/var/nix/profiles/system 2>/dev/null) && link=${link##*system-} && say generation "${link%-link}"
    for list in start-list restart-list reload-list; do
        [ -s "/run/nixos/$list" ] && say list "$list"
    done
    for tool in nix-store nix-daemon nix-env systemd-run flock; do
        path=$(command -v $tool) && say "tool-$tool" "$path"
    done
    # A path can be there and yet be half a copy; only the store's database knows.
    [ -e "$1" ] && nix-store --check-validity "$1" 2>/dev/null && say valid yes
    # list-units exits 0 with and without failed units; a manager that doesn't answer is not an empty list.
    if units=$(timeout 30 systemctl list-units --state=failed --plain --no-legend --no-pager --full 2>&1); then
        say units-read yes
        [ -n "$units" ] && printf '%s\n' "$units" | while read -r unit rest; do say failed "$unit"; done
    else
        say units-error "$(printf '%s' "$units" | head -n 1)"
    fi
    holder=$(lock_holder) && say lock-holder "$holder"
    # What can keep the running system from being switched to this one.
    first_line /run/current-system/init-interface-version interface
    [ -r /run/current-system/switch-inhibitors ] && say inhibitors "$(tr -d '\n' </run/current-system/switch-inhibitors)"
    # What of it runs only after a reboot.
    if [ -e /run/booted-system/kernel ] && [ -e "$1/kernel" ]; then
        for part in kernel initrd kernel-modules; do
            [ "$(readlink -f /run/booted-system/$part)" = "$(readlink -f "$1/$part")" ] || say needs-reboot $part
        done
        [ "$(cat /run/booted-system/kernel-params 2>/dev/null)" = "$(cat "$1/kernel-params" 2>/dev/null)" ] || say needs-reboot kernel-params
    fi
    deploys
    # What had failed before an activation of this toplevel that was not finished.
    before=/run/deploy-ssh/failed-before
    if [ -r $before ] && { IFS= read -r for_what <$before; [ "$for_what" = "$1" ]; }; then
        say baseline yes
        sed 1d $before | while read -r unit; do say baseline-failed "$unit"; done
    fi
    boot_entry
    say observed yes
}
