# A key and a self-signed certificate for $host, in one file, as web servers
# take them. It is readable by all, like everything in a store: for tests only.
mkdir "$out"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
  -subj "/CN=$host" -addext "subjectAltName=DNS:$host" \
  -keyout key.pem -out cert.pem 2>openssl.log || { cat openssl.log >&2; exit 1; }
cat key.pem cert.pem >"$out/resource.pem"
cp cert.pem "$out/cert.pem"
