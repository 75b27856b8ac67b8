package main

import (
	"slices"
	"strings"
	"time"
)

// plan bounds the time of a run. `make bench` takes at most 15 minutes, with the compiler, the
// start of the servers, latency, delay and second attempts.
type plan struct {
	rounds int
	every  bool          // every row runs in every round, or rows without a wanted ratio run once
	limit  time.Duration // of the rows; 0: no limit
}

const (
	fullLimit  = 11 * time.Minute
	quickLimit = 100 * time.Second
)

// newPlan returns the plan for the options. Named rows or rounds all run, and -large has no limit.
func newPlan(o *options) plan {
	chosen := o.rounds > 0 || o.names != ""
	switch {
	case o.quick:
		return plan{rounds: max(1, o.rounds), every: true, limit: quickLimit}
	case chosen && o.rounds > 0:
		return plan{rounds: o.rounds, every: true}
	case chosen:
		return plan{rounds: 3, every: true}
	case o.large:
		return plan{rounds: 3}
	default:
		return plan{rounds: 3, limit: fullLimit}
	}
}

// begins reports whether a round begins, counted from 0. Rows with a wanted ratio took last in the
// round before. The first round always begins, and so do all rounds without a limit.
func (p plan) begins(round int, elapsed, last time.Duration) bool {
	return round < p.rounds && (round == 0 || p.timeLeft(elapsed+last))
}

// timeLeft reports whether the rows may go on.
func (p plan) timeLeft(elapsed time.Duration) bool { return p.limit == 0 || elapsed <= p.limit }

// runs reports whether a row runs in a round.
func (p plan) runs(name string, round int) bool { return p.every || round == 0 || compared(name) }

// compared reports whether a wanted ratio needs the row in every round.
func compared(name string) bool {
	return slices.ContainsFunc(wanted, func(w ratio) bool {
		return !w.once && (w.row == name || w.base == name)
	})
}

// sizeWatch returns for how long the table of the outbox is watched: not at all, unless the size is
// among the rows or a time is given.
func (o *options) sizeWatch() time.Duration {
	if o.sizeTakes > 0 {
		return o.sizeTakes
	}
	if slices.Contains(strings.Split(o.names, ","), nameSize) {
		return 10 * time.Minute
	}
	return 0
}
