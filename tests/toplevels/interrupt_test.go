package toplevels_test

import (
	"testing"
)

// lock is the lock of switch-to-configuration, and its forerunners'.
func lock(t *testing.T, w *world) {
	h := w.take(t)
	held := "flock /run/nixos/switch-to-configuration.lock sleep infinity </dev/null >/dev/null 2>&1 & holder=$!; trap 'kill $(pgrep -P $holder)' EXIT; " +
		"while flock -n /run/nixos/switch-to-configuration.lock true; do sleep 0.01; done; "
	for _, action := range []string{"check", "dry-activate", "test", "switch", "boot"} {
		result := h.do(t, held+"$next/$stc "+action)
		wantState(t, h, result, state{11, "base", "base", nil})
		if result.Stderr != "Could not acquire lock\n" || result.Stdout != "" {
			t.Errorf("%s under a lock: stdout %q, stderr %q", action, result.Stdout, result.Stderr)
		}
	}
	result := h.do(t, held+"$perl/$stc test")
	wantState(t, h, result, state{11, "base", "base", nil})
	wantLines(t, "stderr", result.Stderr, "Could not acquire lock - Resource temporarily unavailable at "+
		h.paths["perl"]+"/bin/.switch-to-configuration-wrapped line 98.")

	// the early Perl one waits
	result = h.do(t, held+`$perl_blocking_lock/$stc check & waiter=$!
		waits="-> FLOCK .*:$(stat -c %i /run/nixos/switch-to-configuration.lock) "
		while kill -0 $waiter; do if grep -q -e "$waits" /proc/locks; then echo waiting; break; fi; sleep 0.05; done
		trap - EXIT; kill $(pgrep -P $holder); wait $waiter`)
	wantState(t, h, result, state{0, "base", "base", nil})
	wantLines(t, "stdout", result.Stdout, "waiting")

	// the lock file stays, free
	h.do(t, "$base/$stc check")
	if result := h.do(t, "flock -n /run/nixos/switch-to-configuration.lock true"); result.Code != 0 {
		t.Errorf("the lock is held after a run")
	}
}

// Scripts for what the tests wait for in a switch that another process runs.
const (
	// inActivation waits until activate-slow, with its output in /run/slow, is past /etc.
	inActivation = "until grep -qs 'its time: 1' /run/slow; do sleep 0.1; done; rm /run/slow; "
	// inStart waits until fault.service of unit-hangs hangs in its start.
	inStart = "until [ \"$(systemctl show -p ActiveState --value fault)\" = activating ]; do sleep 0.1; done; "
)

// interruptions is switches that end half-way, and what the next one makes of it.
func interruptions(t *testing.T, w *world) {
	cases := []struct {
		name, script string
		want         state
		then         string // what then runs to the end, from next
	}{
		{"main process killed in activate, which runs on",
			`$activate_slow/$stc test >/run/slow & ` + inActivation + `kill -TERM $!; wait $!; code=$?
			 flock -n /run/nixos/switch-to-configuration.lock true || exit 99
			 while pgrep -f "$activate_slow/[a]ctivate"; do sleep 0.1; done; exit $code`,
			state{143, "activate-slow", "base", []string{"start-list"}}, "next"},
		{"stopped as a unit, activate with it",
			`systemd-run -q --unit=try -p StandardOutput=append:/run/slow $activate_slow/$stc test; ` + inActivation + `systemctl stop try
			 pgrep -f "$activate_slow/[a]ctivate"`,
			state{1, "base", "base", []string{"start-list"}}, "next"},
		{"stdout and stderr lose their reader in activate",
			`{ $activate_slow/$stc test; echo $? >/run/code; } 2>&1 | grep -q -m 1 'its time: 1'
			 while [ ! -e /run/code ]; do sleep 0.1; done; code=$(cat /run/code); rm /run/code; exit $code`,
			state{101, "base", "base", []string{"start-list"}}, "next"},
		{"stdout alone loses its reader in activate",
			`{ $activate_slow/$stc test 2>/run/err; echo $? >/run/code; } | grep -q -m 1 'its time: 1'
			 while [ ! -e /run/code ]; do sleep 0.1; done; cat /run/err >&2; code=$(cat /run/code); rm /run/code; exit $code`,
			state{2, "base", "base", nil}, "next"},
		{"stderr full", `$next/$stc test 2>/dev/full`, state{101, "base", "base", nil}, "next"},
		{"stdout full", `$next/$stc test >/dev/full`, state{2, "next", "base", nil}, "next"},
		{"both closed", `$next/$stc test >&- 2>&-`, state{0, "next", "base", nil}, "next"},
		{"hanging start job, main process killed",
			`$unit_hangs/$stc test & ` + inStart + `kill -TERM $!; wait $!`,
			state{143, "unit-hangs", "base", []string{"start-list"}}, "next"},
		{"hanging start job, its unit killed",
			`$unit_hangs/$stc test & ` + inStart + `systemctl kill -s KILL fault; wait $!`,
			state{4, "unit-hangs", "base", nil}, "next"},
		{"hanging start job, its unit stopped",
			`$unit_hangs/$stc test & ` + inStart + `systemctl stop fault; wait $!`,
			state{0, "unit-hangs", "base", nil}, "next"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := w.take(t)
			wantState(t, h, h.do(t, c.script), c.want)
			again := h.switchTo(t, c.then, "test")
			wantState(t, h, again, state{0, c.then, "base", nil})
			if got := h.do(t, "systemctl is-active nginx").Stdout; got != "active\n" {
				t.Errorf("nginx is %q after the next switch, want active", got)
			}
		})
	}

	t.Run("a stale name in reload-list", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		h.do(t, "echo ghost.service >/run/nixos/reload-list")
		for range 2 {
			result := h.switchTo(t, "next", "test")
			wantState(t, h, result, state{1, "next", "base", []string{"reload-list", "start-list"}})
			wantLines(t, "stderr", result.Stderr, "Error: Failed to get unit ghost.service")
		}
	})

	t.Run("a stale name in start-list", func(t *testing.T) {
		t.Parallel()
		h := w.take(t)
		h.do(t, "echo ghost.service >/run/nixos/start-list")
		result := h.switchTo(t, "next", "test")
		wantState(t, h, result, state{4, "next", "base", nil})
		wantLines(t, "stderr", result.Stderr, "Failed to start ghost.service: Unit ghost.service not found.")
		wantState(t, h, h.switchTo(t, "next", "test"), state{0, "next", "base", nil})
	})
}

