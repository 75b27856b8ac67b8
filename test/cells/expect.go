package cells

import "fmt"

// answer is what the last caller of a key learns.
type answer string

// The answers. Records have none: their offset is committed.
const (
	noAnswer answer = ""
	result   answer = "result"          // that of the one run
	unknown  answer = "unknown outcome" // dedup.ErrUnknownOutcome, or its problem of HTTP
	panicked answer = "panic told"      // the stored answer to a request whose handler panicked
	failed   answer = "failure told"    // the stored answer of a handler whose context ended
)

// want is what a cell may come to. No effect is lost: a least number of zero stands only beside an
// answer that tells so.
type want struct {
	least, most int // effects, all with one idempotency key
	answers     []answer
}

func (w want) String() string {
	text := fmt.Sprint(w.least)
	if w.most > w.least {
		text = fmt.Sprintf("%d-%d", w.least, w.most)
	}
	for i, a := range w.answers {
		switch {
		case a == noAnswer || a == result && len(w.answers) == 1:
		case i == 0:
			text += ", " + string(a)
		default:
			text += " or " + string(a)
		}
	}
	return text
}

// expect returns what may come of a cell. docs/guarantees.md has these promises in words.
func expect(c combination) want {
	switch {
	case c.kind.inTx():
		if c.kind.records() {
			return want{1, 1, []answer{noAnswer}}
		}
		return want{1, 1, []answer{result}}
	case c.kind.records():
		return want{1, mostOfRecord(c), []answer{noAnswer}}
	}
	return expectCall(c)
}

// mostOfRecord returns how often the effect of a claimed handler may happen: twice in the window
// between effect and completion.
func mostOfRecord(c combination) int {
	switch c.fault {
	case kill, panics, hang:
		if c.step.inWindow() {
			return 2
		}
	case restart:
		// The outage may last as long as a lease: the context of the handler ends during its effect.
		if c.step == afterClaim || c.step == beforeEffect || c.step.inWindow() {
			return 2
		}
	case stop:
		// A handler that begins its effect when it wakes may do so before its context ends.
		if c.step.inWindow() || c.step == beforeEffect {
			return 2
		}
	case rebalance:
		// The context of the handler may end during its effect.
		if c.step == beforeEffect {
			return 2
		}
	case cutBefore, cutAfter, copied:
	}
	return 1
}

// expectCall returns what may come of a claimed call without Rerun: at most one effect, and an
// unknown outcome in place of a repetition.
func expectCall(c combination) want {
	done := want{1, 1, []answer{result}}
	claimed := c.step == afterClaim || c.step.inHandler() || c.step == beforeEnd
	effects := 0
	if c.step.inWindow() {
		effects = 1
	}
	switch c.fault {
	case kill, hang:
		if claimed {
			return want{effects, effects, []answer{unknown}}
		}
	case panics:
		if c.kind == viaHTTP {
			return want{effects, effects, []answer{panicked}}
		}
		return want{effects, effects, []answer{unknown}}
	case stop:
		switch {
		case c.step == beforeEffect: // as for records
			return want{0, 1, []answer{unknown}}
		case claimed: // no handler begins under an ended lease
			return want{effects, effects, []answer{unknown}}
		}
	case restart: // longer than a lease
		switch {
		case claimed && c.kind == viaHTTP:
			return want{effects, 1, []answer{result, unknown, failed}}
		case claimed:
			return want{effects, 1, []answer{result, unknown}}
		}
	case cutBefore, cutAfter, rebalance, copied:
	}
	return done
}
