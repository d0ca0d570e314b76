package scenario_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// Each fault of the toplevels is a map of one node; good is one without fault.
const faultsFlake = `{
  outputs = { self }:
    let
      toplevels = import ./toplevels { };
      dying = seconds: { "late.service" = { wantedBy = [ "multi-user.target" ]; text = "[Service]\nExecStart=/bin/sh -c 'sleep ${toString seconds}; exit 3'\n"; }; };
      failing = { "old.service" = { wantedBy = [ "multi-user.target" ]; text = "[Service]\nType=oneshot\nExecStart=/bin/false\n"; }; };
      node = toplevel: [ { name = "web1"; host = "web1"; inherit toplevel; ssh.options = [ "Port=2201" ]; } ];
    in
    builtins.mapAttrs (_: node) (import ./toplevels/examples-of-faults.nix toplevels)
    // {
      first = toplevels.mkToplevel { name = "first"; };
      good = node (toplevels.mkToplevel { name = "good"; });
      other = node (toplevels.mkToplevel { name = "other"; web.page = "other\n"; });
      ignored = [ (builtins.head (node (toplevels.mkToplevel { name = "ignored"; faults.unit = "fails"; })) // { ignoreUnits = [ "fault.*" ]; }) ];
      elevated = {
        sudo = { defaults.elevate = "sudo"; nodes = node (toplevels.mkToplevel { name = "sudo"; }); };
        sudo2 = { defaults.elevate = "sudo"; nodes = node (toplevels.mkToplevel { name = "sudo2"; }); };
        doas = { nodes = [ (builtins.head (node (toplevels.mkToplevel { name = "doas"; })) // { elevate = "doas"; }) ]; };
      };
      # Units that die some seconds after they started, and one that always fails.
      dies2 = node (toplevels.mkToplevel { name = "dies2"; units = dying 2; });
      dies6 = node (toplevels.mkToplevel { name = "dies6"; units = dying 6; });
      flaps = node (toplevels.mkToplevel { name = "flaps"; units."flaps.service" = { wantedBy = [ "multi-user.target" ]; text = "[Service]\nRestart=always\nRestartSec=60\nExecStart=/bin/sh -c 'sleep 2; exit 3'\n"; }; });
      old = node (toplevels.mkToplevel { name = "old"; units = failing; });
      oldDies = node (toplevels.mkToplevel { name = "old-dies"; units = failing // dying 2; });
      oldActivate = node (toplevels.mkToplevel { name = "old-activate"; units = failing; faults.activate = "fails"; });
      broken2 = node (toplevels.mkToplevel { name = "broken2"; faults.unit = "fails"; });
      blind = node (toplevels.mkToplevel { name = "blind"; units = dying 2 // { "blinds.service" = { wantedBy = [ "multi-user.target" ]; text = "[Service]\nType=oneshot\nExecStart=/bin/sh -c '(sleep 1; chmod -x /usr/bin/systemctl) &'\nKillMode=none\n"; }; }; });
      hangs = node (toplevels.mkToplevel { name = "hangs"; faults.activateSeconds = 100000; });
      grub = node (toplevels.mkToplevel { name = "grub"; loader = "grub"; });
      extlinux = node (toplevels.mkToplevel { name = "extlinux"; loader = "extlinux"; });
      counting = node (toplevels.mkToplevel { name = "counting"; loader = "systemd-boot-counting"; });
      exits = builtins.listToAttrs (builtins.concatMap (code: map (moved: {
        name = "c${toString code}${if moved then "true" else "false"}";
        value = node (toplevels.mkToplevel {
          name = "exit-${toString code}-${if moved then "moved" else "stayed"}";
          faults.switch = { exit = code; inherit moved; warn = true; };
        });
      }) [ true false ]) [ 0 1 2 4 11 100 101 126 127 137 255 ]);
      vast = node (toplevels.mkToplevel { name = "vast"; faults.log = "vast"; });
      starting = node (toplevels.mkToplevel {
        name = "starting";
        units."starts-slowly.service" = { wantedBy = [ "multi-user.target" ]; text = "[Service]\nType=oneshot\nExecStart=/bin/sleep 8\n"; };
      });
      slower = node (toplevels.mkToplevel { name = "slower"; faults.activateSeconds = 6; });
      bulky = node (toplevels.mkToplevel { name = "bulky"; payload.incompressible = 629145600; });
      slow = node (toplevels.mkToplevel { name = "slow"; faults.activateSeconds = 8; });
      big = node (toplevels.mkToplevel { name = "big"; payload.compressible = 20971520; });
    };
}
`

