package child

import "syscall"

// sysProcAttr makes a child lead a session of its own and end when this process
// dies in a way that leaves it no time to say so, as by SIGKILL. Linux sends the
// signal when the starting thread ends; the Go runtime keeps its threads for as
// long as the process lives, but for those that a goroutine has locked itself to
// and this program has none of these. See prctl(2), PR_SET_PDEATHSIG.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
}
