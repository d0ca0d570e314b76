package facts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/tooltest"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

const wanted = "/nix/store/00000000000000000000000000000000-nixos-system-web1"

// The real script, run by the real sh of this machine, gives an answer that parses.
func TestObserveHere(t *testing.T) {
	out, err := exec.Command("/bin/sh", "-c", Observe(wanted)).Output()
	if err != nil {
		t.Fatalf("observe: %v\n%s", err, out)
	}
	h, err := Parse(out)
	if err != nil {
		t.Fatalf("Parse: %v\n%s", err, out)
	}
	if h.UID != os.Getuid() || h.BootID == "" || h.Machine == "" {
		t.Errorf("observe here: uid %d, boot id %q, machine %q", h.UID, h.BootID, h.Machine)
	}
	if h.Valid {
		t.Error("a path that does not exist is valid")
	}
}

// So does the one that asks for the past as well.
func TestObserveAllHere(t *testing.T) {
	out, err := exec.Command("/bin/sh", "-c", ObserveAll(wanted)).Output()
	if err != nil {
		t.Fatalf("observe: %v\n%s", err, out)
	}
	if _, err := Parse(out); err != nil || !strings.Contains(string(out), "\nhistory yes\n") {
		t.Fatalf("Parse: %v\n%s", err, out)
	}
}

