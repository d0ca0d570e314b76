// Package tooltest gives tests the machine's programs that they run.
// A test whose program is missing is skipped, or fails when the environment
// has RIG=required: there, everything is to be tried.
package tooltest

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

func required() bool { return os.Getenv("RIG") == "required" }

// Need skips or fails the test when one of the programs isn't on the PATH.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		_, err := exec.LookPath(program)
		switch {
		case err == nil:
		case required():
			t.Fatalf("RIG=required: %v", err)
		default:
			t.Skipf("this machine lacks a program: %v", err)
		}
	}
}

// Shells returns the POSIX shells of this machine, of sh, dash, bash and mksh.
// Those passed over are in the test's log. With RIG=required, dash and bash
// must be there.
func Shells(t testing.TB) []string {
	t.Helper()
	var found []string
	for _, shell := range []string{"sh", "dash", "bash", "mksh"} {
		_, err := exec.LookPath(shell)
		switch {
		case err == nil:
			found = append(found, shell)
		case required() && slices.Contains([]string{"dash", "bash"}, shell):
			t.Fatalf("RIG=required: %v", err)
		default:
			t.Logf("a shell is passed over: %v", err)
		}
	}
	return found
}
