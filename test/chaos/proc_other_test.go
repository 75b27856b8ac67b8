//go:build !linux

package chaos

import "syscall"

// groupOfItsOwn puts a child into a process group of its own. There is no way to make it end with
// the tests.
func groupOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