// bus is switches without the system bus, logind, or a user's bus.
func bus(t *testing.T, w *world) {
	const (
		mend    = "systemctl start dbus.socket dbus.service; systemctl restart systemd-logind; "
		stop    = "systemctl stop dbus.socket dbus.service; "
		refused = "Error: Failed to open dbus connection\n\nCaused by:\n" +
			"    Failed to connect to socket /run/dbus/system_bus_socket: Connection refused"
	)
	cases := []struct {
		name, script string
		want         state
		stderr       []string
	}{
		{"no bus, check", stop + "$next/$stc check; code=$?; " + mend + "exit $code", state{0, "base", "base", nil}, nil},
		{"no bus, boot", stop + "$next/$stc boot; code=$?; " + mend + "exit $code", state{0, "base", "base", nil}, nil},
		{"no bus, test", stop + "$next/$stc test; code=$?; " + mend + "exit $code", state{1, "base", "base", nil}, []string{refused}},
		{"no bus, dry-activate", stop + "$next/$stc dry-activate; code=$?; " + mend + "exit $code", state{1, "base", "base", nil}, []string{refused}},
		{"no bus, switch: the boot loader has run",
			"nix-env -p /nix/var/nix/profiles/system --set $next; " + stop + "$next/$stc switch; code=$?; " + mend + "exit $code",
			state{1, "base", "next", nil}, []string{refused}},
		{"bus stopped in activate", "$activate_slow/$stc test >/run/slow & " + inActivation + stop + "wait $!; code=$?; " + mend + "exit $code",
			state{1, "activate-slow", "base", []string{"start-list"}}, []string{"Error: Failed to reset failed units"}},
		{"bus restarted while a job runs",
			"$unit_hangs/$stc test & " + inStart + "systemctl restart dbus; wait $!; code=$?; " + mend + "exit $code",
			state{1, "unit-hangs", "base", []string{"start-list"}}, []string{"Error: Failed to process dbus messages while waiting for jobs"}},
		{"logind stopped", "systemctl stop systemd-logind; $next/$stc test", state{0, "next", "base", nil}, nil},
		{"logind masked",
			"systemctl mask --runtime --now systemd-logind; $next/$stc test; code=$?; systemctl unmask --runtime systemd-logind; " + mend + "exit $code",
			state{11, "next", "base", []string{"start-list"}}, nil},
		{"logind frozen",
			"pid=$(systemctl show -p MainPID --value systemd-logind); kill -STOP $pid; $next/$stc test; code=$?; kill -CONT $pid; exit $code",
			state{11, "next", "base", []string{"start-list"}}, []string{"Unable to list users with logind: Connection timed out"}},
		{"bus frozen: no end, nothing done",
			"pid=$(systemctl show -p MainPID --value dbus); kill -STOP $pid; timeout 8 $next/$stc test; code=$?; kill -CONT $pid; exit $code",
			state{124, "base", "base", nil}, nil},
		{"a user's bus is gone",
			"systemd-run -q --wait loginctl enable-linger root; until [ -S /run/user/0/systemd/private ]; do sleep 0.1; done; rm -f /run/user/0/systemd/private /run/user/0/bus; $next/$stc test; code=$?; " +
				"systemd-run -q --wait loginctl disable-linger root; while loginctl list-users --no-legend | grep -q root; do sleep 0.1; done; exit $code",
			state{4, "next", "base", nil}, []string{"reloading user units for root...\nError: Failed to open dbus connection\nwarning: user activation for root failed"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := w.take(t)
			result := h.do(t, c.script)
			wantState(t, h, result, c.want)
			wantLines(t, "stderr", result.Stderr, c.stderr...)
			wantState(t, h, h.switchTo(t, "base", "test"), state{0, "base", c.want.Default, nil})
		})
	}
}
