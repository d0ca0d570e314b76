# A page over HTTPS, by Debian's nginx as nginx.service. The certificate is a
# resource of the closure; file rules put it and the page where the unit looks
# for them, and the unit doesn't start without.
{ build, check }:
let
  state = "/var/lib/toplevel-web";
in
{ name, web }:
if web == null then
  {
    units = { };
    tmpfiles = [ ];
    etc = { };
    resource = null;
  }
else
  let
    given = check.known "mkToplevel" "web" [ "page" "port" "host" ] web;
    page = check.type "mkToplevel" "web.page" [ "string" ] (given.page or "the page of ${name}\n");
    port = check.type "mkToplevel" "web.port" [ "int" ] (given.port or 443);
    host = check.type "mkToplevel" "web.host" [ "string" ] (given.host or name);
    resource = build.run "resource-${name}" ./build/resource.sh { inherit host; };
    content = build.tree "page-${name}" { files."index.html" = page; };
    config = build.tree "nginx-${name}" {
      files."nginx.conf" = ''
        user www-data;
        worker_processes 1;
        pid /run/nginx.pid;
        error_log stderr;
        events { }
        http {
          access_log off;
          default_type text/html;
          server {
            listen ${toString port} ssl;
            listen [::]:${toString port} ssl;
            server_name ${host};
            ssl_certificate ${state}/resource.pem;
            ssl_certificate_key ${state}/resource.pem;
            root ${state}/root;
          }
        }
      '';
    };
  in
  {
    inherit resource;
    etc."ssl-resource.pem".source = "${resource}/resource.pem";
    tmpfiles = [
      "d ${state} 0755 root root -"
      "d ${state}/root 0755 root root -"
      "L+ ${state}/root/index.html - - - - ${content}/index.html"
      "L+ ${state}/resource.pem - - - - ${resource}/resource.pem"
    ];
    units."nginx.service" = {
      wantedBy = [ "multi-user.target" ];
      text = ''
        [Unit]
        Description=The page of ${name} over HTTPS
        After=network.target

        [Service]
        Type=forking
        PIDFile=/run/nginx.pid
        ExecStartPre=/usr/bin/test -e ${state}/resource.pem
        ExecStartPre=/usr/bin/test -e ${state}/root/index.html
        ExecStartPre=/usr/sbin/nginx -t -q -c ${config}/nginx.conf
        ExecStart=/usr/sbin/nginx -c ${config}/nginx.conf
        ExecReload=/bin/kill -HUP $MAINPID
        KillSignal=SIGQUIT
        TimeoutStopSec=5
      '';
    };
  }
