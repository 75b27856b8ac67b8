package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

func TestProgressText(t *testing.T) {
	for _, c := range []struct {
		n, total int64
		took     time.Duration
		want     string
	}{
		{0, 0, 0, "0 records"},
		{0, 100, time.Minute, "0 of 100 records (0 %)"},
		{10, 100, time.Millisecond, "10 of 100 records (10 %)"},
		{50, 200, 10 * time.Second, "50 of 200 records (25 %), 5 a second, about 30s left"},
		{200, 200, 10 * time.Second, "200 of 200 records (100 %), 20 a second"},
		{300, 200, 10 * time.Second, "300 of 200 records (100 %), 30 a second"},
		{1234, 0, 100 * time.Second, "1234 records, 12.3 a second"},
	} {
		require.Equal(t, c.want, progressText("records", c.n, c.total, false, c.took))
	}
	require.Equal(t, "50 of about 200 records (25 %), 5 a second, about 30s left",
		progressText("records", 50, 200, true, 10*time.Second))
	require.Equal(t, "300 records, 30 a second", progressText("records", 300, 200, true, 10*time.Second))
}

// A log gets a line every few seconds, a terminal one line that changes and goes away.
func TestProgress(t *testing.T) {
	for terminal, want := range map[bool]string{
		false: "idem: 60 of 100 records (60 %), 10 a second, about 4s left, good\n",
		true: "\r\x1b[K20 of 100 records (20 %), 10 a second, about 8s left, good" +
			"\r\x1b[K40 of 100 records (40 %), 10 a second, about 6s left, good" +
			"\r\x1b[K60 of 100 records (60 %), 10 a second, about 4s left, good\r\x1b[K",
	} {
		var out bytes.Buffer
		now := time.Now()
		p := newProgress(&out, terminal, "records", 100, func() time.Time { return now })
		for range 3 {
			now = now.Add(2 * time.Second)
			p.add(20, func() string { return "good" })
		}
		p.end()
		p.end()
		require.Equal(t, want, out.String())
	}
	require.False(t, writesToTerminal(io.Discard))
}

// ticking is a clock that goes on by a line of progress at each look.
func ticking() func() time.Time {
	now := time.Now()
	return func() time.Time {
		now = now.Add(progressEvery)
		return now
	}
}

// The survey of a dead-letter topic and a rewind know how much there is to read.
func TestProgressOfVerbs(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.events("e", 3)...)
	w.fill("orders", 10, time.Hour)
	w.commit("orders", 7)
	for args, says := range map[string]string{
		"rewind --to 2h --dry-run":                           "idem: 1 of 1 partitions (100 %)",
		"dlq plan -t orders --store " + inMemory:             "idem: 2 of 3 records surveyed (66 %), 0.2 a second, about 5s left",
		"dlq plan -t orders --at 0/0 --store " + inMemory:    "idem: 1 of 1 records surveyed (100 %)",
		"dlq purge -t orders --dry-run --store " + inMemory:  "idem: 3 of 3 records surveyed (100 %)",
		"dlq replay -t orders --dry-run --store " + inMemory: "idem: 3 of 3 records surveyed (100 %)",
	} {
		var stdout, stderr bytes.Buffer
		a := &app{
			stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: ticking(),
			known: map[string]*openedStore{inMemory: {name: "memory", store: w.store}},
		}
		all := append(strings.Fields(args), "-G", "g", "--brokers", w.brokers[0])
		require.Equal(t, exitOK, a.run(t.Context(), all), stderr.String())
		require.Contains(t, stderr.String(), says)
	}
}

// The planner of Postgres estimates how many rows an import will read.
func TestProgressOfImport(t *testing.T) {
	url := testenv.Postgres(t)
	var stdout, stderr bytes.Buffer
	_, known := memory()
	a := &app{
		stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, known: known, now: ticking(),
	}
	code := a.run(t.Context(), withoutPasswords(t, []string{
		"import", "-G", "g", "--store", inMemory, "--type", "paid", "--dry-run", "--from-url", url,
		"--from-table", "SELECT n AS event_id FROM generate_series(1, 200) n",
	}))
	require.Equal(t, exitOK, code, stderr.String())
	require.Contains(t, stderr.String(), "idem: 100 of about 200 records read (50 %), 0.2 a second")
}
