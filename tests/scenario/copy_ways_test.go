package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// settingsOf are settings of the node web1.
func settingsOf(values map[string]any) string {
	text, _ := json.Marshal(map[string]any{"nodes": map[string]any{"web1": values}})
	return string(text)
}

// byNix checks that nix copy did the copy, because of something with these words.
func (o outcome) byNix(t *testing.T, why string) {
	t.Helper()
	c := o.copied()
	if c == nil || c.By != "nix copy" || !strings.Contains(c.Why, why) {
		t.Errorf("counted %+v, want nix copy because of %q: %+v", c, why, o.results)
	}
}

// The ways to a host and its store: who may do what, and what is done where the
// engine's own way is barred.
func TestCopyWays(t *testing.T) {
	t.Parallel()
	w := copyWorld(t, "trixie", rigworld.Target("web2", 22), rig.Target{Name: "gw", SSHPort: 22})
	first := strings.TrimSpace(w.sh(t, w.rig.Deployer, "readlink -f /root/built"))
	if err := rigworld.Install(t.Context(), w.rig, w.rig.Host("web2"), first); err != nil {
		t.Fatal(err)
	}
	w.sh(t, w.web1, `for user in sudoer trusted plain; do
  useradd -m -s /bin/bash $user && mkdir -p /home/$user/.ssh && cp /root/.ssh/authorized_keys /home/$user/.ssh/ && chown -R $user /home/$user/.ssh && chmod 700 /home/$user/.ssh
done
echo 'sudoer ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/sudoer; chmod 440 /etc/sudoers.d/*
cp /etc/nix/nix.conf /root/nix.conf; echo 'trusted-users = root trusted' >>/etc/nix/nix.conf
systemd-run --unit=nix-daemon nix-daemon`)
	little := func(t *testing.T, n int, settings string, flags ...string) outcome {
		t.Helper()
		return w.deploy(t, fmt.Sprint("little.", n), settings, append(flags, "--goal push")...)
	}
	push := func(t *testing.T, n int, settings string, flags ...string) outcome {
		t.Helper()
		return w.deploy(t, fmt.Sprint("new.", n), settings, append(flags, "--goal push")...)
	}

	t.Run("jump host", func(t *testing.T) {
		o := push(t, 0, options("web1", "ProxyJump=root@gw"))
		o.want(t, "web1", verdict.Staged)
		o.byCache(t)
	})
	t.Run("sudo", func(t *testing.T) {
		o := w.deploy(t, "sudo", settingsOf(map[string]any{"user": "sudoer"}), "--goal push")
		o.want(t, "web1", verdict.Staged)
		o.byCache(t)
	})
	t.Run("trusted user", func(t *testing.T) {
		o := push(t, 1, settingsOf(map[string]any{"user": "trusted"}))
		o.want(t, "web1", verdict.Staged)
		o.byCache(t)
	})
	t.Run("root behind the daemon", func(t *testing.T) {
		port := w.ownSSHD(t, w.web1, "SetEnv NIX_REMOTE=daemon\n")
		o := push(t, 2, options("web1", fmt.Sprint("Port=", port)))
		o.want(t, "web1", verdict.Staged)
		o.byCache(t)
	})
	// Case 15.
	t.Run("untrusted user", func(t *testing.T) {
		relay, err := w.rig.Relay(t.Context(), w.web1, 22, rig.LinkSpec{})
		if err != nil {
			t.Fatal(err)
		}
		defer relay.Close()
		o := w.deploy(t, "both", settingsOf(map[string]any{"user": "plain", "host": relay.Addr, "options": []string{fmt.Sprint("Port=", relay.Port)}}), "--goal push")
		o.want(t, "web1", verdict.CopyFailed, "lacks a signature by a trusted key", "elevate", "trusted-users", "trusted-public-keys")
		if reason := o.results["web1"].Reason; !strings.HasPrefix(reason, "error: cannot add path '/nix/store/") {
			t.Errorf("the reason does not begin with Nix's words:\n%s", reason)
		}
		if relay.Sent() > 200_000 {
			t.Errorf("%d bytes were sent to a host that takes none", relay.Sent())
		}
		o.want(t, "web2", verdict.Staged)
	})
	t.Run("signed for an untrusted user", func(t *testing.T) {
		public := strings.TrimSpace(w.sh(t, w.rig.Deployer, "nix key generate-secret --key-name k-1 >/root/secret && nix key convert-secret-to-public </root/secret"))
		w.sh(t, w.web1, "echo 'extra-trusted-public-keys = "+public+"' >>/etc/nix/nix.conf; systemctl restart nix-daemon || systemd-run --unit=nix-daemon nix-daemon")
		path := w.build(t, "new.3")
		w.sh(t, w.rig.Deployer, "nix store sign -r -k /root/secret "+path)
		o := push(t, 3, settingsOf(map[string]any{"user": "plain"}))
		o.want(t, "web1", verdict.Staged)
		o.byNix(t, "does not trust the user plain")
	})
	t.Run("forwarding refused", func(t *testing.T) {
		port := w.ownSSHD(t, w.web1, "AllowTcpForwarding no\n")
		relay, err := w.rig.Relay(t.Context(), w.web1, port, rig.LinkSpec{})
		if err != nil {
			t.Fatal(err)
		}
		defer relay.Close()
		o := push(t, 4, relayed(relay))
		o.want(t, "web1", verdict.Staged)
		o.byNix(t, "forward")
		if relay.Connections() != 2 {
			t.Errorf("%d connections, want the master and a compressed one", relay.Connections())
		}
		// Little needs no forward, over which alone the cache can be asked.
		o = little(t, 0, relayed(relay))
		o.want(t, "web1", verdict.Staged)
		o.direct(t)
		if relay.Connections() != 3 {
			t.Errorf("%d connections, want one more", relay.Connections())
		}
	})
	// It is about the forwards of the user's own configuration.
	t.Run("ClearAllForwardings", func(t *testing.T) {
		o := push(t, 5, options("web1", "ClearAllForwardings=yes"))
		o.want(t, "web1", verdict.Staged)
		o.byCache(t)
	})
	// The stubs stand in the place of the store's tool on the host.
	stub := func(t *testing.T, realise string) {
		w.sh(t, w.web1, `mv /usr/bin/nix-store /usr/bin/nix-store.real && cat >/usr/bin/nix-store <<'END'
#!/bin/sh
case " $* " in *" --realise "*) `+realise+` ;; esac
exec -a nix-store /usr/bin/nix-store.real "$@"
END
sed -i '1s/sh/bash/' /usr/bin/nix-store; chmod +x /usr/bin/nix-store`)
		t.Cleanup(func() {
			if _, err := w.web1.Sh(context.Background(), "mv /usr/bin/nix-store.real /usr/bin/nix-store"); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("says well and did nothing", func(t *testing.T) {
		stub(t, "exit 0")
		push(t, 6, "").want(t, "web1", verdict.CopyFailed, "is valid")
	})
	t.Run("lacks a signature", func(t *testing.T) {
		stub(t, `echo "error: cannot add path '/nix/store/x' because it lacks a signature by a trusted key" >&2; exit 1`)
		o := push(t, 7, "")
		o.want(t, "web1", verdict.CopyFailed, "trusted-users")
		if reason := o.results["web1"].Reason; !strings.HasPrefix(reason, "error: cannot add path") {
			t.Errorf("the reason does not begin with Nix's words:\n%s", reason)
		}
	})
	t.Run("little", func(t *testing.T) {
		// That in one command is tried once; what stays away then is fetched.
		w.sh(t, w.web1, "mv /usr/bin/gzip /usr/bin/gzip.real")
		o := little(t, 1, "")
		w.sh(t, w.web1, "mv /usr/bin/gzip.real /usr/bin/gzip")
		o.want(t, "web1", verdict.Staged)
		o.noted(t, "web1", "sending all in one command was of no use: ")
		if c := o.byCache(t); c.FromHere != c.Missing {
			t.Errorf("counted %+v, want all from here", c)
		}
		// Nothing fetches on the host, and the garbage collector takes nothing.
		stub(t, "echo >>/root/fetched; exit 1")
		o = little(t, 2, "")
		o.want(t, "web1", verdict.Staged)
		o.direct(t)
		w.sh(t, w.web1, "nix-collect-garbage >/dev/null 2>&1; nix-store --check-validity "+o.results["web1"].Toplevel+" && [ ! -e /root/fetched ]")
		if left := w.sh(t, w.web1, "ls /nix/var/nix/gcroots/deploy-ssh-copy; ls -d /run/deploy-ssh-copy.* 2>/dev/null; true"); !strings.Contains(left, "last") || strings.Contains(left, "little") || strings.Contains(left, "/run/") {
			t.Errorf("left on the host: %q", left)
		}
	})
	for name, user := range map[string]string{"sudo": "sudoer", "trusted": "trusted"} {
		t.Run("little, "+name, func(t *testing.T) {
			settings := map[string]any{"user": user}
			if name == "sudo" {
				settings["elevate"] = "sudo"
			}
			o := little(t, map[string]int{"sudo": 3, "trusted": 4}[name], settingsOf(settings))
			o.want(t, "web1", verdict.Staged)
			o.direct(t)
		})
	}
	t.Run("little, untrusted", func(t *testing.T) {
		o := little(t, 5, settingsOf(map[string]any{"user": "plain"}))
		o.want(t, "web1", verdict.CopyFailed, "lacks a signature by a trusted key")
	})
	t.Run("own caches", func(t *testing.T) { w.ownCaches(t, push, little) })
	// The deployer's own store is not what it says: a file was changed, and one cut short.
	for name, damage := range map[string]string{
		"a corrupt path": `printf X | dd of="$f" bs=1 seek=1000 conv=notrunc status=none`, "a truncated path": `truncate -s 1000 "$f"`,
	} {
		t.Run(name, func(t *testing.T) {
			n := 24
			if name == "a truncated path" {
				n = 25
			}
			path := w.build(t, fmt.Sprint("new.", n))
			w.sh(t, w.rig.Deployer, `f=$(find $(nix-store -qR `+path+`) -type f -size +400k | head -n 1) && chmod u+w "$f" && `+damage)
			o := push(t, n, "")
			o.want(t, "web1", verdict.CopyFailed, "error:")
			if c := o.copied(); c == nil || c.Tries != 3 {
				t.Errorf("counted %+v, want 3 tries", c)
			}
			if strings.Contains(o.Stdout+o.Stderr, "127.0.0.1:") {
				t.Errorf("the cache's address is in the output:\n%s%s", o.Stdout, o.Stderr)
			}
		})
	}
	t.Run("a read-only bind mount", func(t *testing.T) {
		w.sh(t, w.web1, "mount --bind /nix/store /nix/store && mount -o remount,bind,ro /nix/store")
		o := push(t, 20, "")
		w.sh(t, w.web1, "umount /nix/store")
		o.want(t, "web1", verdict.Staged)
		o.byCache(t)
	})
	t.Run("a store without room", func(t *testing.T) {
		w.sh(t, w.web1, "mkdir /root/kept && mount --bind /nix/store /root/kept && mount -t tmpfs -o size=300k tmpfs /nix/store")
		o := push(t, 21, "")
		w.sh(t, w.web1, "umount /nix/store /root/kept")
		o.want(t, "web1", verdict.CopyFailed, "free", "unpacked")
	})
	t.Run("a /boot without room", func(t *testing.T) {
		w.sh(t, w.web1, "cp -a /boot /boot.kept; mount -t tmpfs -o size=100k tmpfs /boot; cp -a /boot.kept/. /boot/; head -c 1000000 /dev/zero >/boot/fill 2>/dev/null; true")
		o := w.deploy(t, "newkernel", "", "--goal boot")
		w.sh(t, w.web1, "umount /boot; rm -rf /boot.kept")
		o.want(t, "web1", verdict.CopyFailed, "/boot has 0 B free", "kernel and initrd")
		if c := o.copied(); c != nil {
			t.Errorf("counted %+v, want nothing sent", c)
		}
	})
	t.Run("a read-only file system", func(t *testing.T) {
		w.sh(t, w.web1, "mount -t tmpfs -o ro tmpfs /nix/store")
		o := push(t, 22, "")
		w.sh(t, w.web1, "umount /nix/store")
		o.want(t, "web1", verdict.CopyFailed, "read-only file system")
	})
	t.Run("no secret is left", func(t *testing.T) {
		// A daemon keeps what it fetches from where in root's cache; root itself must not.
		w.sh(t, w.web1, "rm -rf /root/.cache/nix")
		o := push(t, 23, "", "-v")
		o.want(t, "web1", verdict.Staged)
		if text := o.Stdout + o.Stderr; strings.Contains(text, "127.0.0.1:") || strings.Contains(text, "trusted-public-keys =") {
			t.Errorf("the output has the cache's address or key:\n%s", text)
		}
		if keys := w.sh(t, w.web1, "ls -d /run/deploy-ssh-copy.* 2>/dev/null; grep -rl deploy-ssh /etc/nix /root/.cache/nix 2>/dev/null; true"); keys != "" {
			t.Errorf("left on the host: %s", keys)
		}
	})
}

// build builds the system of a map, such as new.3, on the deployer.
func (w *identities) build(t *testing.T, attribute string) string {
	t.Helper()
	kind, n, _ := strings.Cut(attribute, ".")
	return strings.TrimSpace(w.sh(t, w.rig.Deployer, fmt.Sprintf(`cd %s && nix eval --raw --impure --expr '(builtins.head (builtins.getFlake (toString ./.)).%s."%s").toplevel.drvPath' | xargs nix-store --realise`, rigworld.Flake, kind, n)))
}

// ownCaches: what a cache that only the host reaches has is not sent from here, and
// one that does not answer costs little and is said.
func (w *identities) ownCaches(t *testing.T, push, little func(*testing.T, int, string, ...string) outcome) {
	d := w.rig.Deployer
	configure := func(substituters string) {
		w.sh(t, w.web1, "sed -i '/^substituters/d' /etc/nix/nix.conf; echo 'substituters = "+substituters+"' >>/etc/nix/nix.conf")
	}
	relay, err := w.rig.Relay(t.Context(), w.web1, 22, rig.LinkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	path := w.build(t, "new.10") + " " + w.build(t, "little.6")
	var cache strings.Builder
	if result, err := d.Run(t.Context(), rig.Cmd{Args: []string{"sh", "-c", "nix copy --to file:///root/cache " + path + " && tar -C /root/cache -c ."}, Stdout: &cache}); err != nil || result.Code != 0 {
		t.Fatal(err, result.Stderr)
	}
	if result, err := w.web1.Run(t.Context(), rig.Cmd{Args: []string{"sh", "-c", "mkdir /srv/cache && tar -C /srv/cache -x"}, Stdin: strings.NewReader(cache.String())}); err != nil || result.Code != 0 {
		t.Fatal(err, result.Stderr)
	}
	w.write(t, w.web1, "/root/nginx.conf", `pid /run/cache.pid; events {} http { access_log off; root /srv/cache;
server { listen 127.0.0.1:8000; } server { listen 127.0.0.1:8002; location ~ narinfo$ { return 500; } } }`, 0o644)
	w.sh(t, w.web1, "nginx -c /root/nginx.conf")
	configure("http://127.0.0.1:8000?trusted=1")
	o := push(t, 10, relayed(relay))
	o.want(t, "web1", verdict.Staged)
	if c := o.byCache(t); c.FromHere != 0 || c.FromCaches != c.Missing || c.NarBytes != 0 || relay.Sent() > 200_000 {
		t.Errorf("%d bytes over the line, counted %+v; want all from the host's cache", relay.Sent(), c)
	}
	o = push(t, 11, relayed(relay))
	o.want(t, "web1", verdict.Staged)
	if c := o.byCache(t); c.FromHere != c.Missing {
		t.Errorf("counted %+v, want all from here", c)
	}
	// Little isn't sent in one command either when the cache has it, or doesn't tell.
	o = little(t, 6, "")
	o.want(t, "web1", verdict.Staged)
	if c := o.byCache(t); c.FromHere != 0 || c.FromCaches != c.Missing || c.NarBytes != 0 {
		t.Errorf("counted %+v; want all from the host's cache", c)
	}
	o = little(t, 7, "")
	o.want(t, "web1", verdict.Staged)
	o.direct(t)
	configure("http://127.0.0.1:8002?trusted=1")
	o = little(t, 8, "")
	o.want(t, "web1", verdict.Staged)
	o.byCache(t)

	// One refuses and one is silent.
	configure("http://127.0.0.1:8001 http://10.77.0.250:8000")
	began := time.Now()
	o = push(t, 12, "", "--no-substitute")
	o.want(t, "web1", verdict.Staged)
	plain := time.Since(began)
	began = time.Now()
	o = push(t, 13, "")
	o.want(t, "web1", verdict.Staged)
	o.noted(t, "web1", "http://127.0.0.1:8001")
	o.noted(t, "web1", "http://10.77.0.250:8000")
	t.Logf("%v without substituters, %v with two dead ones", plain, time.Since(began))
	configure("")
}
