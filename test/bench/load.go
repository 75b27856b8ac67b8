package main

import (
	"fmt"
	"time"
)

// Other work on the machine slows a row down. The report prints its share beside the row.

// usage has processor times since the start of the machine, over all processors.
type usage struct {
	all   time.Duration // with idle time
	busy  time.Duration // without idle time, but with the time that a hypervisor took
	own   time.Duration // of the bench, its servers and the kernel's threads
	known bool
}

// load is the share of the machine that other processes took, in per cent.
type load struct {
	percent float64
	known   bool // false on systems without /proc
}

// until returns the load between two moments.
func (u usage) until(end usage) load {
	all := end.all - u.all
	if !u.known || !end.known || all <= 0 {
		return load{}
	}
	foreign := (end.busy - u.busy) - (end.own - u.own)
	// The clocks of the machine and of its processes differ by a few ticks.
	share := min(1, max(0, foreign.Seconds()/all.Seconds()))
	return load{percent: 100 * share, known: true}
}

const (
	loadLimit  = 10.0 // per cent of the machine
	maxRepeats = 2    // of a row in a run
)

// disturbed reports whether other processes took too much of the machine. An unknown load does not
// count as too much.
func (l load) disturbed() bool { return l.known && l.percent > loadLimit }

// repeats reports whether a round of a row is measured again. The row has been repeated so many
// times in this run.
func (l load) repeats(repeated int, timeLeft bool) bool {
	return l.disturbed() && repeated < maxRepeats && timeLeft
}

// mostLoad returns the largest known load, and the number of disturbed samples.
func mostLoad(samples []sample) (most load, disturbed int) {
	for _, s := range samples {
		if s.load.known && (!most.known || s.load.percent > most.percent) {
			most = s.load
		}
		if s.load.disturbed() {
			disturbed++
		}
	}
	return most, disturbed
}

// loadText has the largest load of a row's samples, its repeats, and whether a disturbed run
// counts.
func (e entry) loadText() string {
	if e.Load == nil {
		return "unknown"
	}
	text := fmt.Sprintf("%.0f %%", *e.Load)
	if e.Repeated > 0 {
		text += fmt.Sprintf(", repeated %d x", e.Repeated)
	}
	if e.Disturbed > 0 {
		text += fmt.Sprintf(", **disturbed: %d of %d**", e.Disturbed, e.Samples)
	}
	return text
}
