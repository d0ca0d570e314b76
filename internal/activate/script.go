package activate

import (
	_ "embed"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/deploy-ssh/deploy-ssh/internal/facts"
)

var (
	//go:embed supervise.sh
	superviseFunctions string
	//go:embed run.sh
	runText string
	//go:embed end.sh
	endText string
)

// profile is the system profile; boot loader scripts list its generations,
// so it is set before the boot entry is made.
const profile = "/nix/var/nix/profiles/system"

// gcRoot keeps the wanted closure from being collected between its copy and
// the moment when the profile leads to it.
const gcRoot = "/nix/var/nix/gcroots/deploy-ssh"

// startScript starts a run on the host, follows it to its end and looks at the
// host. Whatever goes wrong before systemd has the run means "not scheduled".
func startScript(r Run) string {
	var b strings.Builder
	b.WriteString(common(r))
	b.WriteString("prepare() {\n    umask 077\n    mkdir -p \"$dir\" || return 1\n")
	heredoc(&b, "$dir/$action.sh", header(r)+runText)
	heredoc(&b, "$dir/$action.end", header(r)+endText)
	if r.Action == Test {
		fmt.Fprintf(&b, "    mkdir -p %s && ln -sfn \"$toplevel\" %s && baseline\n", path.Dir(gcRoot), gcRoot)
	}
	b.WriteString("}\n")
	if r.Action == Boot {
		fmt.Fprintf(&b, "words=$(set_profile %s 2>&1) || { said profile-error \"${words:-nix-env ended without a word}\"; %s exit 0; }\n",
			profile, observeText)
	}
	b.WriteString(`if ! words=$(prepare 2>&1); then
    said not-scheduled "$words"
    rm -rf "$dir"
elif start "$dir" "$action" "$unit" "$limit"; then
` + followText(r, 0) + `else
    rm -f "$dir/$action.sh"
fi
`)
	b.WriteString(observeText)
	return b.String()
}

// followScript goes on with a run that was started, from a byte of its log on.
func followScript(r Run, offset int64) string {
	return common(r) +
		// The session that was to start it may still be about to: three looks apart.
		"for look in 1 2 3; do [ -e \"$dir/$action.log\" ] && break; sleep 2; done\n" +
		"if [ -e \"$dir/$action.log\" ]; then say unit \"$unit\"\n" + followText(r, offset) + "fi\n" +
		observeText
}

// tidyScript ends a deploy that went well: earlier runs' records go, ours stays
// until the next good run.
func tidyScript(id string) string {
	return superviseFunctions + fmt.Sprintf("tidy %s\nrm -f %s\n", quote(id), gcRoot)
}

const observeText = "say observation follows; observe \"$toplevel\";"

func common(r Run) string {
	return facts.Functions + superviseFunctions + header(r)
}

func header(r Run) string {
	return fmt.Sprintf("dir=/run/deploy-ssh/%s action=%s unit=%s toplevel=%s attempts=%d interval=%s limit=%d\n",
		r.ID, r.Action, r.unit(), quote(r.Toplevel), r.Attempts, seconds(r.Interval), wholeSeconds(r.Limit))
}

func followText(r Run, offset int64) string {
	return fmt.Sprintf(`    follow "$dir" "$action" "$unit" %d %d
    # Units are watched by switch-to-configuration for a quarter of a second only.
    grep -q '^exit-status 0$' "$dir/$action.result" 2>/dev/null && sleep %s
`, offset, wholeSeconds(r.Deadline), seconds(r.Settle))
}

// heredoc writes text to a file on the host. The closing word stands in no text
// of ours, and a run's texts hold nothing of others but a quoted store path.
func heredoc(b *strings.Builder, path, text string) {
	fmt.Fprintf(b, "cat >\"%s\" <<'END_OF_DEPLOY_SSH_FILE' || exit 1\n%sEND_OF_DEPLOY_SSH_FILE\n", path, text)
}

// quote makes one word for sh of any text.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// seconds is a duration as sleep(1) of coreutils takes it.
func seconds(d time.Duration) string { return fmt.Sprintf("%g", d.Seconds()) }

// wholeSeconds rounds up, since 0 means no limit.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
