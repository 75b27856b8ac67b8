package models

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	megabytes = 1500            // of memory for one search
	steps     = 100_000         // of the longest path
	limit     = 5 * time.Minute // of one program; the longest search takes some seconds
)

// sound are the models of the protocols. Each of them must hold in all of its states.
var sound = []struct {
	name, model string
	faults      int // at most, of all kinds together; one more with IDEM_SOAK
	defines     []string
}{
	{"rerun uncertain", "claim", 3, nil},
	{"at most once", "claim", 3, []string{"AT_MOST_ONCE"}},
	{"transaction", "ontx", 6, nil},
	{"relay", "relay", 3, nil},
}

// broken are variants with one fault. In each of them spin must find the promise that fails.
var broken = []struct {
	variant, model, promise string
	defines                 []string
}{
	{"COMMIT_FIRST", "claim", "event_lost", nil},
	{"BUSY_IS_DUPLICATE", "claim", "event_lost", nil},
	{"DEAD_BEFORE_SENT", "claim", "event_lost", nil},
	{"NO_TOKEN", "claim", "stale_call_accepted", nil},
	{"STALE_RENEWAL", "claim", "two_holders", nil},
	{"NO_CHECK_OF_LEASE", "claim", "effect_repeated", nil},
	{"KEY_OF_RECORD", "claim", "charged_twice", nil},
	{"NO_DOUBT", "claim", "effect_beyond_at_most_once", []string{"AT_MOST_ONCE"}},
	{"CLAIM_COMMITTED_FIRST", "ontx", "event_lost", nil},
	{"UNKNOWN_IS_COMMITTED", "ontx", "event_lost", nil},
	{"RECORD_AFTER_COMMIT", "ontx", "effect_repeated", nil},
	{"NO_EPOCH", "relay", "settled_without_the_shard", nil},
	{"SHARED_SHARD", "relay", "out_of_order", nil},
	{"GOES_ON_AFTER_FAILURE", "relay", "out_of_order", nil},
	{"SEQUENCE_ALONE", "relay", "out_of_order", nil},
	{"SETTLED_UNACKNOWLEDGED", "relay", "row_lost", nil},
}

// T-01, O-01, O-04, O-07, O-08, O-09, O-13, P-11 and rules 5, 6, 9,
// 13, 22 and 32: no order of steps and faults breaks a promise.
func TestModels(t *testing.T) {
	for _, m := range sound {
		t.Run(m.name, func(t *testing.T) {
			faults := m.faults
			switch {
			case os.Getenv("IDEM_SOAK") != "":
				faults++
			case testing.Short():
				faults--
			}
			s := newSearch(t, m.model, faults, m.defines)
			out := s.run(t)
			if failed := failedPromise(out); failed != "" {
				t.Fatalf("the promise %s fails:\n%s", failed, s.trail())
			}
			requireWhole(t, out)
			t.Logf("%s, at most %d faults: %s", m.model, faults, figures(out))
		})
	}
}

func TestBrokenModels(t *testing.T) {
	for _, b := range broken {
		t.Run(b.variant, func(t *testing.T) {
			s := newSearch(t, b.model, 2, append([]string{"BROKEN_" + b.variant}, b.defines...))
			out := s.run(t)
			assert.Equal(t, b.promise, failedPromise(out), "%s", out)
			t.Logf("%s: %s fails; %s", b.model, b.promise, figures(out))
		})
	}
}

