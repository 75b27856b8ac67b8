package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/idemtype"
)

// noted is an outcome that is added to a history.
type noted struct {
	past    attempts
	o       outcome
	outage  time.Duration
	answers bool
}

// history is the part of a history that outcomes change.
type wantHistory struct {
	outages                     int
	down, first, last, blocking time.Time
}

func (n *noted) kept() wantHistory {
	h := n.past
	return wantHistory{h.outages, h.downSince, h.firstFailure, h.lastFailure, h.blockedSince}
}

// failed is the history after a failure of the event: the clocks of the first failure start once.
func (n *noted) failed() wantHistory {
	w := n.kept()
	w.last = noon
	if w.first.IsZero() {
		w.first = noon
	}
	if w.blocking.IsZero() {
		w.blocking = noon
	}
	return w
}

func (n *noted) down() bool { return n.o.meaning == unavailable && !n.answers }

func (n *noted) reported() bool { return n.o.meaning == unavailable && n.o.marked }

func (w wantHistory) outage(n int, since time.Time) wantHistory {
	w.outages, w.down = n, since
	return w
}

// noteTable has the additions of an outcome to the history of its event, and so the time from which
// an outage counts as a failure.
var noteTable = decisionTable[noted, wantHistory]{
	{
		"success", func(n *noted) bool { return n.o.meaning == succeeded },
		func(n *noted) wantHistory { return n.kept().outage(0, time.Time{}) },
		absent("a success ends the history"),
	},
	{
		"no outage", func(n *noted) bool { return n.o.meaning != unavailable },
		func(n *noted) wantHistory { return n.failed().outage(0, time.Time{}) },
		absent("another failure ends an outage; that follows from its name"),
	},
	{
		"store down", (*noted).down,
		func(n *noted) wantHistory { return n.kept().outage(min(n.past.outages, 5), time.Time{}) },
		line("outage", "any", "The store does not answer a probe", "an outage, without an end"),
	},
	{
		"reported, without a limit", func(n *noted) bool { return n.reported() && n.outage == idemtype.Forever && !n.past.downSince.IsZero() },
		(*noted).kept,
		line("outage", "`idem.Unavailable`", "`Outage` is `Forever`", "an outage, without an end"),
	},
	{
		"reported, begins", func(n *noted) bool { return n.reported() && n.past.downSince.IsZero() },
		func(n *noted) wantHistory { return n.kept().outage(n.past.outages, noon) },
		sameAs("reported"),
	},
	{
		"reported", func(n *noted) bool {
			return n.reported() && n.outage != idemtype.Forever && noon.Before(n.past.downSince.Add(n.outage))
		},
		(*noted).kept,
		line("outage", "`idem.Unavailable`", "The store answers, for less than `Outage` (15 min)", "an outage"),
	},
	{
		"reported for too long", (*noted).reported,
		(*noted).failed,
		line("outage", "`idem.Unavailable`", "The store answers, for `Outage` or longer", "a failure"),
	},
	{
		"of the store", func(n *noted) bool { return n.past.outages < 5 },
		func(n *noted) wantHistory { return n.kept().outage(n.past.outages+1, n.past.downSince) },
		line("outage", "of the store during this event (`OnTx`)", "The store answers, up to 5 times in a row", "an outage"),
	},
	{
		"of the store, too often", always[noted],
		func(n *noted) wantHistory { return n.failed().outage(n.past.outages+1, n.past.downSince) },
		line("outage", "of the store during this event (`OnTx`)", "The store answers, for the 6th time in a row", "a failure"),
	},
}

// walkNoted yields every outcome with every history of outages and failures.
func walkNoted(yield func(*noted)) {
	clock := []time.Time{{}, noon.Add(-time.Minute)}
	downs := []time.Time{{}, noon, noon.Add(-time.Minute), noon.Add(-15*time.Minute + 1), noon.Add(-15 * time.Minute), noon.Add(-time.Hour)}
	for _, o := range ends() {
		if o.refused {
			continue
		}
		for _, down := range downs {
			for outages := range 8 {
				for bits := range 1 << 5 {
					n := noted{o: o, answers: bits&1 != 0, outage: 15 * time.Minute}
					if bits&2 != 0 {
						n.outage = idemtype.Forever
					}
					n.past = attempts{
						attempt: 3, earlier: 1, failures: 2, outages: outages, downSince: down,
						firstFailure: clock[bits>>2&1], lastFailure: clock[bits>>3&1], blockedSince: clock[bits>>4&1],
					}
					yield(&n)
				}
			}
		}
	}
}

func TestDecide_NoteTable(t *testing.T) {
	t.Parallel()
	noteTable.check(t, walkNoted, func(n *noted, want wantHistory) string {
		before := n.past
		h := n.past.note(n.o, idemtype.RetryPolicy{Outage: n.outage}, noon, n.answers)
		got := wantHistory{h.outages, h.downSince, h.firstFailure, h.lastFailure, h.blockedSince}
		if got != want {
			return fmt.Sprintf("noted %+v, wanted %+v", got, want)
		}
		h.outages, h.downSince, h.firstFailure, h.lastFailure, h.blockedSince =
			before.outages, before.downSince, before.firstFailure, before.lastFailure, before.blockedSince
		if n.past != before || h != before {
			return "another part of the history has changed"
		}
		return ""
	})
}
