package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// CPU time is less noisy than elapsed time on a machine with other work.

// cpuTime returns the CPU time that this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// clockTick is the unit of /proc/<pid>/stat on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// serverCPU returns the CPU time that this run's sessions have used at the Postgres server. Zero if
// the server is on another machine.
func (l *lab) serverCPU(ctx context.Context) (used time.Duration) {
	rows, err := l.pool.Query(
		ctx,
		"SELECT pid FROM pg_stat_activity WHERE application_name = $1",
		l.id,
	)
	if err != nil {
		return 0
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if rows.Scan(&pid) != nil {
			return 0
		}
		used += processCPU(pid)
	}
	return used
}

// processCPU returns the CPU time of a session of Postgres.
func processCPU(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	p, ok := parseProcess(pid, string(stat))
	if !ok || p.name != "postgres" {
		return 0
	}
	return p.used // a session has no children
}
