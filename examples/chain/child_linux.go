package main

import "syscall"

// child puts a process into a group of its own, so that Ctrl-C is for this one alone, and lets it be killed when this one ends,
// however it does.
func child() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
