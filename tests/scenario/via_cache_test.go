package scenario_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
)

// cacheConfig is a binary cache that can be written to: all that Nix needs is GET, HEAD
// and PUT. The second one wants a password.
const cacheConfig = `user root; pid /run/cache.pid; events {}
http {
  access_log off; client_max_body_size 0; client_body_temp_path /srv/parts; root /srv/cache;
  dav_methods PUT; create_full_put_path on; dav_access all:r;
  server { listen 8000; }
  server { listen 8001; auth_basic cache; auth_basic_user_file /root/users; }
}
`

const cachePassword = "hunter2%21"

// viaCache: a closure goes from the deployer to the cache once, and from there to
// every host.
func (w *givenWorld) viaCache(t *testing.T) {
	w.write(t, w.cache, "/root/nginx.conf", cacheConfig, 0o644)
	w.sh(t, w.cache, "mkdir -p /srv/cache /srv/parts && echo \"ci:$(openssl passwd -apr1 'hunter2!')\" >/root/users && nginx -c /root/nginx.conf")
	key := strings.TrimSpace(w.sh(t, w.rig.Deployer, "nix key generate-secret --key-name cache-1 >/root/secret && nix key convert-secret-to-public </root/secret"))
	relay := func(port int) *rig.Relay {
		r, err := w.rig.Relay(t.Context(), w.cache, port, rig.LinkSpec{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	open, guarded := relay(8000), relay(8001)
	to := func(r *rig.Relay, user string) string {
		return fmt.Sprintf("--via-cache 'http://%s%s:%d?secret-key=/root/secret'", user, r.Addr, r.Port)
	}
	fetch := fmt.Sprintf("--via-cache-fetch http://%s:8000", w.cache.Addr)
	size := func(toplevel string) (n int64) {
		if _, err := fmt.Sscan(w.sh(t, w.rig.Deployer, "du -bcs $(nix-store -qR "+toplevel+") | tail -1"), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}

	t.Run("once for all hosts", func(t *testing.T) {
		before := w.sent(nil)
		o := w.apply(t, w.new[2], "n1 n2 n3", "-p 3", to(open, ""), fetch, "--via-cache-key", key)
		for _, name := range []string{"n1", "n2", "n3"} {
			o.want(t, name, verdict.Switched)
			if c := o.copiedTo(name); c == nil || c.By != "via cache" || c.FromCaches != c.Missing || c.FromHere != 0 || c.WireBytes != 0 {
				t.Errorf("%s counted %+v: %+v\n%s", name, c, o.results[name], o.Stdout)
			}
		}
		all := size(w.new[2])
		if sent := open.Sent(); sent < all*9/10 || sent > all*12/10 {
			t.Errorf("%d bytes went to the cache, want those of the closure once, %d", sent, all)
		}
		for i, sent := range w.sent(before) {
			if sent > 200_000 {
				t.Errorf("%d bytes went to %s itself", sent, w.hosts[i].Name)
			}
		}
		t.Logf("a closure of %d bytes: %d bytes to the cache, %v to the three hosts", all, open.Sent(), w.sent(before))
		pushed := open.Sent()
		o = w.apply(t, w.new[2], "n1 n2 n3", to(open, ""), fetch)
		o.want(t, "n3", verdict.Unchanged)
		if open.Sent() != pushed {
			t.Errorf("%d bytes were pushed for hosts that lack nothing", open.Sent()-pushed)
		}
	})
	t.Run("a signature nobody trusts", func(t *testing.T) {
		o := w.apply(t, w.new[3], "n1", to(open, ""), fetch, "--goal push")
		o.want(t, "n1", verdict.Staged)
		if c := o.copiedTo("n1"); c == nil || c.By != "cache" || c.FromHere != c.Missing {
			t.Errorf("counted %+v, want all from here", c)
		}
		o.noted(t, "n1", "was of no use")
		o.noted(t, "n1", "signed")
	})
	t.Run("with a password", func(t *testing.T) {
		w.sh(t, w.hosts[0], `mv /usr/bin/nix-store /usr/bin/nix-store.real && cat >/usr/bin/nix-store <<'END'
#!/bin/bash
cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' >>/root/argv
exec -a nix-store /usr/bin/nix-store.real "$@"
END
chmod +x /usr/bin/nix-store`)
		user := "ci:" + cachePassword + "@"
		o := w.apply(t, w.new[4], "n1", to(guarded, user), fmt.Sprintf("--via-cache-fetch 'http://%s%s:8001'", user, w.cache.Addr), "--via-cache-key", key, "--goal push -v")
		w.sh(t, w.hosts[0], "mv /usr/bin/nix-store.real /usr/bin/nix-store")
		o.want(t, "n1", verdict.Staged)
		if c := o.copiedTo("n1"); c == nil || c.By != "via cache" {
			t.Errorf("counted %+v", c)
		}
		if text := o.Stdout + o.Stderr; strings.Contains(text, "hunter2") {
			t.Errorf("the password is in the output:\n%s", text)
		}
		if argv := w.sh(t, w.hosts[0], "cat /root/argv"); !strings.Contains(argv, "--realise") || strings.Contains(argv, "hunter2") {
			t.Errorf("arguments on the host:\n%s", argv)
		}
		if calls := w.sh(t, w.rig.Deployer, "cat /root/nix-calls"); !strings.Contains(calls, "copy --from auto") || strings.Contains(calls, "hunter2") {
			t.Errorf("arguments of Nix on the deployer:\n%s", calls)
		}
		if left := w.sh(t, w.hosts[0], "grep -rl hunter2 /root/.cache /etc/nix /run /tmp 2>/dev/null; true"); left != "" {
			t.Errorf("left on the host: %s", left)
		}
		// What the cache has is not pushed again for a host that lacks it.
		before := open.Sent()
		o = w.apply(t, w.new[4], "n2", to(open, ""), fetch, "--via-cache-key", key, "--goal push")
		o.want(t, "n2", verdict.Staged)
		if c := o.copiedTo("n2"); c == nil || c.By != "via cache" || open.Sent()-before > 20_000 {
			t.Errorf("%d bytes were pushed again, counted %+v", open.Sent()-before, c)
		}
		// A wrong password is told without it.
		o = w.apply(t, w.new[5], "n1", to(guarded, "ci:hunter3@"), fetch, "--goal push")
		o.want(t, "n1", verdict.Staged)
		o.noted(t, "n1", "was of no use: pushing to")
		if text := o.Stdout + o.Stderr; strings.Contains(text, "hunter3") || o.copiedTo("n1").By != "cache" {
			t.Errorf("the password is in the output, or nothing was sent from here:\n%s", text)
		}
	})
	// The host's own settings know the cache and its key: then anybody may fetch there.
	t.Run("a user whom the store does not trust", func(t *testing.T) {
		w.sh(t, w.hosts[2], fmt.Sprintf(`cp /etc/nix/nix.conf /root/nix.conf && printf 'trusted-substituters = http://%s:8000\nextra-trusted-public-keys = %s\n' >>/etc/nix/nix.conf
useradd -m -s /bin/bash joe && cp -r /root/.ssh /home/joe/ && chown -R joe /home/joe/.ssh && systemd-run -q --unit=nix-daemon nix-daemon`, w.cache.Addr, key))
		o := w.program(t, w.environment(t, map[string]any{"user": "joe"}), "apply --json --goal push --store-path n3="+w.new[4]+" "+to(open, "")+" "+fetch).read(t)
		w.sh(t, w.hosts[2], "systemctl stop nix-daemon; mv /root/nix.conf /etc/nix/nix.conf")
		o.want(t, "n3", verdict.Staged)
		if c := o.copiedTo("n3"); c == nil || c.By != "via cache" {
			t.Errorf("counted %+v: %+v", c, o.results["n3"])
		}
	})
	t.Run("a command pushes", func(t *testing.T) {
		w.write(t, w.rig.Deployer, "/root/bin/pusher", fmt.Sprintf("#!/bin/sh\n[ \"$1\" = prod ] && exec /usr/bin/nix copy --to 'http://%s:%d?secret-key=/root/secret' \"$2\"\n", open.Addr, open.Port), 0o755)
		o := w.apply(t, w.new[6], "n2", fmt.Sprintf("--via-cache http://%s:8000", w.cache.Addr), "--via-cache-push 'pusher prod'", "--via-cache-key", key, "--goal push")
		o.want(t, "n2", verdict.Staged)
		if c := o.copiedTo("n2"); c == nil || c.By != "via cache" {
			t.Errorf("counted %+v", c)
		}
	})
	t.Run("no cache answers", func(t *testing.T) {
		w.sh(t, w.cache, "nginx -c /root/nginx.conf -s stop")
		o := w.apply(t, w.new[7], "n1 n2", to(open, ""), fetch, "--via-cache-key", key, "--goal push")
		for _, name := range []string{"n1", "n2"} {
			o.want(t, name, verdict.Staged)
			o.noted(t, name, "was of no use: pushing to")
			if c := o.copiedTo(name); c == nil || c.By != "cache" || c.FromHere != c.Missing {
				t.Errorf("%s counted %+v, want all from here", name, c)
			}
		}
	})
}

// copiedTo is what the copy phase of a node counted; nil when nothing was sent.
func (o outcome) copiedTo(node string) *report.Copied {
	for _, r := range o.records {
		if r.Phase != nil && r.Phase.Name == report.Copy && r.Phase.Node == node {
			return r.Phase.Copied
		}
	}
	return nil
}