// Each variant of a model is in the table.
func TestVariantsAreChecked(t *testing.T) {
	known := map[string]bool{}
	for _, b := range broken {
		known[b.model+" "+b.variant] = true
	}
	found := map[string]bool{}
	for _, model := range []string{"claim", "ontx", "relay"} {
		text, err := os.ReadFile(model + ".pml")
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\bBROKEN_([A-Z_]+[A-Z])\b`).FindAllSubmatch(text, -1) {
			found[model+" "+string(m[1])] = true
		}
	}
	require.Equal(t, known, found)
}

// An outcome of a search that did not see every state is no proof.
func TestTruncatedSearchIsNoProof(t *testing.T) {
	s := newSearch(t, "ontx", 2, nil)
	require.NoError(t, whole(s.run(t)))
	s.depth = 20
	require.ErrorContains(t, whole(s.run(t)), "max search depth too small")
}

// needed returns the path of a program. Without it the test is skipped, or fails if
// IDEM_REQUIRE_MODELS is set.
func needed(t *testing.T, programs ...string) string {
	t.Helper()
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const how = "%s is missing: install it (Debian, Ubuntu: apt-get install spin gcc libc6-dev)"
	if os.Getenv("IDEM_REQUIRE_MODELS") != "" {
		t.Fatalf(how, programs[0])
	}
	t.Skipf(how, programs[0])
	return ""
}

// search is one verifier, which spin generates from a model.
type search struct {
	t           *testing.T
	spin        string
	dir, model  string
	definitions []string // for the preprocessor
	depth       int
}

func newSearch(t *testing.T, model string, faults int, defines []string) *search {
	t.Helper()
	s := &search{
		t: t, spin: needed(t, "spin"), dir: t.TempDir(), model: model + ".pml", depth: steps,
		definitions: []string{"-DFAULTS=" + strconv.Itoa(faults)},
	}
	compiler := needed(t, "gcc", "cc")
	for _, d := range defines {
		s.definitions = append(s.definitions, "-D"+d)
	}
	text, err := os.ReadFile(s.model)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, s.model), text, 0o600))
	out, err := s.command(s.spin, append(s.definitions, "-a", s.model)...)
	require.NoError(t, err, "%s", out)
	// Without optimization: to compile takes longer than to search.
	out, err = s.command(compiler, "-O0", "-w", "-DSAFETY", "-DMEMLIM="+strconv.Itoa(megabytes),
		"-o", "pan", "pan.c")
	require.NoError(t, err, "%s", out)
	return s
}

// run searches all states and returns the report.
func (s *search) run(t *testing.T) string {
	t.Helper()
	out, err := s.command(filepath.Join(s.dir, "pan"), "-m"+strconv.Itoa(s.depth))
	require.NoError(t, err, "%s", out)
	return out
}

// trail returns the steps to the error that was found.
func (s *search) trail() string {
	out, _ := s.command(s.spin, append(s.definitions, "-t", "-p", "-g", "-l", s.model)...)
	return out
}

func (s *search) command(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // a fixed set of programs
	cmd.Dir, cmd.WaitDelay = s.dir, 10*time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var violated = regexp.MustCompile(`assertion violated\s+!\((\w+)\)`)

// failedPromise returns the name of the promise that a report finds broken, or "".
func failedPromise(report string) string {
	if m := violated.FindStringSubmatch(report); m != nil {
		return m[1]
	}
	return ""
}

// incomplete are texts of reports about searches that ended early, or left states out.
var incomplete = []string{
	"max search depth too small", "out of memory", "Search not completed", "aborting",
	"Bit statespace", "truncated", "pan: error",
}

type reportError string

func (e reportError) Error() string { return string(e) }

// whole returns nil if a report is of a search of all states that found no error.
func whole(report string) error {
	for _, text := range incomplete {
		if strings.Contains(report, text) {
			return reportError(text)
		}
	}
	if !strings.Contains(report, "Full statespace search for") ||
		!strings.Contains(report, "errors: 0\n") {
		return reportError("no report of a full search without errors")
	}
	return nil
}

var unreached = regexp.MustCompile(`\((\d+) of (\d+) states\)`)

// requireWhole also requires that the search has reached nearly all steps of the model. The steps
// after a broken promise are among the others.
func requireWhole(t *testing.T, report string) {
	t.Helper()
	require.NoError(t, whole(report), "%s", report)
	missed, all := 0, 0
	for _, m := range unreached.FindAllStringSubmatch(report, -1) {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		of, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		missed, all = missed+n, all+of
	}
	require.Positive(t, all)
	require.LessOrEqual(t, missed*10, all, "steps that were never reached:\n%s", report)
}

var (
	stored = regexp.MustCompile(`(\d+) states, stored`)
	depth  = regexp.MustCompile(`depth reached (\d+)`)
	memory = regexp.MustCompile(`([\d.]+)\s+total actual memory`)
	took   = regexp.MustCompile(`elapsed time ([\d.e+-]+) seconds`)
)

// figures returns the size of a search.
func figures(report string) string {
	of := func(r *regexp.Regexp) string {
		if m := r.FindStringSubmatch(report); m != nil {
			return m[1]
		}
		return "?"
	}
	return of(stored) + " states, depth " + of(depth) + ", " +
		of(memory) + " MB, " + of(took) + " s"
}
