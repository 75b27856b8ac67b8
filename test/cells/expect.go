package cells

import (
	"fmt"
	"slices"
	"strings"
)

// answer is the result that the last caller of a key gets.
type answer string

// The answers. Records have no answer: their offset is committed. A dead letter is an answer to a
// person.
const (
	noAnswer answer = ""
	letter   answer = "dead letter"
	result   answer = "result"          // of the one run
	unknown  answer = "unknown outcome" // dedup.ErrUnknownOutcome, or its problem of HTTP
	panicked answer = "panic told"      // the stored answer of a handler that panicked
	failed   answer = "failure told"    // the stored answer of a handler with an ended context
	wrong    answer = "wrong answer"    // a caller must never get it
)

// want is the expectation of a cell. No effect is lost: a least number of zero stands only beside
// an answer that reports it.
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

// outcome is the result of a cell.
type outcome struct {
	effects  int
	sameKey  bool     // all effects had one idempotency key
	answer   answer   // of the last caller
	first    answer   // of the caller that met the fault
	letters  int64    // dead letters
	broken   []string // rules of claims
	replaced bool     // another worker finished while the first one stood still
}

func (o outcome) String() string {
	text := fmt.Sprint(o.effects)
	if o.effects > 1 && o.sameKey {
		text = "1 + repeat"
	}
	if o.answer != noAnswer && o.answer != result {
		text += ", " + string(o.answer)
	}
	return text
}

// fits returns why an outcome is not the expected one, or the empty string.
func (o outcome) fits(w want) string {
	switch {
	case o.effects < w.least || o.effects > w.most:
		return fmt.Sprintf("%d effects", o.effects)
	case !o.sameKey:
		return "the effects have different idempotency keys"
	case !slices.Contains(w.answers, o.answer):
		return fmt.Sprintf("the answer is %q", o.answer)
	case (o.answer == result || o.answer == noAnswer) && o.effects == 0:
		return "no effect, and no answer that tells so"
	case (o.answer == failed || o.answer == panicked) && o.effects > 1:
		return fmt.Sprintf("the answer of one run is told, with %d effects", o.effects)
	case len(o.broken) > 0:
		return strings.Join(o.broken, "; ")
	case o.letters != 0 && o.answer != letter:
		return fmt.Sprintf("%d dead letters", o.letters)
	}
	return ""
}

// entries returns the texts of all outcomes that fit.
func (w want) entries() (texts []string) {
	for n := w.least; n <= w.most; n++ {
		for _, a := range w.answers {
			if o := (outcome{effects: n, sameKey: true, answer: a}); o.fits(w) == "" {
				texts = append(texts, o.String())
			}
		}
	}
	return texts
}

// expect returns the expectation of a cell. docs/guarantees.md has these promises in words.
func expect(c combination) want {
	switch {
	case c.kind.inTx():
		if c.kind.records() {
			return want{1, 1, []answer{noAnswer}}
		}
		return want{1, 1, []answer{result}}
	case c.kind == careful:
		return expectCareful(c)
	case c.kind == relays:
		return want{1, mostOfRow(c), []answer{noAnswer}}
	case c.kind.records():
		return want{1, mostOfRecord(c), []answer{noAnswer}}
	case c.kind.reruns():
		return expectRerun(c)
	}
	return expectCall(c)
}

// expectRerun returns the expectation of a claimed call with Rerun. A run that was cut short runs
// again, and the caller gets a result. The effect is repeated in the window between effect and
// completion. A handler of HTTP that has answered, or has panicked, was not cut short.
func expectRerun(c combination) want {
	effects := 1
	if c.step.inWindow() {
		effects = 2
	}
	switch c.fault {
	case kill, hang:
		return want{effects, effects, []answer{result}}
	case panics:
		if c.kind == viaHTTPRerun {
			return expectCall(c)
		}
		return want{effects, effects, []answer{result}}
	case stop:
		if c.step == beforeEffect { // as for records
			return want{1, 2, []answer{result}}
		}
		return want{effects, effects, []answer{result}}
	case restart:
		// The outage may last as long as a lease: the context of the work ends during its effect.
		// A result is written once the server is back.
		if c.step == afterClaim || c.step == beforeEffect {
			if c.kind == viaHTTPRerun {
				return want{0, 2, []answer{result, failed}}
			}
			return want{1, 2, []answer{result}}
		}
	case cutBefore, cutAfter, rebalance, kafkaRestart, copied, unsent, unacked:
	}
	return want{1, 1, []answer{result}}
}

