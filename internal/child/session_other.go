//go:build !linux

package child

import "syscall"

// sysProcAttr makes a child lead a session of its own.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
