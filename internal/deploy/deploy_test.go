package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deploy-ssh/deploy-ssh/internal/activate"
	"github.com/deploy-ssh/deploy-ssh/internal/closure"
	"github.com/deploy-ssh/deploy-ssh/internal/facts"
	"github.com/deploy-ssh/deploy-ssh/internal/plan"
	"github.com/deploy-ssh/deploy-ssh/internal/report"
	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
	"github.com/deploy-ssh/deploy-ssh/internal/verdict"
)

// machine is a transport without SSH: a host in memory that does what the
// scripts ask for, as far as the body of a deploy can see. It proves that the
// body needs nothing of a host but the hooks.
type machine struct {
	runs, profile, boots string
	valid                map[string]bool
	calls                []string
	loaderFails          bool
	loginFails           bool
	reverted             bool
}

var _ Transport = (*machine)(nil)

func (m *machine) observation(toplevel string) string {
	lines := []string{"uid 0", "machine x86_64", "hostname m", "boot-id b", "nixos yes", "systemd yes",
		"running " + m.runs, "profile " + m.profile, "generation 7", "loader systemd-boot", "boot-entry " + m.boots,
		"tool-nix-store /x", "tool-nix-env /x", "tool-systemd-run /x"}
	if m.valid[toplevel] {
		lines = append(lines, "valid yes")
	}
	return strings.Join(append(lines, "observed yes", ""), "\n")
}

// wanted finds in a script which toplevel it is about.
func wanted(script string) string {
	for _, mark := range []string{"observe '", "toplevel='"} {
		if _, rest, ok := strings.Cut(script, mark); ok {
			path, _, _ := strings.Cut(rest, "'")
			return path
		}
	}
	return ""
}

func (m *machine) Run(_ context.Context, s ssh.Script) error {
	toplevel := wanted(s.Text)
	answer := ""
	switch {
	case strings.Contains(s.Text, "name=test action=test"):
		m.calls = append(m.calls, "test")
		m.runs = toplevel
		answer = "unit u\nended yes\nservice-result success\nexit-code exited\nexit-status 0\ntries 1\nobservation follows\n" + m.observation(toplevel)
	case strings.Contains(s.Text, "\nobserve '"):
		m.calls = append(m.calls, "probe")
		answer = m.observation(toplevel)
	default:
		m.calls = append(m.calls, "other")
	}
	if s.Output != nil {
		_, err := io.WriteString(s.Output, answer)
		return err
	}
	return nil
}

func (m *machine) FreshRun(context.Context, ssh.Script) error {
	m.calls = append(m.calls, "login")
	if m.loginFails {
		return &ssh.Error{Kind: ssh.Unreachable, Doing: "trying a fresh login", Words: "nobody answers"}
	}
	return nil
}

func (m *machine) Reopen(context.Context) error { return errors.New("not needed") }

func (m *machine) Copy(_ context.Context, _ facts.Host, job closure.Job) (closure.Sent, error) {
	m.calls = append(m.calls, "copy")
	m.valid[job.Toplevel] = true
	return closure.Sent{}, nil
}

func (m *machine) SwitchLimit(facts.Host) time.Duration { return time.Minute }

func (m *machine) Finalize(_ context.Context, r activate.Run, _ activate.Sink) (activate.Outcome, error) {
	m.calls = append(m.calls, "finalize")
	m.profile = r.Toplevel
	status := "1"
	if !m.loaderFails {
		m.boots, status = r.Toplevel, "0"
	}
	host, err := facts.Parse([]byte(m.observation(r.Toplevel)))
	return activate.Outcome{Switch: verdict.Switch{Unit: "b", Ended: true, ExitCode: "exited", ExitStatus: status}, Host: host, Seen: err == nil}, err
}

func (m *machine) Revert(context.Context) error {
	m.reverted = true
	return nil
}

func (m *machine) Hint(v verdict.Verdict, _ facts.Host) string {
	if v == verdict.Unfinalized {
		return "ask the machine's keeper"
	}
	return ""
}

func (m *machine) Close() { m.calls = append(m.calls, "close") }

