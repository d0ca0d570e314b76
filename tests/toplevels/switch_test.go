package toplevels_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// switches is one action on one system, from base: its exit code, its texts on
// each stream, and what it leaves.
func switches(t *testing.T, w *world) {
	const (
		base         = "base"
		activating   = "activating the configuration..."
		reactivation = "restarting sysinit-reactivation.target"
		warning      = "warning: the following units failed: fault.service"
		incompatible = "Warning: the new NixOS configuration has an ‘init’ that is\n" +
			"incompatible with the current configuration.  The new configuration\n" +
			"won't take effect until you reboot the system."
	)
	cases := []struct {
		system, action string
		env            []string
		want           state
		stdout, stderr []string
		// silent is what must not be on standard error
		silent []string
	}{
		{system: "next", action: "test", want: state{0, "next", base, nil},
			stdout: []string{"setting up /etc..."},
			stderr: []string{"stopping the following units: nginx.service, systemd-tmpfiles-resetup.service", activating, reactivation,
				"starting the following units: nginx.service, systemd-tmpfiles-resetup.service"},
			silent: []string{"setting up /etc..."}},
		{system: "next", action: "check", want: state{0, base, base, nil}, silent: []string{activating}},
		{system: "next", action: "dry-activate", want: state{0, base, base, nil},
			stderr: []string{"would stop the following units: nginx.service, systemd-tmpfiles-resetup.service",
				"would activate the configuration...", "would start the following units: nginx.service, systemd-tmpfiles-resetup.service"},
			silent: []string{activating}},
		{system: "next", action: "frobnicate", want: state{1, base, base, nil},
			stderr: []string{"dry-activate: show what would be done if this configuration were activated"}},
		// not in the profile: the boot default stays
		{system: "next", action: "boot", want: state{0, base, base, nil}, silent: []string{activating}},
		{system: base, action: "test", want: state{0, base, base, nil},
			stderr: []string{activating + "\n" + reactivation}, silent: []string{"stopping the following units"}},

		{system: "activate-fails", action: "test", want: state{2, "activate-fails", base, nil},
			stdout: []string{"Activation script snippet 'fault' failed (1)"},
			stderr: []string{"Failed to run activate script\n" + reactivation}},
		{system: "activate-missing", action: "test", want: state{0, base, base, nil}, stderr: []string{activating}},
		{system: "activate-slow", action: "test", want: state{0, "activate-slow", base, nil},
			stdout: []string{"activation takes its time: 3 of 3"}},
		{system: "unit-fails", action: "test", want: state{4, "unit-fails", base, nil},
			stdout: []string{"x fault.service - A unit that goes wrong as asked for"}, stderr: []string{warning}},
		{system: "unit-dies-later", action: "test", want: state{0, "unit-dies-later", base, nil}, silent: []string{"warning:"}},
		{system: "unit-cancelled", action: "test", want: state{0, "unit-cancelled", base, nil}, silent: []string{"warning:"}},
		{system: "check-fails", action: "test", want: state{1, base, base, nil},
			stderr: []string{"Pre-switch check 'fault' failed\nPre-switch checks failed"}, silent: []string{activating}},
		{system: "check-fails", action: "boot", want: state{1, base, base, nil}, stderr: []string{"Pre-switch checks failed"}},
		{system: "check-fails", action: "test", env: []string{"NIXOS_NO_CHECK=1"}, want: state{0, "check-fails", base, nil}},
		{system: "interface-changed", action: "test", want: state{100, base, base, nil}, stderr: []string{incompatible}},
		{system: "interface-changed", action: "dry-activate", want: state{100, base, base, nil}, stderr: []string{incompatible}},
		{system: "interface-changed", action: "check", want: state{0, base, base, nil}},
		{system: "interface-changed", action: "boot", want: state{0, base, base, nil}},
		{system: "loader-fails", action: "switch", want: state{1, base, base, nil},
			stderr: []string{"Failed to install bootloader"}, silent: []string{activating}},
		{system: "loader-fails", action: "test", want: state{0, "loader-fails", base, nil}},
		{system: "loader-no-entry", action: "switch", want: state{0, "loader-no-entry", base, nil}},
		{system: "loader-slow", action: "boot", want: state{0, base, base, nil}},
		{system: "wrong-system", action: "test", want: state{0, "wrong-system", base, nil}},
		{system: "log-huge", action: "test", want: state{0, "log-huge", base, nil},
			stdout: []string{"activation line 120000: the quick brown fox jumps over the lazy dog"}},
		{system: "log-binary", action: "test", want: state{0, "log-binary", base, nil}},
		{system: "says-failed-moved", action: "test", want: state{1, "says-failed-moved", base, nil}, stderr: []string{warning}},
		{system: "says-failed-stayed", action: "switch", want: state{4, base, base, nil}, stderr: []string{warning}},
		{system: "reexec", action: "test", want: state{0, "reexec", base, nil},
			stderr: []string{activating + "\nrestarting systemd..."}},
		{system: "perl", action: "test", want: state{0, "perl", base, nil}, stderr: []string{activating}},
		{system: "rules", action: "test", want: state{0, "rules", base, nil}, silent: []string{"warning:"}},
	}
	for _, c := range cases {
		t.Run(strings.Join(append([]string{c.system, c.action}, c.env...), " "), func(t *testing.T) {
			t.Parallel()
			h := w.take(t)
			result := h.switchTo(t, c.system, c.action, c.env...)
			wantState(t, h, result, c.want)
			wantLines(t, "stdout", result.Stdout, c.stdout...)
			wantLines(t, "stderr", result.Stderr, c.stderr...)
			for _, text := range c.silent {
				if strings.Contains(result.Stderr, text) {
					t.Errorf("stderr has %q:\n%s", text, tail(result.Stderr))
				}
			}
		})
	}

	t.Run("inhibitors", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		if result := h.switchTo(t, "inhibitor-a", "test"); result.Code != 0 {
			t.Fatalf("the first value of an inhibitor: exit code %d: %s", result.Code, result.Stderr)
		}
		for _, action := range []string{"test", "check"} {
			result := h.switchTo(t, "inhibitor-b", action)
			wantState(t, h, result, state{1, "inhibitor-a", base, nil})
			wantLines(t, "stderr", result.Stderr,
				"There are changes to critical components of the system:\n\n"+
					"dbus-implementation : dbus -> broker\n\n"+
					"Switching into this system is not recommended.",
				"Pre-switch check 'switchInhibitors' failed\nPre-switch checks failed")
		}
		wantState(t, h, h.switchTo(t, "inhibitor-b", "boot"), state{0, "inhibitor-a", base, nil})
		wantState(t, h, h.switchTo(t, "inhibitor-b", "test", "NIXOS_NO_CHECK=1"), state{0, "inhibitor-b", base, nil})
	})

	t.Run("a failed unit is tried again", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		for range 2 {
			result := h.switchTo(t, "unit-fails", "test")
			wantState(t, h, result, state{4, "unit-fails", base, nil})
			wantLines(t, "stderr", result.Stderr, warning)
		}
	})

	t.Run("journal", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		cursor := strings.TrimSpace(h.do(t, `journalctl -n 0 --show-cursor -q | sed -n 's/^-- cursor: //p'`).Stdout)
		h.switchTo(t, "next", "test")
		h.switchTo(t, "unit-fails", "test")
		h.switchTo(t, base, "check")
		got := h.do(t, "journalctl --sync; journalctl -q -t nixos -o cat --after-cursor='"+cursor+"'").Stdout
		want := strings.Join([]string{
			"switching to system configuration " + h.paths["next"],
			"finished switching to system configuration " + h.paths["next"],
			"switching to system configuration " + h.paths["unit-fails"],
			"switching to system configuration " + h.paths["unit-fails"] + " failed (status 4)",
			"",
		}, "\n")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("journal (-want +got):\n%s", diff)
		}
	})
}