// faultsWorld is one target that runs and boots the system first.
func faultsWorld(t *testing.T) (scenario.World, *rig.Rig) {
	t.Helper()
	return faultsWorldOf(t, func(*rig.Target) {})
}

func faultsWorldOf(t *testing.T, change func(*rig.Target)) (scenario.World, *rig.Rig) {
	t.Helper()
	target := rigworld.Target("web1", 2201)
	change(&target)
	r := rig.Start(t, rig.Config{Targets: []rig.Target{target}})
	ctx := t.Context()
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), faultsFlake); err != nil {
		t.Fatal(err)
	}
	first, err := rigworld.BuildToplevel(ctx, r, ".#first")
	if err != nil {
		t.Fatal(err)
	}
	if err := rigworld.Install(ctx, r, r.Host("web1"), first); err != nil {
		t.Fatal(err)
	}
	return scenario.World{
		Deployer: rigworld.Machine{Host: r.Deployer}, Flake: rigworld.Flake, Program: rigworld.Program, ClientConfig: rigworld.ClientConfig,
		Targets: []scenario.Target{{Machine: rigworld.Machine{Host: r.Host("web1")}, Node: "web1", Host: "web1", Port: 2201}},
	}, r
}

// a row of the fault matrix.
type row struct {
	// fault names what goes wrong, and where.
	fault string
	// attribute is the map that is deployed; flags and env are the call's.
	attribute, flags, env string
	// before and after are done on the rig around the deploy.
	before, after func(context.Context) error
	// during is done once the switch's log has the text at.
	at     string
	during func(context.Context) error
	want   verdict.Verdict
	code   int
	// reason is what the result's reason must hold.
	reason string
	// note is what one of its notes must hold.
	note string
	// stays says that the host runs and boots what it did before.
	stays bool
	// check, if not nil, looks at the result and the host.
	check func(context.Context, scenario.Result) error
}

// matrix collects the rows for the table that -v prints.
var matrix struct {
	sync.Mutex
	table strings.Builder
}

func TestMain(m *testing.M) {
	code := m.Run()
	if testing.Verbose() && matrix.table.Len() > 0 {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprint(w, "\nGOAL\tLAST PHASE\tFAULT\tVERDICT\tEXIT\tTIME TO VERDICT\n"+matrix.table.String())
		w.Flush()
	}
	os.Exit(code)
}

