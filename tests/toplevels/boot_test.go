package toplevels_test

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/toplevels"
)

const setProfile = "nix-env -p /nix/var/nix/profiles/system --set "

// boot is boot entries, and what a reboot makes of them.
func boot(t *testing.T, w *world) {
	t.Run("reboot", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		booted := func() string { return h.name(strings.TrimSpace(sh(t, h.Host, "readlink -f /run/booted-system"))) }

		// activated only: a reboot goes back
		h.switchTo(t, "next", "test")
		wantPage(t, h, "next")
		reboot(t, h)
		if got := [2]string{booted(), h.current(t)}; got != [2]string{"base", "base"} {
			t.Errorf("booted and current system after test and reboot: %q, want base", got)
		}
		wantPage(t, h, "base")

		// the first switch since a boot
		wantLines(t, "stderr", h.switchTo(t, "base", "test").Stderr,
			"restarting sysinit-reactivation.target\n"+
				"the following new units were started: sysinit-reactivation.target, systemd-tmpfiles-resetup.service")

		// with a boot entry: a reboot goes there
		sh(t, h.Host, setProfile+h.paths["next"])
		wantState(t, h, h.switchTo(t, "next", "boot"), state{0, "base", "next", nil})
		reboot(t, h)
		if got := [2]string{booted(), h.current(t)}; got != [2]string{"next", "next"} {
			t.Errorf("booted and current system after boot and reboot: %q, want next", got)
		}
		wantPage(t, h, "next")
		if got := strings.TrimSpace(h.do(t, "systemctl is-system-running --wait").Stdout); got != "running" {
			t.Errorf("system is %s after a reboot, want running: %s", got, h.do(t, "systemctl --failed").Stdout)
		}
	})

	t.Run("systemd-boot", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		entries := func() []string {
			return strings.Fields(sh(t, h.Host, "cd /boot/loader/entries && ls"))
		}
		first := entries()
		if len(first) != 1 {
			t.Fatalf("entries: %q, want one", first)
		}
		sh(t, h.Host, setProfile+h.paths["next"])
		wantState(t, h, h.switchTo(t, "next", "boot"), state{0, "base", "next", nil})
		if got := entries(); len(got) != 2 {
			t.Errorf("entries of two generations: %q", got)
		}
		// an entry goes with its generation
		sh(t, h.Host, "nix-env -p /nix/var/nix/profiles/system --delete-generations old")
		wantState(t, h, h.switchTo(t, "next", "boot"), state{0, "base", "next", nil})
		if got := entries(); len(got) != 1 || got[0] == first[0] {
			t.Errorf("entries after the old generation went: %q", got)
		}
		if got := sh(t, h.Host, "ls /boot/EFI/nixos"); strings.Contains(got, "6.12.1") || !strings.Contains(got, "linux-6.12.2") {
			t.Errorf("kernels after the old generation went: %q", got)
		}
		// a left-over of an interrupted run makes the next one fail
		sh(t, h.Host, "touch /boot/loader/loader.tmp")
		result := h.switchTo(t, "next", "boot")
		sh(t, h.Host, "rm /boot/loader/loader.tmp")
		wantState(t, h, result, state{1, "base", "next", nil})
		wantLines(t, "stderr", result.Stderr, "Failed to install bootloader")
	})

	t.Run("systemd-boot with boot counting", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		sh(t, h.Host, setProfile+h.paths["counted"])
		wantState(t, h, h.switchTo(t, "counted", "switch"), state{0, "counted", "counted", nil})
		entries := func() []string { return strings.Fields(sh(t, h.Host, "cd /boot/loader/entries && ls")) }
		first := entries()
		if len(first) != 2 || !strings.HasSuffix(first[1], "+3.conf") {
			t.Fatalf("entries: %q, want an old one and a counted one", first)
		}
		// what systemd-boot makes of it at a boot
		sh(t, h.Host, "cd /boot/loader/entries && mv "+first[1]+" "+strings.Replace(first[1], "+3", "+2-1", 1))
		reboot(t, h)
		wantState(t, h, h.switchTo(t, "counted", "switch"), state{0, "counted", "counted", nil})
		if got := entries(); len(got) != 2 || !strings.HasSuffix(got[1], "+2-1.conf") {
			t.Errorf("entries after a boot: %q", got)
		}
		// no tries left: back to the older one
		sh(t, h.Host, "cd /boot/loader/entries && mv "+strings.Replace(first[1], "+3", "+2-1", 1)+" "+strings.Replace(first[1], "+3", "+0-3", 1))
		reboot(t, h)
		if got := h.current(t); got != "base" {
			t.Errorf("runs %s after a boot without tries left, want base", got)
		}
	})

	for loader, file := range map[string]string{"grub": "/boot/grub/grub.cfg", "extlinux": "/boot/extlinux/extlinux.conf"} {
		t.Run(loader, func(t *testing.T) {
			t.Parallel()
			h := w.take(t)
			sh(t, h.Host, setProfile+h.paths[loader])
			if result := h.switchTo(t, loader, "switch"); result.Code != 0 {
				t.Fatalf("exit code %d: %s", result.Code, result.Stderr)
			}
			text := sh(t, h.Host, "cat "+file)
			// by which entry the program finds the default
			if mark := map[string]string{"grub": "menuentry \"NixOS - Default\" {\n", "extlinux": "LABEL nixos-default\n"}[loader]; !strings.Contains(text, mark) {
				t.Errorf("%s has no %q:\n%s", file, mark, text)
			}
			got := initOption.FindAllStringSubmatch(text, -1)
			var names []string
			for _, match := range got {
				names = append(names, h.name(match[1]))
			}
			if diff := cmp.Diff([]string{loader, loader, "base"}, names); diff != "" {
				t.Errorf("systems in %s (-want +got):\n%s", file, diff)
			}
			// this loader alone decides now
			sh(t, h.Host, "mv /boot/loader /boot/loader.off")
			reboot(t, h)
			running := h.current(t)
			sh(t, h.Host, "mv /boot/loader.off /boot/loader; rm -r "+file)
			if running != loader {
				t.Errorf("runs %s after a reboot, want %s", running, loader)
			}
		})
	}

	t.Run("no boot entry", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		sh(t, h.Host, "mv /boot/loader /boot/loader.off")
		reboot(t, h)
		got := h.do(t, "test -e /run/current-system").Code
		sh(t, h.Host, "mv /boot/loader.off /boot/loader")
		if got == 0 {
			t.Errorf("a host without a boot entry runs a toplevel")
		}
		// as NixOS without /run/current-system
		if result := h.switchTo(t, "base", "test"); result.Code != 100 {
			t.Errorf("switch without a current system: exit code %d, want 100", result.Code)
		}
		reboot(t, h)
	})
}

