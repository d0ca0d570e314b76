#!/bin/sh
# Before: a call for each host, and its exit status is that of the switch, or of ssh.
set -e
nixos-rebuild switch --flake .#db --target-host root@db.example.org --use-substitutes
NIX_SSHOPTS="-p 2222" nixos-rebuild switch --flake .#web --target-host root@web.example.org --use-substitutes
