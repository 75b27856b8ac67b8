package chaos

import "syscall"

// groupOfItsOwn puts a child into a process group of its own, so that it is killed with all its
// children and does not get the terminal's Ctrl-C. The kernel kills the child at any end of the
// tests.
func groupOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