func reboot(t *testing.T, h *target) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := h.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	sh(t, h.Host, "systemctl is-system-running --wait || true")
}

// wantPage asks the host for its page, trusting only the certificate that the
// closure declares.
func wantPage(t *testing.T, h *target, system string) {
	t.Helper()
	got := sh(t, h.Host, "curl -sS --cacert $(dirname $(readlink -f "+h.paths[system]+"/etc/ssl-resource.pem))/cert.pem "+
		"--resolve "+system+":443:127.0.0.1 https://"+system)
	if got != system+"\n" {
		t.Errorf("page of %s: %q", system, got)
	}
}

// contents is what a toplevel consists of, and what its parts do.
func contents(t *testing.T, w *world) {
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		got := strings.Fields(sh(t, h.Host, "ls -A $(readlink -f "+h.paths["base"]+")"))
		want := strings.Fields(`activate activation append-initrd-secrets bin boot.json dry-activate etc extra-dependencies firmware
			init init-interface-version initrd kernel kernel-modules kernel-params nixos-version sw system systemd`)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("files of a toplevel (-want +got):\n%s", diff)
		}
		var bootspec map[string]struct{ Toplevel, Init, Kernel string }
		must(t, json.Unmarshal([]byte(sh(t, h.Host, "cat "+h.paths["base"]+"/boot.json")), &bootspec))
		if spec := bootspec["org.nixos.bootspec.v1"]; spec.Toplevel != h.paths["base"] || spec.Init != h.paths["base"]+"/init" {
			t.Errorf("boot.json: %+v", spec)
		}
		for file, want := range map[string]string{
			"nixos-version": "25.11.test-base", "system": "x86_64-linux", "init-interface-version": "systemd 2", "kernel-params": "loglevel=4",
		} {
			if got := sh(t, h.Host, "cat "+h.paths["base"]+"/"+file); got != want {
				t.Errorf("%s is %q, want %q", file, got, want)
			}
		}
		if got := sh(t, h.Host, "cat "+h.paths["wrong-system"]+"/system"); got != "aarch64-linux" {
			t.Errorf("system of wrong-system is %q", got)
		}
		for _, tool := range []string{"nix-env", "nix-store", "systemctl", "systemd-run", "journalctl", "flock", "readlink", "sh"} {
			sh(t, h.Host, "test -x /run/current-system/sw/bin/"+tool)
		}
	})

	t.Run("container", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		for _, file := range []string{"kernel", "initrd", "kernel-modules", "kernel-params", "append-initrd-secrets"} {
			if h.do(t, "test -e $container/"+file).Code == 0 {
				t.Errorf("a container's toplevel has %s", file)
			}
		}
		sh(t, h.Host, setProfile+h.paths["container"])
		wantState(t, h, h.switchTo(t, "container", "switch"), state{0, "container", "base", nil})
	})

	t.Run("etc", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		if got := sh(t, h.Host, "readlink /etc/systemd/system /etc/ssl-resource.pem"); got != "/etc/static/systemd/system\n/etc/static/ssl-resource.pem\n" {
			t.Errorf("links in /etc: %q", got)
		}
		h.switchTo(t, "rules", "test")
		if h.do(t, "test -L /etc/ssl-resource.pem").Code == 0 {
			t.Error("a file of the old toplevel is still in /etc")
		}
		if got := sh(t, h.Host, "stat -c '%a %U' /run/made-by-a-rule"); got != "640 root\n" {
			t.Errorf("what a file rule made: %q", got)
		}
		sh(t, h.Host, "test -s /etc/os-release && test -d /etc/ssh") // Debian's own
	})

	t.Run("the page needs its file rules", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		wantPage(t, h, "base")
		got := h.do(t, "rm /var/lib/toplevel-web/resource.pem; systemctl restart nginx")
		if got.Code == 0 {
			t.Error("nginx starts without its certificate")
		}
		sh(t, h.Host, "systemd-tmpfiles --create --exclude-prefix=/dev 2>/dev/null; systemctl restart nginx")
		wantPage(t, h, "base")
	})

	t.Run("payload", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		if got := sh(t, h.Host, "stat -c %s $(cat "+h.paths["payload"]+"/extra-dependencies)/*"); got != "3000000\n1000000\n" {
			t.Errorf("sizes of the payload: %q", got)
		}
	})

	t.Run("a switch that kills ssh sessions", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		ssh := "ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR root@" + h.Addr + " "
		result := run(t, w.rig.Deployer, rig.Cmd{Args: []string{"/bin/sh", "-c", ssh + h.paths["kills-sessions"] + "/bin/switch-to-configuration test"}})
		if result.Code != 255 {
			t.Errorf("ssh ended with %d, want 255: %s", result.Code, result.Stderr)
		}
		// not tied to the session, it goes through
		sh(t, h.Host, "while pgrep -f '[b]in/.switch-to-configuration-wrapped'; do sleep 0.1; done")
		run(t, w.rig.Deployer, rig.Cmd{Args: []string{"/bin/sh", "-c",
			ssh + "systemd-run -q --unit=try -p StandardOutput=append:/run/try -p StandardError=append:/run/try " +
				h.paths["kills-sessions"] + "/bin/switch-to-configuration test"}})
		sh(t, h.Host, "while systemctl is-active -q try; do sleep 0.1; done; ! systemctl is-failed -q try")
		if got := h.current(t); got != "kills-sessions" {
			t.Errorf("runs %s, want kills-sessions", got)
		}
	})
}

