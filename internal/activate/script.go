package activate

import (
	_ "embed"
	"fmt"
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
	//go:embed back.sh
	backText string
)

// profile is the system profile; boot loader scripts list its generations,
// so it is set before the boot entry is made.
const profile = "/nix/var/nix/profiles/system"

// backPatience is how long the way back is followed beyond the wait for a confirmation.
const backPatience = 10 * time.Minute

// back is the name of the run that goes back to the old system when no fresh
// login confirms the new one.
const back = "back"

// startScript starts a run on the host, follows it to its end and looks at the
// host. Whatever goes wrong before systemd has the run means "not scheduled".
//
// After a lost connection the same script goes on with the run, from a byte of its
// log on: a folder that only one session can make decides who starts it, so it is
// started once, also when the first session never came to it.
func startScript(r Run, offset int64, again bool) string {
	var b strings.Builder
	b.WriteString(common(r))
	b.WriteString("prepare() {\n    umask 077\n")
	runFiles(&b, string(r.Action), r.Toplevel, header(r), "")
	if r.confirmed() {
		undo := r
		// The way back has its own patience: it is all that is left.
		undo.Toplevel, undo.Attempts, undo.Interval = r.Old, 600, time.Second
		runFiles(&b, back, undo.Toplevel, header(undo)+"name="+back+"\n",
			fmt.Sprintf("confirm=%d undone=%s test_unit=%s\n", wholeSeconds(r.Confirm), quote(r.Toplevel), r.unit())+backText)
	}
	if r.Action == Test {
		fmt.Fprintf(&b, "    sweep_roots; mkdir -p /nix/var/nix/gcroots && ln -sfn \"$toplevel\" \"$(root_of %s)\"\n", r.ID)
	}
	b.WriteString("}\n")
	if again {
		// The session that was to start it may still be about to: three looks apart.
		b.WriteString("for look in 1 2 3; do [ -e \"$dir/$name.log\" ] && break; sleep 2; done\n")
	}
	// Nothing is started on a host that has rebooted meanwhile, or that runs another
	// system than when this was decided: another deploy has had its turn. Only a first
	// activation goes on then, for there the later one has the last word.
	fmt.Fprintf(&b, "if [ \"$(cat /proc/sys/kernel/random/boot_id)\" != %s ]; then :\n", quote(r.BootID))
	if again || r.Action == Boot {
		fmt.Fprintf(&b, "elif [ ! -e \"$dir/$name.claim\" ] && [ \"$(readlink -f /run/current-system)\" != %s ]; then\n    say superseded yes\n", quote(r.Running))
	}
	b.WriteString(`elif ! words=$(umask 077; mkdir -p "$dir" 2>&1); then
    said not-scheduled "$words"
elif ! mkdir "$dir/$name.claim" 2>/dev/null; then
    if [ -s "$dir/$name.refused" ]; then
        cat "$dir/$name.refused"
    else
        say unit "$unit"
    ` + followText(r, offset) + "    fi\n")
	if r.Action == Boot {
		fmt.Fprintf(&b, "elif ! words=$(set_profile %s %d 2>&1); then\n    refuse profile-error \"${words:-nix-env ended without a word}\"\n",
			profile, r.Generation)
	}
	b.WriteString("elif ! words=$(prepare 2>&1); then\n    refuse not-scheduled \"$words\"\n    rm -f \"$dir/$name.sh\"\n")
	if r.confirmed() {
		// Before the switch: what is to undo it must not depend on it.
		fmt.Fprintf(&b, "elif ! (start \"$dir\" %s %s 0); then :\n", back, r.backUnit())
	}
	b.WriteString("elif start \"$dir\" \"$name\" \"$unit\" \"$limit\"; then\n" + followText(r, 0) +
		"else\n    ln -s confirmed \"$dir/decided\" 2>/dev/null\nfi\n")
	b.WriteString(observeText)
	return b.String()
}

