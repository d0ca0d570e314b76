# A closure of `paths` store paths and a toplevel. They come in layers: each path
# refers to some of the layer below, so that the closure is as deep as a system's.
{ name, paths, size, changed }:
let
  inherit (builtins) concatLists concatStringsSep elemAt filter genList length toString;
  layers = 8;
  per = paths / layers;
  count = layer: if layer == layers - 1 then paths - (layers - 1) * per else per;
  # One in a hundred can be changed: the last of the last layer, a derivation of their own
  # to which nothing but the toplevel refers.
  changeable = if paths < 100 then 1 else paths / 100;
  run =
    layer: from: n: seed: below:
    let
      outputs = genList (i: if i == 0 then "out" else "o${toString i}") n;
      drv = derivation {
        name = "bulk-${toString layer}${seed}";
        system = builtins.currentSystem;
        builder = "/bin/sh";
        args = [ "-c" "PATH=/usr/bin:/bin exec perl ${./fill.pl}" ];
        inherit outputs size paths from seed;
        below = concatStringsSep " " (map toString below);
      };
    in
    if n == 0 then [ ] else map (o: drv.${o}) outputs;
  build =
    layer: below:
    if layer == layers then
      [ ]
    else
      let
        apart = if layer == layers - 1 then changeable else 0;
        here =
          run layer (layer * per) (count layer - apart) "" below
          ++ run layer (layer * per + count layer - apart) apart (if changed then name else "") below;
      in
      here ++ build (layer + 1) here;
in
derivation {
  name = "nixos-system-${name}";
  system = builtins.currentSystem;
  builder = "/bin/sh";
  args = [
    "-c"
    ''
      PATH=/usr/bin:/bin
      mkdir -p $out/bin
      printf 'bulk' >$out/nixos-version
      printf '%s' "$system" >$out/system
      printf '#!/bin/sh\nexit 1\n' >$out/bin/switch-to-configuration
      chmod +x $out/bin/switch-to-configuration
      cp $allPath $out/paths
    ''
  ];
  passAsFile = [ "all" ];
  all = concatStringsSep "\n" (map toString (build 0 [ ]));
}
