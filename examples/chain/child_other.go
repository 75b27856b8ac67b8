//go:build !linux

package main

import "syscall"

// child starts a process that survives when this process is killed.
func child() *syscall.SysProcAttr { return nil }
