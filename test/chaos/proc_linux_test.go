package chaos

import "syscall"

// groupOfItsOwn puts a child into a process group of its own, so that it is killed with all its children and does not
// get the terminal's Ctrl-C, and tells the kernel to kill it when the tests end, however they do.
func groupOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
