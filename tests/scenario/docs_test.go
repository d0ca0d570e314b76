package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deploy-ssh/deploy-ssh/tests/guide"
	"github.com/deploy-ssh/deploy-ssh/tests/rig"
	"github.com/deploy-ssh/deploy-ssh/tests/scenario/rigworld"
)

// Every command that the README and the guides run against hosts is run against
// hosts, word for word and in its order, in a copy of the example that the document
// names.
//
// The examples' nodes are db and web, and two hosts of the rig answer under their
// names. What stands in is told at [standInForGitHub]: systems have NixOS's shape, not
// its contents. DEPLOY_SSH_NODES has what is another host's here: addresses, the
// key to log in with, the pins.
func TestDocuments(t *testing.T) {
	t.Parallel()
	r := rig.Start(t, rig.Config{Targets: []rig.Target{rigworld.Target("db", 22), rigworld.Target("web", 2222)}})
	ctx := t.Context()
	if err := rigworld.Prepare(ctx, r, rigworld.Build(t), `{ outputs = _: { first = (import ./toplevels { }).mkToplevel { name = "installed"; }; }; }`); err != nil {
		t.Fatal(err)
	}
	first, err := rigworld.BuildToplevel(ctx, r, ".#first")
	if err == nil {
		err = standInForGitHub(ctx, r.Deployer)
	}
	var names strings.Builder
	for _, h := range r.Targets {
		if err == nil {
			err = rigworld.Install(ctx, r, h, first)
		}
		fmt.Fprintf(&names, "%s %s.example.org\n", h.Addr, h.Name)
	}
	if err == nil {
		_, err = r.Deployer.Sh(ctx, "printf '"+names.String()+"' >>/etc/hosts")
	}
	if err == nil {
		err = r.Deployer.CopyTree(ctx, os.DirFS("../../examples"), "/root/examples")
	}
	if err != nil {
		t.Fatal(err)
	}
	here := map[string]any{}
	for _, h := range r.Targets {
		here[h.Name] = map[string]string{"host": h.Name, "hostKey": h.HostKey, "key": "/root/.ssh/id_ed25519"}
	}
	overlay, err := json.Marshal(map[string]any{"nodes": here})
	if err != nil {
		t.Fatal(err)
	}
	call := func(t *testing.T, example, command string) {
		t.Helper()
		ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("no end of %q within 5 minutes", command))
		defer cancel()
		began := time.Now()
		out, err := r.Deployer.Run(ctx, rig.Cmd{
			Args: []string{"/bin/bash", "-euo", "pipefail", "-c", command}, Dir: "/root/" + example,
			Env: []string{"DEPLOY_SSH_NODES=" + string(overlay), "GORACE=atexit_sleep_ms=0"},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s$ %s  (%.1f s)\n%s%s", example, command, time.Since(began).Seconds(), out.Stdout, out.Stderr)
		if out.Code != 0 {
			t.Errorf("%s: exit code %d\n%s", command, out.Code, out.Stderr)
		}
	}
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, path := range append([]string{"../../README.md"}, documents...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		document, err := guide.Parse(strings.TrimPrefix(path, "../../"), string(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range document.Blocks {
			if block.Mode != guide.Rig {
				continue
			}
			t.Run(fmt.Sprintf("%s:%d", document.Name, block.Line), func(t *testing.T) {
				for _, command := range block.Commands {
					call(t, document.Example, command)
					ran++
				}
			})
		}
	}
	if ran < 20 {
		t.Errorf("only %d commands were run", ran)
	}
}
