package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
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

func processCPU(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || !strings.Contains(string(stat), "(postgres)") {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * clockTick
}
