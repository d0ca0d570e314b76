package ssh

// Elevation is how a login user who is not root becomes root: "sudo" or "doas",
// without a password; empty when there is no need. It wraps the remote command
// alone, whose standard input stays usable, so scripts know nothing of it.
type Elevation string

// elevatedPath finds the setuid programs where NixOS has them; the login shell's
// PATH may name neither.
const elevatedPath = "PATH=/run/wrappers/bin:/run/current-system/sw/bin:/usr/bin:/bin"

// prefix stands before a program and its arguments. -n asks nobody for a password.
func (e Elevation) prefix() string {
	if e == "" {
		return ""
	}
	return "env " + elevatedPath + " " + string(e) + " -n "
}

// command is the remote command that runs a program in the place of the login
// shell. Every login shell reads it alike: bash, dash, fish, zsh, tcsh, mksh.
func (e Elevation) command(program string) string {
	if e == "" {
		return "exec " + program
	}
	return "exec /usr/bin/" + e.prefix() + program
}
