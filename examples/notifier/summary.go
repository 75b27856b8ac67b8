package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// summary is the result of the demonstration. All figures are measured. Only lost is derived:
// written events that were neither known, sent nor dead-lettered.
type summary struct {
	events       int // written, without copies
	poison       int // written records that cannot be handled
	known        int // events that an earlier run handled, asked of the store at the beginning
	givenUp      int // poison that an earlier run gave up, asked of the store at the beginning
	deliveries   int // counted by the workers
	sent         int // different events that the provider has
	duplicates   int // skipped deliveries, counted by the workers
	deadLettered int // read from the dead-letter topic
	lost         int
	repeats      int // notifications that the provider has more than once, or again
	mixups       int // repeats under another idempotency key
	kills        int
	lanes        int // partitions of the killed worker: each has at most one notification in flight
	hung         bool
	took         time.Duration
}

// problems lists the violations of the guarantees.
func (s summary) problems() []string {
	var list []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	add(s.hung, "not all was handled in time")
	add(s.lost > 0, "%d lost", s.lost)
	add(s.repeats > s.window(), "%d repeats, more than the %d that a kill explains", s.repeats,
		s.window())
	add(s.mixups > 0, "%d repeats under another idempotency key", s.mixups)
	// The Kafka of each run is new. A record may lie where the record lay that an earlier run
	// dead-lettered, and then is no new copy for the store.
	add(s.deadLettered > s.poison || s.deadLettered < s.poison-s.givenUp,
		"%d dead letters for %d records that cannot be handled", s.deadLettered, s.poison)
	return list
}

// window returns the number of allowed repeats: one in flight in each lane at each kill.
func (s summary) window() int { return s.kills * s.lanes }

// print writes the table and the verdict.
func (s summary) print(out io.Writer) {
	row := func(name string, n int, remark string) {
		line := fmt.Sprintf("  %-20s %6d   %s", name, n, remark)
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
	fmt.Fprintln(out)
	row("events", s.events, fmt.Sprintf(
		"written, with copies and %d records that cannot be handled beside them", s.poison))
	row("known before", s.known, "handled by an earlier run, according to the store")
	row("deliveries", s.deliveries, "counted by the workers, redelivery after the kill included")
	row("sent", s.sent, "different events that the provider has received")
	row("duplicates skipped", s.duplicates, "counted by the workers")
	row("dead-lettered", s.deadLettered, "read back from the dead-letter topic")
	row("lost", s.lost, "neither known, sent nor dead-lettered")
	row("repeats", s.repeats, fmt.Sprintf(
		"inside the declared window: at most %d (%d kill x %d lanes, one in flight in each)",
		s.window(), s.kills, s.lanes))
	fmt.Fprintln(out)
	if list := s.problems(); len(list) > 0 {
		fmt.Fprintf(out, "FAILED after %.1fs: %s\n", s.took.Seconds(), strings.Join(list, "; "))
		return
	}
	if s.known == s.events {
		fmt.Fprintf(out, "OK in %.1fs: an earlier run had handled all %d events, "+
			"and none went out again.\n", s.took.Seconds(), s.events)
		return
	}
	fmt.Fprintf(out,
		"OK in %.1fs: no event was lost, and none went out twice beyond the declared window.\n",
		s.took.Seconds())
}
