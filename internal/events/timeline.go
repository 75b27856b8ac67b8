package events

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Kind says what a [Step] is.
type Kind string

// The kinds of steps, in the order in which they happen to one event.
const (
	Written  Kind = "written"  // its producer wrote it to its topic
	Known    Kind = "known"    // a ledger made its record
	Failed   Kind = "failed"   // a run failed: the first and the last of a letter are told
	Lettered Kind = "lettered" // a letter was written to the dead-letter topic
	Changed  Kind = "changed"  // the record came into its present state
	Expires  Kind = "expires"  // the record may be forgotten: in the future, most of the time
)

var kindOrder = []Kind{Written, Known, Failed, Lettered, Changed, Expires}

// Step is something that happened to an event, or will.
type Step struct {
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	// Text says it in words. It may quote what producers and handlers wrote (G-04).
	Text string `json:"text"`
	// Place is the record that it is about, <topic>/<partition>/<offset>, or empty.
	Place string `json:"place,omitempty"`
	// Ledger is the one that says so, or empty.
	Ledger string `json:"ledger,omitempty"`
	// State is that of the record, of [Changed] only.
	State string `json:"state,omitempty"`
}

// Timeline puts in order what is known of an event, the oldest first: of its records, and of its letters, which may be nil. What
// has no time is not in it. The clocks are those of producers, brokers, consumers and ledgers, so that steps which follow each other
// closely may change places.
func Timeline(views []View, l *LettersAt) []Step {
	var steps []Step
	add := func(t *time.Time, s Step) {
		if t == nil || t.IsZero() {
			return
		}
		s.Time = t.UTC()
		if !slices.Contains(steps, s) { // letters of one event tell of the same failures
			steps = append(steps, s)
		}
	}
	for i := range views {
		addView(&views[i], add)
	}
	if l != nil {
		for i := range l.Letters {
			addLetter(&l.Letters[i], add)
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(slices.Index(kindOrder, a.Kind), slices.Index(kindOrder, b.Kind)))
	})
	return steps
}

func addView(v *View, add func(*time.Time, Step)) {
	addOrigin(v.Origin, add)
	add(v.Created, Step{Kind: Known, Text: "first known to " + v.Ledger, Ledger: v.Ledger})
	state := v.State
	if v.Reason != "" {
		state += ": " + v.Reason
	}
	add(v.Changed, Step{Kind: Changed, Text: state, Ledger: v.Ledger, State: v.State})
	add(v.Expires, Step{Kind: Expires, Text: "may be forgotten by " + v.Ledger, Ledger: v.Ledger})
}

func addLetter(l *Letter, add func(*time.Time, Step)) {
	addOrigin(l.Origin, add)
	add(l.First, Step{Kind: Failed, Text: "failed for the first time"})
	if l.Attempts > 1 {
		add(l.Last, Step{Kind: Failed, Text: fmt.Sprintf("failed for the last time, after %d attempts: %s: %s", l.Attempts, l.Class, l.Error)})
	}
	add(&l.Written, Step{
		Kind: Lettered, Text: fmt.Sprintf("dead letter: %s: %s", l.Class, l.Error), Place: fmt.Sprintf("%s/%d/%d", l.Topic, l.Partition, l.Offset),
	})
}

func addOrigin(o *Origin, add func(*time.Time, Step)) {
	if o == nil || o.Topic == "" {
		return
	}
	add(o.Time, Step{Kind: Written, Text: "written by its producer", Place: fmt.Sprintf("%s/%d/%d", o.Topic, o.Partition, o.Offset)})
}
