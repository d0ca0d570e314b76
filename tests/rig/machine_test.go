package rig

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// needsRootMount skips a test that mounts in a namespace of its own, where nothing
// could keep these mounts from reaching the machine's: in a chroot / is no mount
// point, so its propagation can't be changed.
func needsRootMount(t *testing.T) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == "/" {
			return
		}
	}
	t.Skip("/ is no mount point: this machine is a chroot")
}

// In a mount namespace of its own, of one thread that ends with its goroutine.
func TestPseudoterminals(t *testing.T) {
	Require(t)
	needsRootMount(t)
	dev := t.TempDir()
	if err := os.Mkdir(filepath.Join(dev, "pts"), 0o755); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			t.Error(err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Error(err)
			return
		}
		if err := pseudoterminals(dev, io.Discard); err == nil {
			t.Error("no ptmx, and no error")
		}
		if err := unix.Unmount(filepath.Join(dev, "pts"), 0); err != nil {
			t.Error(err)
		}
		// as in a container with the machine's /dev and nothing of what is mounted in it
		if err := unix.Mknod(filepath.Join(dev, "ptmx"), unix.S_IFCHR|0o666, int(unix.Mkdev(5, 2))); err != nil {
			t.Error(err)
			return
		}
		if err := openPseudoterminal(dev); err == nil {
			t.Error("a pseudoterminal without devpts")
		}
		for range 2 { // the second time there is nothing to do
			if err := pseudoterminals(dev, io.Discard); err != nil {
				t.Error(err)
			}
		}
		if err := unix.Unmount(filepath.Join(dev, "pts"), 0); err != nil {
			t.Error(err)
		}
		if err := openPseudoterminal(dev); err == nil {
			t.Error("devpts was mounted twice")
		}
	}()
	<-done
}

func TestDropOthers(t *testing.T) {
	Require(t)
	needsRootMount(t)
	cache := t.TempDir()
	const present, used, old = "trixie-111111111111", "trixie-222222222222", "trixie-333333333333"
	others := []string{"forky-444444444444", "trixie-mine"}
	for _, name := range append([]string{present, used, old}, others...) {
		if err := os.MkdirAll(filepath.Join(cache, name, "usr"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{used, old} {
		if err := os.WriteFile(filepath.Join(cache, name+".log"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// A rig has it as the lower layer of its disks, in a namespace of its own.
	mount := exec.Command("unshare", "--mount", "sh", "-c", `mount -t overlay -o "lowerdir=$1:$2" o "$1" && echo mounted && cat`, "sh", filepath.Join(cache, used), t.TempDir())
	hold, err := mount.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := mount.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := mount.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		t.Fatalf("mount: %q, %v", line, err)
	}
	names := func() []string {
		var all []string
		entries, err := os.ReadDir(cache)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	drop := func() {
		t.Helper()
		if err := dropOthers(filepath.Join(cache, present), "trixie", t.Output()); err != nil {
			t.Error(err)
		}
	}
	drop()
	if diff := cmp.Diff([]string{"forky-444444444444", present, used, used + ".log", "trixie-mine"}, names()); diff != "" {
		t.Errorf("while a root is in use (-want +got):\n%s", diff)
	}
	hold.Close()
	if err := mount.Wait(); err != nil {
		t.Error(err)
	}
	drop()
	if diff := cmp.Diff([]string{"forky-444444444444", present, "trixie-mine"}, names()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}
