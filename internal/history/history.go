// Package history checks the records of a run against the model of claims: every claim, effect,
// completion and commit that workers and tests have written down. An entry has the time before and
// after its deed, so that two deeds count as ordered only if one ended before the other began.
package history

import (
	"fmt"
	"time"
)

// Deed is an action of a worker.
type Deed byte

// The deeds of claims.
const (
	Claimed   Deed = 'c' // the store has granted the claim
	Effect    Deed = 'e' // the effect happened
	Completed Deed = 'd' // the store has taken the completion
	Found     Deed = 'f' // the store answered that the key is settled
)

// String returns the name of the deed.
func (d Deed) String() string {
	return map[Deed]string{Claimed: "claimed", Effect: "effect", Completed: "completed", Found: "found"}[d]
}

// Entry is one deed in the history of a key. Clocks of workers on one machine agree.
type Entry struct {
	From, To time.Time // the deed happened between them
	Worker   string
	Deed     Deed
	Fence    uint64 // zero: not known, as in a function of Do
}

// before reports whether e ended before f began.
func (e Entry) before(f Entry) bool { return e.To.Before(f.From) }

// Broken returns the rules of claims that the history of one key breaks. Entries may come in any
// order.
//
//   - A fence grows with each claim, and belongs to one worker.
//   - An effect happens under a claim that its worker was granted before.
//   - A completion is taken under such a claim, from one claim only.
//   - No claim is granted after the completion, or after an answer that the key is settled.
//
// With late, a holder that lost its claim may complete after the next one. redisstore takes a
// completion without a result from any holder, and a repetition after a lost answer succeeds.
func Broken(history []Entry, late bool) (rules []string) {
	breaks := func(e Entry, rule string) {
		rules = append(rules, fmt.Sprintf("%s %s with fence %d: %s", e.Worker, e.Deed, e.Fence, rule))
	}
	for i, e := range history {
		switch e.Deed {
		case Claimed:
			if rule := brokenByClaim(history, i); rule != "" {
				breaks(e, rule)
			}
		case Effect:
			if !granted(history, e) {
				breaks(e, "no claim was granted")
			}
		case Completed:
			if !granted(history, e) {
				breaks(e, "no claim was granted")
			}
			if other, ok := completedBefore(history, e, late); ok {
				breaks(e, fmt.Sprintf("the claim with fence %d is completed", other.Fence))
			}
		case Found:
		}
	}
	return rules
}

// brokenByClaim compares a claim with all other entries.
func brokenByClaim(history []Entry, i int) string {
	e := history[i]
	for j, other := range history {
		switch {
		case i == j:
		case other.Deed == Claimed && other.Fence == e.Fence && other.Worker != e.Worker,
			other.Deed == Claimed && other.Fence > e.Fence && other.before(e):
			return fmt.Sprintf("fence %d was granted before", other.Fence)
		case (other.Deed == Completed || other.Deed == Found) && other.before(e):
			return "the key is done"
		}
	}
	return ""
}

// granted reports whether the worker of an entry had the claim before.
func granted(history []Entry, e Entry) bool {
	for _, c := range history {
		if c.Deed == Claimed && c.Worker == e.Worker && (e.Fence == 0 || c.Fence == e.Fence) && !e.before(c) {
			return true
		}
	}
	return false
}

// completedBefore returns a completion of another claim that ended before e began.
func completedBefore(history []Entry, e Entry, late bool) (other Entry, found bool) {
	for _, other := range history {
		if other.Deed == Completed && other.Fence != e.Fence && other.before(e) && (!late || e.Fence > other.Fence) {
			return other, true
		}
	}
	return Entry{}, false
}
