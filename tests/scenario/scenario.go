// Package scenario has the end-to-end scenarios, written once and run by the rig
// and by the NixOS VM tests.
//
// A scenario knows a deployer, targets and the systems they are to run, and
// nothing of what these are made of: see [World]. It returns an error that says
// what was expected and what was seen.
package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/report"
)

// Machine is where commands can be run as root.
type Machine interface {
	// Run runs a script with /bin/sh. A script that ends is no error, whatever its status.
	Run(ctx context.Context, script string) (Output, error)
}

// Output is what a script printed and how it ended.
type Output struct {
	Stdout, Stderr string
	Code           int
}

// Target is one host that is deployed to.
type Target struct {
	Machine
	// Node is its name in the node map, Host how the deployer reaches its services.
	Node, Host string
	// ServerName is the name in its certificate.
	ServerName string
	// Port is the only port its sshd listens on.
	Port int
	// Page is what it serves at https://Host/ once deployed.
	Page string
	// Certificate is the path, within the node's toplevel, of the certificate
	// that TLS must end on.
	Certificate string
}

// World is what a scenario is played in. The flake on the deployer has the
// attributes that the scenarios name.
type World struct {
	Deployer Machine
	// Targets are those of the attribute nodes, in list order.
	Targets []Target
	// Baseline was brought to the first target's system without the transport:
	// its machine was booted into it. Nil where there is none.
	Baseline *Target
	// Flake is the directory of the flake on the deployer.
	Flake string
	// Program is how deploy-ssh is called on the deployer.
	Program string
	// ClientConfig is a file on the deployer that names the ports of the nodes
	// whose entries don't.
	ClientConfig string
}

// run is one call of the program.
type run struct {
	Output
	Records []report.Record
}

// deploy calls the program for an attribute of the flake, as a person does.
func (w World) deploy(ctx context.Context, attribute string, flags ...string) (run, error) {
	return w.call(ctx, attribute, "", flags...)
}

// records calls it with --json and reads the records.
func (w World) records(ctx context.Context, attribute string, flags ...string) (run, error) {
	return w.recordsIn(ctx, attribute, "", flags...)
}

func (w World) recordsIn(ctx context.Context, attribute, env string, flags ...string) (run, error) {
	r, err := w.call(ctx, attribute, env, append(flags, "--json")...)
	if err != nil {
		return r, err
	}
	for line := range strings.Lines(r.Stdout) {
		var record report.Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			return r, fmt.Errorf("standard output of --json has the line %q: %w\n%s", line, err, r.Stderr)
		}
		r.Records = append(r.Records, record)
	}
	return r, nil
}

// call runs the program in the flake's directory; env goes in front of it.
func (w World) call(ctx context.Context, attribute, env string, flags ...string) (run, error) {
	script := fmt.Sprintf("cd %s && %s DEPLOY_SSH_CONFIG=%s exec %s .#%s %s",
		w.Flake, env, w.ClientConfig, w.Program, attribute, strings.Join(flags, " "))
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("deploy-ssh .#%s did not end within 5 minutes", attribute))
	defer cancel()
	out, err := w.Deployer.Run(ctx, script)
	return run{Output: out}, err
}

// Result is the outcome of one node in one call of the program.
type Result struct {
	report.Result
	// Code is the program's exit code, Stderr its standard error.
	Code   int
	Stderr string
	// Phase is the last phase that the node came to; empty when it came to none.
	Phase report.PhaseName
	// HostLines are what the host printed during the switch, Lines what the
	// program itself said meanwhile.
	HostLines, Lines []string
}

// Result deploys an attribute and returns what became of a node. env goes in
// front of the program.
func (w World) Result(ctx context.Context, attribute, env, node string, flags ...string) (Result, error) {
	r, err := w.recordsIn(ctx, attribute, env, flags...)
	if err != nil {
		return Result{}, err
	}
	result := Result{Result: r.results()[node], Code: r.Code, Stderr: r.Stderr}
	for _, record := range r.Records {
		if record.Phase != nil && record.Phase.Node == node {
			result.Phase = record.Phase.Name
		}
		switch p := record.Progress; {
		case p == nil || p.Node != node:
		case p.FromHost:
			result.HostLines = append(result.HostLines, p.Text)
		default:
			result.Lines = append(result.Lines, p.Text)
		}
	}
	if result.Verdict == "" {
		return result, fmt.Errorf("deploy-ssh .#%s has no result for %s: exit code %d\n%s", attribute, node, r.Code, r.Stderr)
	}
	return result, nil
}

// results are the results among the records, by node.
func (r run) results() map[string]report.Result {
	results := map[string]report.Result{}
	for _, record := range r.Records {
		if record.Result != nil {
			results[record.Result.Node] = *record.Result
		}
	}
	return results
}

// exit checks the exit code.
func (r run) exit(want int) error {
	if r.Code != want {
		return fmt.Errorf("exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", r.Code, want, r.Stdout, r.Stderr)
	}
	return nil
}

// say runs a script that must succeed and returns what it prints, trimmed.
func say(ctx context.Context, m Machine, script string) (string, error) {
	out, err := m.Run(ctx, script)
	if err != nil {
		return "", err
	}
	if out.Code != 0 {
		return "", fmt.Errorf("%s: exit status %d: %s%s", script, out.Code, out.Stdout, out.Stderr)
	}
	return strings.TrimSpace(out.Stdout), nil
}
