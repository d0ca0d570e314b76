package closure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInspect(t *testing.T) {
	toplevel := t.TempDir()
	lay := func(name, text string) {
		t.Helper()
		path := filepath.Join(toplevel, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Inspect(toplevel); err == nil || !strings.Contains(err.Error(), "nixos-version") {
		t.Errorf("an empty folder: %v", err)
	}
	lay("nixos-version", "26.05")
	if _, err := Inspect(toplevel); err == nil || !strings.Contains(err.Error(), "bin/switch-to-configuration") {
		t.Errorf("a system that can't be switched to: %v", err)
	}
	lay("bin/switch-to-configuration", "")
	lay("system", "aarch64-linux\n")
	lay("init-interface-version", "systemd 2")
	got, err := Inspect(toplevel)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(System{Platform: "aarch64-linux", Interface: "systemd 2"}, got); diff != "" {
		t.Errorf("Inspect (-want +got):\n%s", diff)
	}
}