// play deploys each row in turn on one rig. Every row gets the verdict that is
// true, and no good one comes with a host that isn't.
func play(t *testing.T, w scenario.World, web1 *rig.Host, rows []row) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.fault, func(t *testing.T) {
			ctx := t.Context()
			before := running(t, ctx, web1)
			if tt.before != nil {
				if err := tt.before(ctx); err != nil {
					t.Fatal(err)
				}
			}
			during := make(chan error, 1)
			if tt.during == nil {
				during <- nil
			} else {
				// An earlier run's log would pass for this one's.
				if _, err := web1.Sh(ctx, "rm -rf /run/deploy-ssh/*-*"); err != nil {
					t.Fatal(err)
				}
				go func() {
					_, err := web1.Sh(ctx, "for i in $(seq 300); do grep -aqs -e '"+tt.at+"' /run/deploy-ssh/*-*/*.log && exit 0; sleep 0.1; done; exit 1")
					if err == nil {
						err = tt.during(ctx)
					}
					during <- err
				}()
			}
			began := time.Now()
			got, err := w.Result(ctx, tt.attribute, tt.env, "web1", "--settle 0.5s", tt.flags)
			took := time.Since(began)
			if err := <-during; err != nil {
				t.Errorf("during the switch: %v", err)
			}
			if tt.after != nil {
				if err := tt.after(ctx); err != nil {
					t.Error(err)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			matrix.Lock()
			fmt.Fprintf(&matrix.table, "%s\t%s\t%s\t%s\t%d\t%.1fs\n", goal(tt.flags), got.Phase, tt.fault, got.Verdict, got.Code, took.Seconds())
			matrix.Unlock()
			notes := strings.Join(got.Notes, "\n")
			if got.Verdict != tt.want || got.Code != tt.code || !strings.Contains(got.Reason, tt.reason) || !strings.Contains(notes, tt.note) {
				t.Errorf("%s (%s), exit code %d, notes %q; want %s with %q, exit code %d, a note with %q\n%s",
					got.Verdict, got.Reason, got.Code, notes, tt.want, tt.reason, tt.code, tt.note, got.Stderr)
			}
			if tt.check != nil {
				if err := tt.check(ctx, got); err != nil {
					t.Error(err)
				}
			}
			after := running(t, ctx, web1)
			if tt.stays && after != before {
				t.Errorf("the host was changed: %s, before: %s", after, before)
			}
			whole := fmt.Sprintf("runs %s, boots %[1]s, lists []", got.Toplevel)
			if (got.Verdict == verdict.Switched || got.Verdict == verdict.Unchanged) && !strings.Contains(tt.flags, "--goal") && after != whole {
				t.Errorf("FALSE SUCCESS: %s of %s, but the host %s", got.Verdict, got.Toplevel, after)
			}
		})
	}
}

// running is what a host runs and boots, read without the program.
func running(t *testing.T, ctx context.Context, h *rig.Host) string {
	t.Helper()
	out, err := h.Sh(ctx, `printf 'runs %s, boots %s, lists [%s]' "$(readlink -f /run/current-system)" "$(`+bootEntry+`)" "$(ls /run/nixos | grep -- -list)"`)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// bootEntry prints the toplevel that the boot loader starts, whichever it is: by
// grub's first entry, extlinux's default label, or what systemd-boot's default
// pattern fits, the newest first.
const bootEntry = `if [ -e /boot/grub/grub.cfg ]; then sed -n '/^menuentry/,/^}/p' /boot/grub/grub.cfg
elif [ -e /boot/extlinux/extlinux.conf ]; then sed -n '/^LABEL nixos-default$/,/^LABEL nixos-[0-9]/p' /boot/extlinux/extlinux.conf
else cd /boot/loader/entries && cat "$(ls -d $(sed -n 's/^default *//p' ../loader.conf) | sort -V | tail -n 1)"
fi | sed -n 's/.*init=\([^ ]*\)\/init.*/\1/p' | head -n 1`

// on makes a step of a script on a host.
func on(h *rig.Host, script string) func(context.Context) error {
	return func(ctx context.Context) error { _, err := h.Sh(ctx, script); return err }
}

// hold is a script by which somebody else holds the lock for some seconds.
const hold = `mkdir -p /run/nixos; setsid flock /run/nixos/switch-to-configuration.lock sleep %d >/dev/null 2>&1 </dev/null &
for i in $(seq 50); do [ -e /run/nixos/switch-to-configuration.lock ] && ! flock -n /run/nixos/switch-to-configuration.lock true && exit 0; sleep 0.1; done; exit 1`

// budget is a small retry budget.
const budget = "--lock-attempts 3 --lock-interval 0.2s"

// goal is the goal that flags name.
func goal(flags string) string {
	if _, rest, ok := strings.Cut(flags, "--goal "); ok {
		name, _, _ := strings.Cut(rest, " ")
		return name
	}
	return "switch"
}