// system makes a toplevel on disk, as the deployer has it in its store.
func system(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	for file, text := range map[string]string{"nixos-version": "x", "bin/switch-to-configuration": "", "system": "x86_64-linux"} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBodyOverAnotherTransport(t *testing.T) {
	wanted := system(t, "new")
	fresh := func() *machine {
		return &machine{runs: "/old", profile: "/old", boots: "/old", valid: map[string]bool{}}
	}
	for _, tt := range []struct {
		name    string
		machine *machine
		change  func(*Fleet)
		want    verdict.Verdict
		calls   string
		next    string
	}{
		{"switch", fresh(), nil, verdict.Switched, "probe copy test login finalize close", ""},
		{"already there", &machine{runs: wanted, profile: wanted, boots: wanted, valid: map[string]bool{wanted: true}}, nil, verdict.Unchanged, "probe close", ""},
		{"runs new, boots old", &machine{runs: wanted, profile: "/old", boots: "/old", valid: map[string]bool{wanted: true}}, nil, verdict.Switched, "probe finalize close", ""},
		{"push", fresh(), func(f *Fleet) { f.Goal = GoalPush }, verdict.Staged, "probe copy close", ""},
		{"boot", fresh(), func(f *Fleet) { f.Goal = GoalBoot }, verdict.Staged, "probe copy finalize close", ""},
		{"test", fresh(), func(f *Fleet) { f.Goal = GoalTest }, verdict.Staged, "probe copy test login close", ""},
		{"build", fresh(), func(f *Fleet) { f.Goal = GoalBuild }, verdict.Staged, "", ""},
		{"loader fails", &machine{runs: "/old", profile: "/old", boots: "/old", valid: map[string]bool{}, loaderFails: true}, nil, verdict.Unfinalized, "probe copy test login finalize close", "ask the machine's keeper"},
		{"nobody can log in", &machine{runs: "/old", profile: "/old", boots: "/old", valid: map[string]bool{}, loginFails: true}, nil, verdict.NoLogin, "probe copy test login login close", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var records []report.Record
			f := &Fleet{
				Limits: DefaultLimits(), Emit: func(r report.Record) { records = append(records, r) },
				Open: func(context.Context, plan.Node) (Transport, error) { return tt.machine, nil },
			}
			if tt.change != nil {
				tt.change(f)
			}
			got := f.Run(t.Context(), []plan.Node{{Name: "m", Toplevel: wanted}}, nil)[0]
			if got.Verdict != tt.want {
				t.Errorf("%s (%s), want %s", got.Verdict, got.Reason, tt.want)
			}
			if diff := cmp.Diff(tt.calls, strings.Join(tt.machine.calls, " ")); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if tt.next != "" && got.Next != tt.next {
				t.Errorf("next is %q, want the transport's %q", got.Next, tt.next)
			}
			if tt.machine.reverted != (tt.want == verdict.Unfinalized) {
				t.Errorf("reverted: %v", tt.machine.reverted)
			}
		})
	}
}

// Nodes that can't be deployed don't keep the others from it, and an interrupt does.
func TestFleetOrder(t *testing.T) {
	wanted := system(t, "new")
	var order []string
	ctx, cancel := context.WithCancel(t.Context())
	f := &Fleet{Limits: DefaultLimits(), Emit: func(r report.Record) {
		if r.Announce != nil {
			order = append(order, fmt.Sprintf("%d/%d %s", r.Announce.Index, r.Announce.Total, r.Announce.Node))
		}
		if r.Result != nil && r.Result.Node == "good" {
			cancel()
		}
	}, Open: func(_ context.Context, n plan.Node) (Transport, error) {
		if n.Name == "down" {
			return nil, &ssh.Error{Kind: ssh.Unreachable, Doing: "connecting", Words: "refused"}
		}
		return &machine{runs: "/old", profile: "/old", boots: "/old", valid: map[string]bool{}}, nil
	}}
	results := f.Run(ctx, []plan.Node{
		{Name: "broken", EvalError: "error: no"}, {Name: "unbuilt", Toplevel: wanted}, {Name: "down", Toplevel: wanted},
		{Name: "good", Toplevel: wanted}, {Name: "late", Toplevel: wanted},
	}, map[string]error{"unbuilt": errors.New("builder failed")})
	var verdicts []verdict.Verdict
	for _, r := range results {
		verdicts = append(verdicts, r.Verdict)
	}
	if diff := cmp.Diff([]verdict.Verdict{verdict.EvalFailed, verdict.BuildFailed, verdict.Unreachable, verdict.Switched, verdict.NotStarted}, verdicts); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1/5 broken", "2/5 unbuilt", "3/5 down", "4/5 good"}, order); diff != "" {
		t.Errorf("announcements (-want +got):\n%s", diff)
	}
}
