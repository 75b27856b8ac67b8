package drills

import "syscall"

// endWithTests lets the kernel kill a server when the tests end, however they do.
func endWithTests(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
