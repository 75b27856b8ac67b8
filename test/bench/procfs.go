package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// procfs reads processor times from a directory like /proc of Linux.
type procfs string

const proc procfs = "/proc"

// process is a line of /proc/<pid>/stat.
type process struct {
	pid, parent int
	name        string
	used        time.Duration // with the time of its ended children
}

// kernelThreads is the parent of the kernel's threads. Some of them write for the servers.
const kernelThreads = 2

// usage returns the times of the machine. The processes of roots and their children are the own
// ones. Interrupts count as busy: most kernels charge them to the running process too.
func (dir procfs) usage(roots []int) usage {
	data, err := os.ReadFile(filepath.Join(string(dir), "stat"))
	if err != nil || len(roots) == 0 {
		return usage{}
	}
	all, busy, ok := machineTimes(string(data))
	if !ok {
		return usage{}
	}
	return usage{all: all, busy: busy, own: treeTime(dir.processes(), roots), known: true}
}

// machineTimes reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq,
// steal. The times of guests, which follow, are part of user and nice.
func machineTimes(stat string) (all, busy time.Duration, ok bool) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, false
	}
	for i, field := range fields[1:9] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, false
		}
		took := time.Duration(ticks) * clockTick
		all += took
		if i != 3 && i != 4 { // idle and iowait
			busy += took
		}
	}
	return all, busy, true
}

// treeTime sums the times of the roots, their children and the kernel's threads.
func treeTime(list []process, roots []int) (sum time.Duration) {
	own := map[int]bool{kernelThreads: true}
	for _, pid := range roots {
		own[pid] = true
	}
	for grown := true; grown; {
		grown = false
		for _, p := range list {
			if own[p.parent] && !own[p.pid] {
				own[p.pid], grown = true, true
			}
		}
	}
	for _, p := range list {
		if own[p.pid] {
			sum += p.used
		}
	}
	return sum
}

// processes lists the living processes.
func (dir procfs) processes() (list []process) {
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(string(dir), e.Name(), "stat"))
		if err != nil {
			continue // the process has ended
		}
		if p, ok := parseProcess(pid, string(data)); ok {
			list = append(list, p)
		}
	}
	return list
}

// parseProcess reads /proc/<pid>/stat. The name, in parentheses, may have any character.
func parseProcess(pid int, stat string) (process, bool) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return process{}, false
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 15 {
		return process{}, false
	}
	p := process{pid: pid, name: stat[open+1 : end]}
	p.parent, _ = strconv.Atoi(fields[1])
	for _, field := range fields[11:15] { // user, system, and both of the ended children
		ticks, _ := strconv.ParseInt(field, 10, 64)
		p.used += time.Duration(ticks) * clockTick
	}
	return p, true
}

// listeners returns the processes that listen on a TCP port.
func (dir procfs) listeners(port int, list []process) (pids []int) {
	sockets := make(map[string]bool)
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(filepath.Join(string(dir), "net", table))
		if err == nil {
			listening(string(data), port, sockets)
		}
	}
	for _, p := range list {
		if len(sockets) > 0 && dir.holds(p.pid, sockets) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// listening adds the names of the sockets that listen on port.
func listening(table string, port int, sockets map[string]bool) {
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) > 9 && strings.HasSuffix(fields[1], suffix) && fields[3] == "0A" {
			sockets["socket:["+fields[9]+"]"] = true
		}
	}
}

// holds reports whether the process has one of the sockets.
func (dir procfs) holds(pid int, sockets map[string]bool) bool {
	open := filepath.Join(string(dir), strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(open)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		target, err := os.Readlink(filepath.Join(open, e.Name()))
		return err == nil && sockets[target]
	})
}
