# Junk: $compressible bytes of zeros and $incompressible bytes of a keystream,
# the same in every build.
mkdir "$out"
head -c "$compressible" /dev/zero >"$out/compressible"
if [ "$incompressible" -gt 0 ]; then
  openssl enc -aes-256-ctr -nosalt -pbkdf2 -iter 1 -pass "pass:$seed" </dev/zero 2>/dev/null |
    head -c "$incompressible" >"$out/incompressible"
fi