func TestParseHistory(t *testing.T) {
	h, err := Parse([]byte("observed yes\nlabel 26.05\npast 3 1764500000 " + wanted + " 26.05 (a b)\npast 4 1764500001 " + wanted + " \nreboot-pending kernel\nhistory yes\n"))
	want := []Generation{
		{3, time.Unix(1764500000, 0).UTC(), wanted, "26.05 (a b)"},
		{4, time.Unix(1764500001, 0).UTC(), wanted, ""},
	}
	if diff := cmp.Diff(want, h.Past); err != nil || diff != "" || h.Label != "26.05" || len(h.RebootPending) != 1 {
		t.Errorf("%v, label %q, reboot for %q, past (-want +got):\n%s", err, h.Label, h.RebootPending, diff)
	}
	for _, bad := range []string{"past x 1 /a b", "past 1 x /a b", "past 1 1 /a", "past -1 1 /a b"} {
		if _, err := Parse([]byte(bad + "\nobserved yes\n")); err == nil || !strings.Contains(err.Error(), "generation") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

// The files of a toplevel end without a newline.
func TestFirstLine(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"open": "systemd 2", "closed": "b\nc\n", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := Functions + "cd '" + dir + "'\nfirst_line open open; first_line closed closed; first_line empty empty; first_line none none; true"
	out, err := exec.Command("/bin/sh", "-c", script).CombinedOutput()
	if got := string(out); err != nil || got != "open systemd 2\nclosed b\n" {
		t.Errorf("%v, %q", err, got)
	}
}

// Where the links of a host lead, and what of a wanted system would need a reboot.
func TestLinks(t *testing.T) {
	const kernel, other = "kernel-6.12", "kernel-6.18?"
	for _, tt := range []struct {
		name string
		// booted and wanted are the files of the two systems; a value with a slash in
		// front is a link into the store, any other one is text.
		booted, wanted map[string]string
		want           string
	}{
		{"no kernels, as in a container", map[string]string{}, map[string]string{}, ""},
		{"the same", map[string]string{"kernel": "/" + kernel, "kernel-params": "quiet"}, map[string]string{"kernel": "/" + kernel, "kernel-params": "quiet\n"}, ""},
		{"another kernel", map[string]string{"kernel": "/" + kernel, "initrd": "/i"}, map[string]string{"kernel": "/" + other, "initrd": "/i"}, "needs-reboot kernel\n"},
		{"an initrd of one alone", map[string]string{"kernel": "/" + kernel}, map[string]string{"kernel": "/" + kernel, "initrd": "/i"}, "needs-reboot initrd\n"},
		{"all", map[string]string{"kernel": "/" + kernel, "initrd": "/i", "kernel-modules": "/m", "kernel-params": "a"},
			map[string]string{"kernel": "/" + other, "initrd": "/j", "kernel-modules": "/n", "kernel-params": "b"},
			"needs-reboot kernel\nneeds-reboot initrd\nneeds-reboot kernel-modules\nneeds-reboot kernel-params\n"},
		{"parameters alone", map[string]string{"kernel": "/" + kernel, "kernel-params": "a"}, map[string]string{"kernel": "/" + kernel}, "needs-reboot kernel-params\n"},
		{"the wanted one is not there", map[string]string{"kernel": "/" + kernel}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			store := filepath.Join(root, "nix/store")
			place := func(path, target string) {
				t.Helper()
				err := os.MkdirAll(filepath.Dir(path), 0o755)
				if err == nil && target != "" && target[0] == '/' {
					err = os.Symlink(target, path)
				} else if err == nil {
					err = os.WriteFile(path, []byte(target), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for name, files := range map[string]map[string]string{"booted": tt.booted, "wanted": tt.wanted} {
				if files != nil {
					place(filepath.Join(store, name, "nixos-version"), "x")
				}
				for file, text := range files {
					if text[0] == '/' {
						if _, err := os.Stat(store + text); err != nil {
							place(store+text, "x")
						}
						text = store + text
					}
					place(filepath.Join(store, name, file), text)
				}
			}
			place(filepath.Join(root, "run/booted-system"), filepath.Join(store, "booted"))
			place(filepath.Join(root, "run/current-system"), filepath.Join(store, "gone"))
			place(filepath.Join(root, "nix/var/nix/profiles/system-7-link"), filepath.Join(store, "booted"))
			place(filepath.Join(root, "nix/var/nix/profiles/system"), filepath.Join(root, "nix/var/nix/profiles/system-7-link"))
			want := "booted " + store + "/booted\nprofile " + store + "/booted\n" + tt.want
			for _, sh := range tooltest.Shells(t) {
				cmd := exec.Command(sh, "-c", Functions+"\nlinks '"+filepath.Join(store, "wanted")+"'")
				cmd.Env = append(os.Environ(), "root="+root)
				out, err := cmd.CombinedOutput()
				if diff := cmp.Diff(want, string(out)); diff != "" || err != nil {
					t.Errorf("%s: %v (-want +got):\n%s", sh, err, diff)
				}
			}
		})
	}
}

// A link that goes while it is followed makes no other one's target its own.
func TestLinksThatGo(t *testing.T) {
	root, bin := t.TempDir(), t.TempDir()
	for _, path := range []string{"run/current-system", "run/booted-system", "nix/var/nix/profiles/system"} {
		if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	readlink := "#!/bin/sh\nprintf '%s\\n' \"$3\" \"$4\"\nexit 1\n" // nothing of the first one
	if err := os.WriteFile(filepath.Join(bin, "readlink"), []byte(readlink), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, sh := range tooltest.Shells(t) {
		cmd := exec.Command(sh, "-c", Functions+"\nlinks /wanted")
		cmd.Env = append(os.Environ(), "root="+root, "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil || len(out) != 0 {
			t.Errorf("%s said %q, %v", sh, out, err)
		}
	}
}

func TestBootEntry(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"nothing", nil, ""},
		{"systemd-boot", map[string]string{
			"boot/loader/loader.conf":                     "timeout 5\ndefault nixos-generation-7.conf\nconsole-mode keep\n",
			"boot/loader/entries/nixos-generation-7.conf": "title NixOS\nlinux /EFI/nixos/k.efi\noptions init=/nix/store/new/init loglevel=4\n",
			"boot/loader/entries/nixos-generation-6.conf": "options init=/nix/store/old/init\n",
		}, "loader systemd-boot\nboot-entry /nix/store/new\n"},
		{"systemd-boot, init last", map[string]string{
			"boot/loader/loader.conf":                     "default nixos-generation-7.conf\n",
			"boot/loader/entries/nixos-generation-7.conf": "options root=fstab init=/nix/store/new/init\n",
		}, "loader systemd-boot\nboot-entry /nix/store/new\n"},
		{"systemd-boot, boot counting", map[string]string{
			"efi/loader/loader.conf":                       "default nixos-generation-7*\n",
			"efi/loader/entries/nixos-generation-7+3.conf": "options init=/nix/store/new/init\n",
		}, "loader systemd-boot\nboot-entry /nix/store/new\n"},
		{"systemd-boot, default without its entry", map[string]string{
			"boot/loader/loader.conf":                     "default nixos-generation-8.conf\n",
			"boot/loader/entries/nixos-generation-7.conf": "options init=/nix/store/old/init\n",
		}, "loader systemd-boot\n"},
		{"systemd-boot, no default", map[string]string{
			"boot/loader/loader.conf":                     "timeout 3\n",
			"boot/loader/entries/nixos-generation-7.conf": "options init=/nix/store/old/init\n",
		}, "loader systemd-boot\n"},
		{"systemd-boot, the newest of a pattern", map[string]string{
			"boot/loader/loader.conf":                       "default nixos-generation-*\n",
			"boot/loader/entries/nixos-generation-9+3.conf": "options init=/nix/store/old/init\n",
			"boot/loader/entries/nixos-generation-10.conf":  "options init=/nix/store/new/init\n",
			"boot/loader/entries/nixos-generation-1.conf":   "options init=/nix/store/first/init\n",
		}, "loader systemd-boot\nboot-entry /nix/store/new\n"},
		{"systemd-boot, no tries left", map[string]string{
			"boot/loader/loader.conf":                          "default nixos-generation-*\n",
			"boot/loader/entries/nixos-generation-9.conf":      "options init=/nix/store/new/init\n",
			"boot/loader/entries/nixos-generation-10+0-3.conf": "options init=/nix/store/bad/init\n",
		}, "loader systemd-boot\nboot-entry /nix/store/new\n"},
		{"systemd-boot, a pattern without an entry of ours", map[string]string{
			"boot/loader/loader.conf": "default nixos-*\n", "boot/EFI/Linux/nixos-1.efi": "x",
		}, ""},
		{"systemd-boot, saved default", map[string]string{"boot/loader/loader.conf": "default @saved\n"}, ""},
		{"systemd-boot, the firmware's choice", map[string]string{
			"boot/loader/loader.conf":                                                          "default nixos-generation-7.conf\n",
			"boot/loader/entries/nixos-generation-7.conf":                                      "options init=/nix/store/new/init\n",
			"boot/loader/entries/nixos-generation-6.conf":                                      "options init=/nix/store/old/init\n",
			"sys/firmware/efi/efivars/LoaderEntryDefault-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f": "\x07\x00\x00\x00n\x00i\x00x\x00o\x00s\x00-\x00g\x00e\x00n\x00e\x00r\x00a\x00t\x00i\x00o\x00n\x00-\x006\x00.\x00c\x00o\x00n\x00f\x00\x00\x00",
		}, "loader systemd-boot\nboot-entry /nix/store/old\n"},
		{"systemd-boot, entries on another partition", map[string]string{
			"efi/loader/loader.conf":                      "default nixos-generation-7.conf\n",
			"boot/loader/entries/nixos-generation-7.conf": "options init=/nix/store/new/init\n",
		}, "loader systemd-boot\nboot-entry /nix/store/new\n"},
		{"grub, another default", map[string]string{
			"boot/grub/grub.cfg": "set default=2\nmenuentry \"NixOS - Default\" --class nixos {\n  linux k init=/nix/store/new/init\n}\n",
		}, ""},
		{"grub", map[string]string{
			"boot/grub/grub.cfg": "set default=0\nmenuentry \"NixOS - Default\" --class nixos {\n  linux ($drive1)//kernels/k init=/nix/store/new/init loglevel=4\n}\n" +
				"submenu \"NixOS - All configurations\" {\nmenuentry \"NixOS - Configuration 6\" {\n  linux k init=/nix/store/old/init\n}\n}\n",
		}, "loader grub\nboot-entry /nix/store/new\n"},
		{"extlinux", map[string]string{
			"boot/extlinux/extlinux.conf": "DEFAULT nixos-default\nLABEL nixos-default\n  LINUX ../nixos/k\n  APPEND init=/nix/store/new/init loglevel=4\n\nLABEL nixos-6-default\n  APPEND init=/nix/store/old/init\n",
		}, "loader extlinux\nboot-entry /nix/store/new\n"},
		{"init script", map[string]string{
			"sbin/init": "#! /bin/sh\nsystemConfig=/nix/store/new\nexport systemConfig\nexec /nix/store/new/init\n",
		}, "loader init-script\nboot-entry /nix/store/new\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range tt.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, sh := range tooltest.Shells(t) {
				cmd := exec.Command(sh, "-c", Functions+"\nboot_entry")
				cmd.Env = append(os.Environ(), "root="+root)
				out, err := cmd.CombinedOutput()
				if len(tt.files) > 0 && err != nil {
					t.Logf("%s: %v", sh, err)
				}
				if diff := cmp.Diff(tt.want, string(out)); diff != "" {
					t.Errorf("%s: boot_entry (-want +got):\n%s", sh, diff)
				}
			}
		})
	}
}

func TestParse(t *testing.T) {
	answer := strings.Join([]string{
		"uid 0", "machine x86_64", "hostname web1", "boot-id b", "machine-id m", "nixos yes", "systemd yes",
		"running /nix/store/a", "booted /nix/store/b", "profile /nix/store/a", "generation 12",
		"list start-list", "tool-nix-store /run/current-system/sw/bin/nix-store", "valid yes", "units-read yes",
		"failed z.service", "failed a.service", "loader systemd-boot", "boot-entry /nix/store/a",
		"run 2026-x test ended 4 /nix/store/b", "run 2026-x boot running - /nix/store/b", "chosen 11 /nix/store/c", "lock-holder pid 3 (x), since y",
		"interface systemd 2", "needs-reboot kernel", "observed yes", "",
	}, "\n")
	got, err := Parse([]byte(answer))
	if err != nil {
		t.Fatal(err)
	}
	want := Host{
		Host: verdict.Host{
			BootID: "b", Running: "/nix/store/a", Booted: "/nix/store/b", Profile: "/nix/store/a", Generation: 12,
			Loader: "systemd-boot", BootEntry: "/nix/store/a", Lists: []string{"start-list"},
			FailedUnits: []string{"a.service", "z.service"},
		},
		Machine: "x86_64", HostName: "web1", MachineID: "m", NixOS: true, Systemd: true, Valid: true,
		Records: []Run{{"2026-x", "test", "ended", "4", "/nix/store/b"}, {"2026-x", "boot", "running", "", "/nix/store/b"}},
		Chosen:  "/nix/store/c", ChosenGeneration: 11, LockHolder: "pid 3 (x), since y", Interface: "systemd 2", NeedsReboot: []string{"kernel"},
		Tools: map[string]string{"nix-store": "/run/current-system/sw/bin/nix-store"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
	for name, bad := range map[string]string{
		"cut short":    strings.TrimSuffix(answer, "observed yes\n"),
		"empty":        "",
		"noise":        "Welcome to web1\n" + answer,
		"no value":     "uid\n" + answer,
		"uid is words": "uid root\n" + answer,
		"said twice":   strings.Replace(answer, "observed yes", "running /nix/store/evil\nobserved yes", 1),
	} {
		if h, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%s: Parse gave %+v, want an error", name, h)
		}
	}
}

// What anybody on the host can shape stays on its line.
func TestSayStaysOnItsLine(t *testing.T) {
	out, err := exec.Command("sh", "-c", Functions+"\nsay lock-holder 'pid 7 (x\nrunning /nix/store/evil\n)'").Output()
	if err != nil || strings.Count(string(out), "\n") != 1 {
		t.Errorf("say printed %q, %v", out, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("uid 0\nobserved yes\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		h, err := Parse(answer)
		if err == nil && !strings.Contains(string(answer), "observed ") {
			t.Errorf("an answer without its end was taken: %+v", h)
		}
	})
}

func TestRuns(t *testing.T) {
	for _, tt := range []struct {
		machine, system string
		want            bool
	}{
		{"x86_64", "x86_64-linux", true},
		{"x86_64", "i686-linux", true},
		{"x86_64", "aarch64-linux", false},
		{"aarch64", "armv7l-linux", true},
		{"aarch64", "x86_64-linux", false},
		{"x86_64", "", true},
	} {
		if got := (Host{Machine: tt.machine}).Runs(tt.system); got != tt.want {
			t.Errorf("a host of machine %s runs %q = %v, want %v", tt.machine, tt.system, got, tt.want)
		}
	}
}

// Of two loaders' files the newer ones count.
func TestBootEntryOfTwoLoaders(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string, age time.Duration) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(-age)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	ask := func() string {
		t.Helper()
		cmd := exec.Command("sh", "-c", Functions+"\nboot_entry")
		cmd.Env = append(os.Environ(), "root="+root)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	write("boot/loader/loader.conf", "default a.conf\n", time.Hour)
	write("boot/loader/entries/a.conf", "options init=/nix/store/sd/init\n", time.Hour)
	write("boot/grub/grub.cfg", "menuentry \"NixOS - Default\" {\n linux k init=/nix/store/grub/init\n}\n", time.Minute)
	if got := ask(); !strings.Contains(got, "/nix/store/grub") {
		t.Errorf("grub's files are newer, but: %s", got)
	}
	write("boot/loader/loader.conf", "default a.conf\n", 0)
	if got := ask(); !strings.Contains(got, "/nix/store/sd") {
		t.Errorf("systemd-boot's files are newer, but: %s", got)
	}
}