// example is the example flake for such toplevels, next to a copy of the library.
func (w *world) example(t *testing.T) {
	deployer := w.rig.Deployer
	must(t, deployer.CopyTree(t.Context(), os.DirFS("../../examples/two-hosts"), "/root/example"))
	must(t, deployer.CopyTree(t.Context(), toplevels.Tree, "/root/example/toplevels"))
	got := sh(t, deployer, `nix eval --raw path:/root/example#nodes --apply '
		map: builtins.concatStringsSep "\n" (builtins.map (node: "${node.name} ${node.toplevel.name} ${node.toplevel.drvPath}") map.nodes)'`)
	want := regexp.MustCompile(`^web1 nixos-system-web1-\S+ /nix/store/\S+\.drv\nweb2 nixos-system-web2-\S+ /nix/store/\S+\.drv$`)
	if !want.MatchString(got) {
		t.Errorf("nodes of the example: %q, want a match of %s", got, want)
	}
}

// refusals is what Nix says to arguments that are wrong and to systems made to fail.
func (w *world) refusals(t *testing.T) {
	for attribute, want := range map[string]string{
		"refusals.unknown":       "toplevels.mkToplevel: unknown argument 'unit'. Did you mean 'units'?",
		"refusals.unknown-fault": "toplevels.mkToplevel: unknown argument 'faults.activat'. Did you mean 'activate'?",
		"refusals.no-name":       "toplevels.mkToplevel: argument 'name' is null, but a name for the system is wanted. It must match ",
		"refusals.bad-name":      `toplevels.mkToplevel: argument 'name' is string "a b", but a name for the system is wanted. It must match `,
		"refusals.bad-type":      "toplevels.mkToplevel: argument 'label' is int 7, but a value of type string is wanted. Change 'label' where mkToplevel is called.",
		"refusals.bad-choice":    `toplevels.mkToplevel: argument 'loader' is string "lilo", but one of systemd-boot, systemd-boot-counting, grub, extlinux is wanted.`,
		"refusals.bad-unit":      `toplevels.mkToplevel: argument 'units' is string "nginx", but the name of a unit file is wanted. It must match `,
		"refusals.bad-fault":     `toplevels.mkToplevel: argument 'faults.unit' is string "explodes", but one of cancelled, dies-later, fails, hangs is wanted.`,
		"faults.throws":          "the toplevel of throws throws, as asked for",
		"faults.aborts":          "the toplevel of aborts aborts, as asked for",
		"faults.type-error":      "cannot coerce an integer to a string",
	} {
		t.Run(attribute, func(t *testing.T) {
			t.Parallel()
			from := flake
			if strings.HasPrefix(attribute, "faults") {
				from += "/toplevels"
			}
			result := run(t, w.rig.Deployer, rig.Cmd{Args: []string{"nix", "eval", from + "#" + attribute + ".drvPath"}, Env: []string{"HOME=/root"}})
			if result.Code == 0 || !strings.Contains(result.Stderr, want) {
				t.Errorf("exit code %d, stderr without %q:\n%s", result.Code, want, tail(result.Stderr))
			}
		})
	}
	t.Run("unbuildable", func(t *testing.T) {
		t.Parallel()
		result := run(t, w.rig.Deployer, rig.Cmd{Args: []string{"nix", "build", "--no-link", flake + "/toplevels#faults.unbuildable"}, Env: []string{"HOME=/root"}})
		want := "building the toplevel of 25.11.test-unbuildable: failing, as asked for"
		if result.Code == 0 || !strings.Contains(result.Stderr, want) {
			t.Errorf("exit code %d, stderr without %q:\n%s", result.Code, want, tail(result.Stderr))
		}
	})
}
