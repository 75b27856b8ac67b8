package main

import "syscall"

// child puts a process into a group of its own, so that Ctrl-C reaches only this process. The
// kernel kills the child when this process ends in any way.
func child() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