// units is how changed units are dealt with.
func units(t *testing.T, w *world) {
	h := w.take(t)
	if result := h.switchTo(t, "old-units", "test"); result.Code != 0 {
		t.Fatalf("old-units: exit code %d: %s", result.Code, result.Stderr)
	}
	pids := func() map[string]string {
		got := map[string]string{}
		for _, unit := range []string{"stops", "restarts", "reloads", "stays", "same"} {
			got[unit] = h.do(t, "systemctl show -p MainPID --value "+unit).Stdout
		}
		return got
	}
	before := pids()
	dry := h.switchTo(t, "new-units", "dry-activate")
	wantLines(t, "stderr", dry.Stderr,
		"would stop the following units: gone.service, stops.service",
		"would NOT stop the following changed units: stays.service",
		"would reload the following units: reloads.service",
		"would restart the following units: restarts.service",
		"would start the following units: stops.service")
	wantState(t, h, dry, state{0, "old-units", "base", nil})

	result := h.switchTo(t, "new-units", "test")
	wantState(t, h, result, state{0, "new-units", "base", nil})
	wantLines(t, "stderr", result.Stderr,
		"stopping the following units: gone.service, stops.service\n"+
			"NOT restarting the following changed units: stays.service\n"+
			"activating the configuration...",
		"restarting sysinit-reactivation.target\n"+
			"reloading the following units: reloads.service\n"+
			"restarting the following units: restarts.service\n"+
			"starting the following units: stops.service\n"+
			"the following new units were started: fresh.service")
	after := pids()
	for unit, kept := range map[string]bool{"stops": false, "restarts": false, "reloads": true, "stays": true, "same": true} {
		if same := before[unit] == after[unit]; same != kept {
			t.Errorf("%s.service: same process after the switch: %t, want %t", unit, same, kept)
		}
	}
	if got := h.do(t, "systemctl is-active gone fresh").Stdout; got != "inactive\nactive\n" {
		t.Errorf("gone and fresh are %q, want inactive and active", got)
	}
}
