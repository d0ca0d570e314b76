# The names of the tools in a system's sw/bin.
[
  # Nix
  "nix" "nix-build" "nix-channel" "nix-collect-garbage" "nix-copy-closure" "nix-daemon" "nix-env"
  "nix-hash" "nix-instantiate" "nix-shell" "nix-store"
  # systemd
  "busctl" "hostnamectl" "journalctl" "loginctl" "systemctl" "systemd-cat" "systemd-detect-virt"
  "systemd-run" "systemd-tmpfiles" "timedatectl"
  # util-linux, procps and other basics
  "awk" "bash" "cmp" "curl" "diff" "dmesg" "find" "findmnt" "flock" "free" "getent" "grep" "gzip"
  "ip" "kill" "less" "logger" "lsblk" "more" "mount" "mountpoint" "pgrep" "pkill" "ps" "sed"
  "setpriv" "setsid" "sh" "ss" "ssh" "sudo" "su" "tar" "top" "umount" "uptime" "xargs" "xz"
  # coreutils
  "basename" "cat" "chmod" "chown" "cp" "cut" "date" "dd" "df" "dirname" "du" "echo" "env" "expr"
  "false" "head" "hostname" "id" "install" "ln" "ls" "mkdir" "mkfifo" "mktemp" "mv" "nproc" "od"
  "paste" "printf" "pwd" "readlink" "realpath" "rm" "rmdir" "seq" "sha256sum" "sleep" "sort" "stat"
  "stty" "sync" "tail" "tee" "test" "timeout" "touch" "tr" "true" "tty" "uname" "uniq" "wc" "whoami"
  # shells
  "fish" "mksh" "tcsh" "zsh"
]
