# What a deploy brings: a page over HTTPS, whose certificate is a resource of the
# closure. File rules put page and certificate where the web server looks for them;
# it refuses to start without.
{ name, page }:
{ pkgs, ... }:
let
  state = "/var/lib/web";
  # Readable by all, as everything in a store: for tests only.
  resource =
    pkgs.runCommand "resource-${name}"
      {
        nativeBuildInputs = [ pkgs.openssl ];
      }
      ''
        mkdir $out
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
          -subj "/CN=${name}" -addext "subjectAltName=DNS:${name}" \
          -keyout $out/key.pem -out $out/cert.pem
      '';
in
{
  environment.etc."ssl-resource.pem".source = "${resource}/cert.pem";
  systemd.tmpfiles.settings.web = {
    ${state}.d.mode = "0755";
    "${state}/root".d.mode = "0755";
    "${state}/root/index.html"."L+".argument = "${pkgs.writeText "index.html" page}";
    "${state}/cert.pem"."L+".argument = "${resource}/cert.pem";
    "${state}/key.pem"."L+".argument = "${resource}/key.pem";
  };
  services.nginx = {
    enable = true;
    virtualHosts.${name} = {
      onlySSL = true;
      sslCertificate = "${state}/cert.pem";
      sslCertificateKey = "${state}/key.pem";
      root = "${state}/root";
    };
  };
  systemd.services.nginx.unitConfig.AssertPathExists = [
    "${state}/cert.pem"
    "${state}/root/index.html"
  ];
  networking.firewall.allowedTCPPorts = [ 443 ];
}