// expectCareful returns the expectation of a handler that never repeats an effect: at most one
// effect, and a dead letter in place of a repetition. If the handler has not begun, the outcome is
// not in doubt, unless the worker is gone and the record of the claim cannot tell.
func expectCareful(c combination) want {
	claimed := c.step == afterClaim || c.step.inHandler() || c.step == beforeEnd
	effects := 0
	if c.step.inWindow() {
		effects = 1
	}
	switch c.fault {
	case kill, hang, panics:
		if claimed {
			return want{effects, effects, []answer{letter}}
		}
	case stop:
		switch {
		case c.step == beforeEffect: // as for records
			return want{0, 1, []answer{letter}}
		case claimed: // no handler begins under an ended lease
			return want{effects, effects, []answer{letter}}
		}
	case restart:
		// The outage may last as long as a lease: the context of the handler ends during its
		// effect.
		if c.step == afterClaim || c.step == beforeEffect {
			return want{0, 1, []answer{noAnswer, letter}}
		}
	case rebalance, kafkaRestart: // a broker that is away may end the session of its group
		if c.step == beforeEffect { // the context of the handler may end during its effect
			return want{0, 1, []answer{noAnswer, letter}}
		}
	case cutBefore, cutAfter, copied, unsent, unacked:
	}
	return want{1, 1, []answer{noAnswer}}
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
		// The outage may last as long as a lease: the context of the handler ends during its
		// effect. A success is recorded once the server is back, since no other worker takes over.
		if c.step == afterClaim || c.step == beforeEffect {
			return 2
		}
	case stop:
		// A handler that begins its effect when it wakes may do so before its context ends.
		if c.step.inWindow() || c.step == beforeEffect {
			return 2
		}
	case rebalance, kafkaRestart:
		// The context of the handler may end during its effect.
		if c.step == beforeEffect {
			return 2
		}
	case cutBefore, cutAfter, copied, unsent, unacked:
	}
	return 1
}

// mostOfRow returns how often a relay may publish a row: twice if the row was published and its
// settlement was not recorded, and another epoch of the shard begins.
func mostOfRow(c combination) int {
	switch c.fault {
	case kill:
		if c.step.inWindow() {
			return 2
		}
	case stop:
		// A relay that wakes may go on with the publication that it was about to make.
		if c.step.inWindow() || c.step == beforeEffect {
			return 2
		}
	case restart:
		// The outage may last as long as a lease. The relay takes its shards again then.
		if c.step.inWindow() || c.step == beforeEffect || c.step == afterClaim {
			return 2
		}
	case unacked: // the producer sends again; the sequence number of the broker is not part of the promise
		return 2
	case kafkaRestart: // the same, since the acknowledgement is lost
		if c.step == beforeAck {
			return 2
		}
	case panics, hang, cutBefore, cutAfter, rebalance, copied, unsent:
	}
	return 1
}

// expectCall returns the expectation of a claimed call without Rerun: at most one effect, and an
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
		if c.kind.base() == viaHTTP {
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
	case restart:
		// The outage may last as long as a lease: the work does not begin then, or its context ends
		// during its effect. A result is written once the server is back.
		if c.step == afterClaim || c.step == beforeEffect {
			if c.kind == viaHTTP {
				return want{0, 1, []answer{result, unknown, failed}}
			}
			return want{0, 1, []answer{result, unknown}}
		}
	case cutBefore, cutAfter, rebalance, kafkaRestart, copied, unsent, unacked:
	}
	return done
}

// expectFirst returns the answers that the caller that meets the fault may get in the end. Before
// that, errors may make it call again. Records have no caller, and a caller that is killed or hangs
// gets no answer. A panic goes on to the caller of a function. The client of a request sees its
// connection end, and sends the request again. The client of a handler gets the answer even if the
// store does not take it.
func expectFirst(c combination) []answer {
	switch {
	case c.kind.records() || c.kind == relays || c.fault == kill || c.fault == hang:
		return []answer{noAnswer}
	case c.fault == panics && (c.kind.base() == do || c.kind.base() == doTx):
		return []answer{panicked}
	case c.fault == stop && c.kind.base() == viaHTTP && c.step.inWindow():
		return []answer{result}
	case c.fault == stop && c.kind.base() == viaHTTP && c.step == beforeEffect:
		// A handler that begins its effect when it wakes may do so before its context ends.
		return append(expect(c).answers, result)
	}
	return expect(c).answers
}
