package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// verdict is the result of the owning tests.
type verdict string

const (
	refuted  verdict = "refuted"  // a test fails
	timedOut verdict = "time-out" // a test does not end: it fails without a reason
	survivor verdict = "survivor" // all tests pass
	invalid  verdict = "invalid"  // the code does not compile, or no test ran
)

// result is the end of one run of tests.
type result struct {
	verdict verdict
	failed  []string // the tests that failed first
	output  string   // the end of the output
	took    time.Duration
}

// runner runs tests with an overlay.
type runner struct {
	root    string
	timeout time.Duration
}

// overlay is the format of go build -overlay.
type overlay struct{ Replace map[string]string }

// mutant runs the owning tests of m with the fault in place.
func (r *runner) mutant(ctx context.Context, m *mutant) (result, error) {
	text, err := m.mutated(r.root)
	if err != nil {
		return result{}, err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder for temporary files
	copied := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
		return result{}, err
	}
	list, err := json.Marshal(overlay{map[string]string{filepath.Join(r.root, m.file): copied}})
	if err != nil {
		return result{}, err
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, list, 0o600); err != nil {
		return result{}, err
	}
	return r.test(ctx, &m.tests, "-overlay", path)
}

// test runs tests, within the time-out. The tests stop at the first failure.
func (r *runner) test(ctx context.Context, o *owner, flags ...string) (result, error) {
	// The Go tool compiles first, and gets time for that too.
	ctx, cancel := context.WithTimeout(ctx, r.timeout+3*time.Minute)
	defer cancel()
	args := slices.Concat([]string{
		"test", "-json", "-count=1", "-vet=off", "-failfast", "-timeout", r.timeout.String(),
		"-run", o.run,
	}, flags, []string{"."})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(r.root, o.pkg)
	cmd.Env = append(os.Environ(), "GOWORK=off", "IDEM_REQUIRE_SERVICES=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	began := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		return result{}, fmt.Errorf("go test: %w", context.Cause(ctx))
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	res := judge(out.Bytes())
	res.took = time.Since(began)
	res.output += errs.String()
	return res, nil
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output, FailedBuild string
}

// judge reads the output of go test -json.
func judge(out []byte) (res result) {
	var passed, failed, broken bool
	var text []byte
	var running []string // tests that have begun and not ended: one of them panicked
	for line := range bytes.Lines(out) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			text = append(text, line...)
			continue
		}
		text = append(text, e.Output...)
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			running = slices.DeleteFunc(running, func(name string) bool { return name == e.Test })
		}
		switch e.Action {
		case "run":
			running = append(running, e.Test)
		case "build-fail":
			broken = true
		case "pass":
			passed = passed || e.Test != ""
		case "fail":
			broken = broken || e.FailedBuild != ""
			failed = true
			if e.Test != "" {
				res.failed = append(res.failed, e.Test)
			}
		}
	}
	late := bytes.Contains(text, []byte("panic: test timed out"))
	switch {
	case len(running) == 0:
	case late:
		res.failed = []string{running[len(running)-1] + " (time-out)"}
	case len(res.failed) == 0:
		res.failed = []string{running[len(running)-1] + " (panic)"}
	}
	switch {
	case broken || !failed && !passed: // a compile error refutes no fault
		res.verdict = invalid
	case failed && late:
		res.verdict = timedOut
	case failed:
		res.verdict = refuted
	default:
		res.verdict = survivor
	}
	res.output = string(text[max(0, len(text)-4000):])
	return res
}
