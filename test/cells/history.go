package cells

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// deed is what a worker did.
type deed string

// The deeds.
const (
	claimed   deed = "claimed"   // the store has granted the claim
	effected  deed = "effect"    // the effect happened
	completed deed = "completed" // the store has taken the completion
)

// entry is one deed in the history of a key. Clocks of workers on one machine agree.
type entry struct {
	at     time.Time
	worker string
	deed   deed
	fence  uint64 // zero: not known, as in a function of Do
}

// broken returns the rules of claims that a history breaks. Entries may come in any order.
//
//   - A fence grows with each claim, and belongs to one worker.
//   - An effect happens under a claim that its worker was granted before.
//   - A completion is taken under such a claim, from one claim only.
//   - No claim is granted after the completion.
//
// With late, a holder that lost its claim may complete after the next one: redisstore takes a
// completion without a result from any holder, and a repetition after a lost answer succeeds.
func broken(history []entry, late bool) (rules []string) {
	h := slices.Clone(history)
	slices.SortStableFunc(h, func(a, b entry) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	holders := make(map[uint64]string)
	var last, done uint64
	breaks := func(e entry, rule string) {
		rules = append(rules, fmt.Sprintf("%s %s with fence %d: %s", e.worker, e.deed, e.fence, rule))
	}
	for _, e := range h {
		switch e.deed {
		case claimed:
			switch {
			case done != 0:
				breaks(e, "the key is done")
			case e.fence < last || e.fence == last && holders[last] != e.worker:
				breaks(e, fmt.Sprintf("fence %d was granted before", last))
			}
			last = max(last, e.fence)
			holders[e.fence] = e.worker
		case effected, completed:
			if !holds(holders, e) {
				breaks(e, "no claim was granted")
			}
			if e.deed == completed {
				if done != 0 && done != e.fence && (!late || e.fence > done) {
					breaks(e, fmt.Sprintf("the claim with fence %d is completed", done))
				}
				done = max(done, e.fence)
			}
		}
	}
	return rules
}

func holds(holders map[uint64]string, e entry) bool {
	if e.fence != 0 {
		return holders[e.fence] == e.worker
	}
	for _, worker := range holders {
		if worker == e.worker {
			return true
		}
	}
	return false
}
