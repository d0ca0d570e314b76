package scenario_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
	"github.com/deploy-ssh/deploy-ssh/tests/toplevels"
)

// A new user's path: every command and file of docs/first-deploy.md, word for word,
// on a deployer that has nothing of deploy-ssh, to a host that was never deployed to.
//
// What stands in: for github.com, a web server on the deployer, with this repository's
// own files; for nixpkgs, one whose nixosSystem makes a system of NixOS's shape
// (testdata/github); for the build of the program, a copy of the one that is tried;
// for the first system's users, those that the module describes, made by hand. The
// host's key takes the place of `ssh-ed25519 AAAA…`.
func TestFirstDeploy(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/first-deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	r := rig.Start(t, rig.Config{Targets: []rig.Target{rigworld.Target("web", 2222)}})
	ctx := t.Context()
	web := r.Host("web")
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), `{ outputs = _: { first = (import ./toplevels { }).mkToplevel { name = "installed"; }; }; }`); err != nil {
		t.Fatal(err)
	}
	first, err := rigworld.BuildToplevel(ctx, r, ".#first")
	if err == nil {
		err = rigworld.Install(ctx, r, web, first)
	}
	if err == nil {
		_, err = r.Deployer.Sh(ctx, "mkdir -p /usr/local/lib /root/work && mv "+rigworld.Program+" /usr/local/lib/deploy-ssh && rm -rf "+rigworld.Flake+
			" && printf '%s web.example.org\\n' "+web.Addr+" >>/etc/hosts && echo /root/work >/root/cwd")
	}
	if err == nil {
		err = standInForGitHub(ctx, r.Deployer)
	}
	if err != nil {
		t.Fatal(err)
	}

	deploys := 0
	for _, block := range blocks(t, string(guide)) {
		if block.file != "" {
			text := strings.ReplaceAll(block.text, "ssh-ed25519 AAAA…", web.HostKey)
			if err := r.Deployer.WriteFile(ctx, "/root/work/fleet/"+block.file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text, `ssh.user = "deploy"`) {
				if _, err := web.Sh(ctx, deployUser); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		out, err := r.Deployer.Run(ctx, rig.Cmd{
			Args: []string{"/bin/sh", "-c", "cd $(cat /root/cwd) && " + block.text + " && pwd >/root/cwd"},
			Env:  []string{"PATH=/root/.nix-profile/bin:/usr/bin:/bin", rigworld.RaceEnv},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("$ %s\n%s%s", block.text, out.Stdout, out.Stderr)
		if out.Code != 0 {
			t.Fatalf("%s: exit code %d", block.text, out.Code)
		}
		before := running(t, ctx, web)
		switch {
		case strings.Contains(block.text, " hostkeys "):
			if !strings.Contains(out.Stdout, web.HostKey) {
				t.Errorf("%s does not show %s", block.text, web.HostKey)
			}
		case strings.Contains(block.text, " plan "):
			if !strings.Contains(before, first) {
				t.Errorf("%s changed the host: it %s", block.text, before)
			}
		case strings.HasPrefix(block.text, "deploy-ssh .#nodes"):
			// The first deploy switches the host, the later ones find it as it should be.
			want := "unchanged"
			if deploys == 0 {
				want = "switched"
			}
			deploys++
			if !regexp.MustCompile(`(?m)^web +` + want).MatchString(out.Stdout) {
				t.Errorf("%s: web is not %s", block.text, want)
			}
			if _, err := web.Sh(ctx, "grep -q deploy-ssh /etc/deployed-by"); err != nil {
				t.Errorf("%s: the system of the guide is not there: %v", block.text, err)
			}
		}
	}
	if deploys != 3 {
		t.Errorf("the guide deploys %d times, want 3", deploys)
	}
	got := running(t, ctx, web)
	if system := regexp.MustCompile(`^runs (\S+), boots (\S+), lists \[\]$`).FindStringSubmatch(got); system == nil || system[1] != system[2] || system[1] == first {
		t.Errorf("in the end the host %s", got)
	}
}

// deployUser makes on a host what nix/target.nix describes.
const deployUser = `useradd --system -m -s /bin/bash deploy && mkdir -p -m 700 /home/deploy/.ssh
sed 's/^/restrict,port-forwarding,permitlisten="localhost:*",permitlisten="127.0.0.1:*" /' /root/.ssh/authorized_keys >/home/deploy/.ssh/authorized_keys
chown -R deploy /home/deploy
echo 'deploy ALL=(root) NOPASSWD: /bin/sh, NOPASSWD: /run/current-system/sw/bin/nix-daemon' >/etc/sudoers.d/deploy; chmod 440 /etc/sudoers.d/deploy`

// block is a command of a guide, or a file.
type block struct {
	file string // empty for a command
	text string
}

// blocks are the commands and files of a guide, in order: those after "$ " in blocks
// of "console", and the blocks of "nix FILE".
func blocks(t *testing.T, guide string) []block {
	t.Helper()
	var found []block
	for _, fence := range regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$").FindAllStringSubmatch(guide, -1) {
		language, file, _ := strings.Cut(fence[1], " ")
		switch {
		case language == "console":
			for line := range strings.Lines(fence[2]) {
				if command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ "); ok {
					found = append(found, block{text: command})
				}
			}
		case file != "":
			found = append(found, block{file: file, text: fence[2]})
		default:
			t.Fatalf("a block of the guide is neither commands nor a file: %s", fence[0])
		}
	}
	return found
}

// standInForGitHub lets a host find this repository, and a stand-in for nixpkgs, at
// github.com: a web server of its own that it takes for that and for api.github.com.
func standInForGitHub(ctx context.Context, h *rig.Host) error {
	const at = "/root/github"
	for directory, files := range map[string]fs.FS{
		"deploy-ssh/nix": os.DirFS("../../nix"), "deploy-ssh/templates": os.DirFS("../../templates"),
		"nixpkgs/stand-in": os.DirFS("../vm/stand-in"), "nixpkgs/toplevels": toplevels.Tree,
	} {
		if err := h.CopyTree(ctx, files, at+"/"+directory); err != nil {
			return err
		}
	}
	for name, from := range map[string]string{
		"deploy-ssh/flake.nix": "../../flake.nix", "deploy-ssh/package.nix": "../../package.nix", "deploy-ssh/VERSION": "../../VERSION",
		"nixpkgs/flake.nix": "testdata/github/nixpkgs.nix",
	} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = h.WriteFile(ctx, at+"/"+name, text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	var locations strings.Builder
	// Nix takes one revision for one source, wherever it comes from.
	for repository, digit := range map[string]string{"deploy-ssh/deploy-ssh": "1", "NixOS/nixpkgs": "2"} {
		revision := strings.Repeat(digit, 40)
		_, name, _ := strings.Cut(repository, "/")
		fmt.Fprintf(&locations, "location /repos/%s/commits/ { return 200 '{\"sha\":\"%s\",\"commit\":{\"tree\":{\"sha\":\"%[2]s\"}}}'; }\n", repository, revision)
		fmt.Fprintf(&locations, "location = /%s/archive/%s.tar.gz { alias %s/%s.tar.gz; }\n", repository, revision, at, name)
	}
	server := fmt.Sprintf("user root; pid %s/pid; events { }\nhttp { access_log %[1]s/log; server { listen 443 ssl; ssl_certificate %[1]s/cert.pem; ssl_certificate_key %[1]s/key.pem;\n%s} }\n", at, locations.String())
	if err := h.WriteFile(ctx, at+"/nginx.conf", []byte(server), 0o644); err != nil {
		return err
	}
	_, err := h.Sh(ctx, "cd "+at+` && tar czf deploy-ssh.tar.gz deploy-ssh && tar czf nixpkgs.tar.gz nixpkgs
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=github.com -addext subjectAltName=DNS:github.com,DNS:api.github.com -keyout key.pem -out cert.pem 2>/dev/null
cat cert.pem >>/etc/ssl/certs/ca-certificates.crt
echo '127.0.0.1 github.com api.github.com' >>/etc/hosts
nginx -c `+at+`/nginx.conf`)
	return err
}
