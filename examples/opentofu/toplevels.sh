#!/bin/sh
# Builds the systems of a flake's nixosConfigurations and writes their store paths to
# toplevels.auto.tfvars.json, where OpenTofu finds them.
# usage: toplevels.sh FLAKE, such as toplevels.sh ../nixos
set -eu
evaluate() {
    nix --extra-experimental-features 'nix-command flakes' eval "$1" "$flake#nixosConfigurations" --apply "$2"
}
flake=$1
# The links result* keep the systems from being collected as garbage.
evaluate --raw 'hosts: toString (map (h: h.config.system.build.toplevel.drvPath) (builtins.attrValues hosts))' |
    xargs nix-store --realise --add-root result --indirect >/dev/null
evaluate --json 'hosts: { toplevels = builtins.mapAttrs (_: h: h.config.system.build.toplevel.outPath) hosts; }' >toplevels.auto.tfvars.json
