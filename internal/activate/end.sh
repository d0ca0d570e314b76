# Run by ExecStopPost: records how the switch ended, whole or not at all.
# The first line, which sets dir and action, is put in front of this by the deployer.
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:${PATH:-/usr/bin:/bin}
printf 'service-result %s\nexit-code %s\nexit-status %s\n' "$SERVICE_RESULT" "$EXIT_CODE" "$EXIT_STATUS" >"$dir/$action.result.new"
mv "$dir/$action.result.new" "$dir/$action.result"