// runFiles writes what a run consists of into its directory.
func runFiles(b *strings.Builder, name, toplevel, head, before string) {
	heredoc(b, "$dir/"+name+".sh", head+before+facts.Functions+runText)
	heredoc(b, "$dir/"+name+".end", head+endText)
	heredoc(b, "$dir/"+name+".toplevel", toplevel+"\n")
}

// attachScript follows a run that another deploy has started.
func attachScript(r Run, offset int64) string {
	return common(r) + "if [ -e \"$dir/$name.log\" ]; then say unit \"$unit\"\n" + followText(r, offset) + "fi\n" + observeText
}

// confirmScript, run over a fresh login, tells that the login works, and confirms
// each switch for which the host waits for that, those of earlier deploys too, whose
// time would otherwise come later. It says "back" where one has already decided to
// go back. After a good activation what had failed before it counts no more.
func confirmScript(good bool) string {
	text := ""
	if good {
		text = "rm -f /run/deploy-ssh/failed-before\n"
	}
	return text + `answer=confirmed
for run in /run/deploy-ssh/*/; do
    [ -e "${run}back.sh" ] && [ ! -e "${run}back.result" ] || continue
    ln -s confirmed "${run}decided" 2>/dev/null
    [ "$(readlink "${run}decided")" = back ] && answer=back
done
echo $answer
`
}

// backScript follows the way back.
func backScript(r Run, offset int64) string {
	undo := r
	undo.Toplevel, undo.Deadline, undo.Settle = r.Old, r.Confirm+backPatience, 0
	return common(undo) + fmt.Sprintf("name=%s unit=%s\n", back, r.backUnit()) +
		followText(undo, offset) + observeText
}

// tidyText ends a boot entry's run that went well: earlier runs' records go, ours stays
// until the next good run. The profile must lead to the system, since a gc root goes too.
const tidyText = `    grep -q '^exit-status 0$' "$dir/$name.result" 2>/dev/null && [ "$(readlink -f /nix/var/nix/profiles/system)" = "$toplevel" ] && tidy %s "$toplevel"
`

const observeText = "say observation follows; observe \"$toplevel\";"

func common(r Run) string {
	return facts.Functions + superviseFunctions + header(r)
}

func header(r Run) string {
	return fmt.Sprintf("dir=/run/deploy-ssh/%s name=%s action=%[2]s unit=%s toplevel=%s attempts=%d interval=%s limit=%d no_check=%d fresh=%d\n",
		r.ID, r.Action, r.unit(), quote(r.Toplevel), r.Attempts, seconds(r.Interval), wholeSeconds(r.Limit), number(r.NoCheck), number(r.FreshBaseline))
}

func followText(r Run, offset int64) string {
	text := fmt.Sprintf(`    follow "$dir" "$name" "$unit" %d %d
    # Units are watched by switch-to-configuration for a quarter of a second only.
    # An end with 4 can turn out well too, where only old failures failed again.
    grep -q -e '^exit-status 0$' -e '^exit-status 4$' "$dir/$name.result" 2>/dev/null && sleep %s
`, offset, wholeSeconds(r.Deadline), seconds(r.Settle))
	if r.Action == Boot {
		text += fmt.Sprintf(tidyText, quote(r.ID))
	}
	return text
}

// heredoc writes text to a file on the host. The closing word stands in no text
// of ours, and a run's texts hold nothing of others but a quoted store path.
func heredoc(b *strings.Builder, path, text string) {
	fmt.Fprintf(b, "cat >\"%s\" <<'END_OF_DEPLOY_SSH_FILE' || return 1\n%sEND_OF_DEPLOY_SSH_FILE\n", path, text)
}

// quote makes one word for sh of any text.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// seconds is a duration as sleep(1) of coreutils takes it.
func seconds(d time.Duration) string { return fmt.Sprintf("%g", d.Seconds()) }

// wholeSeconds rounds up, since 0 means no limit.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
