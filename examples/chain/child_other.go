//go:build !linux

package main

import "syscall"

// child is how a process is started: nothing ends it when this one is killed.
func child() *syscall.SysProcAttr { return nil }
