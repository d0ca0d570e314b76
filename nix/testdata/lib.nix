# The little of nixpkgs' lib that shows what an option type checks: a type is the
# set that describes it. There is no module system here; with NIXPKGS_LIB the
# tests use the real one.
rec {
  mkOption = option: option // { _type = "option"; };
  mkOptionType = type: type // { _type = "option-type"; };
  mergeEqualOption = throw "nothing is merged here";
  mergeOneOption = mergeEqualOption;
  types = {
    attrsOf = type: mkOptionType { check = builtins.isAttrs; inherit type; };
    either = a: b: mkOptionType { check = value: a.check value || b.check value; };
    listOf = type: mkOptionType { check = builtins.isList; inherit type; };
    nullOr = type: mkOptionType { check = value: value == null || type.check value; };
    submodule = module: mkOptionType { check = builtins.isAttrs; inherit (module) options; };
  };
}
