# Run by ExecStopPost: records how the switch ended, whole or not at all.
# What is set in front of this by the deployer: dir and name.
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:${PATH:-/usr/bin:/bin}
if [ "$SERVICE_RESULT" = timeout ]; then
    timeout 10 systemctl list-jobs --plain --no-legend --full 2>/dev/null | while read -r id unit type state; do
        [ "$state" = running ] && printf 'job %s %s\n' "$type" "$unit"
    done >"$dir/$name.jobs"
fi
# Written over the byte that start has put there: a /run that is full by now has room for it.
printf 'service-result %s\nexit-code %s\nexit-status %s\n' "$SERVICE_RESULT" "$EXIT_CODE" "$EXIT_STATUS" 1<>"$dir/$name.result.new" &&
    mv "$dir/$name.result.new" "$dir/$name.result"
