package closure

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/ssh"
)

//go:embed realise.sh
var realiseScript string

// maxArguments bounds the length of the paths on the host's command line, where
// Linux allows two million bytes.
const maxArguments = 1_200_000

// realise has the host fetch what it lacks. heard is told what its Nix says meanwhile.
func (e Engine) realise(ctx context.Context, h Host, job Job, c *cache, way *door, host preflight, heard *hearing) error {
	heard.own = fmt.Sprintf("http://127.0.0.1:%d/", way.port)
	err := e.fetch(ctx, h, job, host, config(c, way, host.caches), heard)
	var refused *refusal
	if errors.As(err, &refused) {
		return signatureHint(refused.said)
	}
	return err
}

// refusal is what a host says that fetched not all.
type refusal struct{ said string }

func (r *refusal) Error() string { return r.said }

// fetch has the host fetch what it lacks from where the settings of Nix in config say.
// The error is a [*refusal] when the host lacks something still.
func (e Engine) fetch(ctx context.Context, h Host, job Job, host preflight, config string, heard *hearing) error {
	missing := strings.Join(host.missing, "\n")
	if len(missing) > maxArguments {
		missing = ""
	}
	// The script is standard input on the host: its secrets are in no command line.
	text := fmt.Sprintf("toplevel='%s'\nmissing='%s'\nconfig='%s'\n%s%s%s", job.Toplevel, missing, config, privateCache, keepScript, realiseScript)
	heard.begin()
	err := h.Run(ctx, ssh.Script{Doing: "fetching the closure on the host", Text: text, Output: heard, Timeout: -1, Attended: true})
	var failed *ssh.ExitError
	if errors.As(err, &failed) {
		said := heard.redact(errorLines(heard.end() + "\n" + failed.Words))
		if said == "" {
			said = "the host's store says neither why it fetched nothing nor that " + job.Toplevel + " is valid"
		}
		return &refusal{said}
	}
	return err
}

// config is settings of Nix for the one command that fetches the closure.
func config(c *cache, way *door, caches []string) string {
	own := fmt.Sprintf("http://127.0.0.1:%d/%s", way.port, c.token)
	return fetchConfig(append(slices.Clone(caches), own), []string{c.public.String()}, way.took)
}

// fetchConfig is settings of Nix for one command that fetches a closure from these
// substituters and trusts these keys, too. took is how long the host takes to answer.
func fetchConfig(substituters, keys []string, took time.Duration) string {
	return strings.Join([]string{
		"substituters = " + strings.ReplaceAll(strings.Join(substituters, " "), "'", "%27"),
		"extra-trusted-public-keys = " + strings.Join(keys, " "),
		"substitute = true",
		// A cache that fails in the middle leaves the path to the next one.
		"fallback = true",
		"keep-going = true",
		"builders =",
		// Small paths are all round trip.
		"max-jobs = 64",
		"max-substitution-jobs = 64",
		fmt.Sprint("http-connections = ", connections(took)),
		"connect-timeout = 5",
		// A copy that fails is begun again as a whole.
		"download-attempts = 2",
	}, "\n")
}

// connections is how many connections the host makes at most. A question takes a round
// trip, and there are hundreds: so the longer that is, the more of them at once. Each one
// open costs both ssh processes CPU time, so no more than that.
func connections(roundTrip time.Duration) int {
	return min(max(int(roundTrip/time.Millisecond)*3/2, 32), 256)
}
