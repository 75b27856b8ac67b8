package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// document is bench.json. The file has the machine, the time and the source of its figures.
type document struct {
	Date    string      `json:"date"` // of the beginning, UTC, RFC 3339
	Commit  string      `json:"commit"`
	Dirty   bool        `json:"dirty"` // the tree had changes that no commit has
	Machine machineInfo `json:"machine"`
	Rounds  int         `json:"rounds"` // without second attempts
	Rows    []entry     `json:"rows"`
	Ratios  []verdict   `json:"ratios"` // the wanted ones

	Latency *latencyResult `json:"latency,omitempty"`
	Memory  []memoryResult `json:"memory,omitempty"`
}

// machineInfo is the machine in the document.
type machineInfo struct {
	Cores    int     `json:"cores"`
	CPU      string  `json:"cpu"`
	Kernel   string  `json:"kernel"`
	Go       string  `json:"go"`
	Kafka    string  `json:"kafka"`
	Postgres string  `json:"postgres"`
	Redis    string  `json:"redis"`
	Fsync    float64 `json:"fsync_us"`  // median, of 8 kB
	Commit   float64 `json:"commit_us"` // median, of the smallest change in Postgres
}

// source is the state of the repository.
type source struct {
	commit string // empty without a repository
	dirty  bool
}

// sourceOf returns the state of the repository that has the directory.
func sourceOf(ctx context.Context, dir string) (s source) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return source{}
	}
	changes, err := git("status", "--porcelain")
	return source{commit: commit, dirty: err != nil || changes != ""}
}

// document returns bench.json.
func (r *report) document(list []entry) document {
	if list == nil {
		list = []entry{}
	}
	m := r.machine
	return document{
		Date:   r.bench.began.UTC().Format(time.RFC3339),
		Commit: r.source.commit,
		Dirty:  r.source.dirty,
		Machine: machineInfo{
			Cores: m.cores, CPU: m.cpu, Kernel: m.kernel, Go: m.goVersion,
			Kafka: m.kafka, Postgres: m.postgres, Redis: m.redis,
			Fsync: m.fsync.Seconds() * 1e6, Commit: m.commit.Seconds() * 1e6,
		},
		Rounds: r.rounds,
		Rows:   list,
		Ratios: r.bench.results.verdicts(),

		Latency: r.latency,
		Memory:  r.memory,
	}
}

// caption names the machine and the day below the chart.
func (r *report) caption() string {
	return fmt.Sprintf(
		"%s, %d cores, %s; %s",
		r.machine.cpu, r.machine.cores, r.machine.goVersion, r.bench.began.UTC().Format(time.DateOnly),
	)
}

// roundsText describes how often the rows ran.
func (r *report) roundsText() string {
	if r.rounds > 1 && !r.bench.plan.every {
		return fmt.Sprintf("%d, and 1 of the rows without a wanted ratio", r.rounds)
	}
	return fmt.Sprint(r.rounds)
}
