package idemtest

import (
	"testing"

	"github.com/idem-go/idem"
)

// Torture looks for a schedule of faults under which a handler leaves another world than in a run
// without faults.
//
// setup makes a new world for each run, which ends with its testing.TB. The fakes of the world pass
// their calls to the [Faults]. handlers registers the handlers under test, with effects on the
// world. [idem.KeyOrdered] handlers do not run in Torture: test them with [Run].
//
// state returns the state of the world. Two runs are equal if reflect.DeepEqual says so, and if the
// same events became dead letters. The run without faults happens twice, and the test fails if the
// two states differ. So the state must not depend on the time, on random values or on the order of
// events of different keys. The run without faults also fails the test if two calls of different
// names have one idempotency key, see [Faults.CallWithKey].
//
// A run delivers the records, and each of them once more at the end. A fault happens before or
// after a call of the store or a call to the outside. These are the faults:
//   - The process dies, and another one takes over. Faults happen to that one too.
//   - The process stands still beyond its lease while another one takes over, and then goes on.
//   - An outside call fails, with or without its effect.
//   - Another worker gets a copy of each record.
//   - Another worker handles the other partitions.
//
// First each fault happens alone at each point, then two of them. A pause takes five minutes, or
// twice the longest lease of the test. A lease of more than an hour fails the test.
//
// The first schedule that breaks the handler fails the test. It is shrunk to its shortest form, and
// printed as a story, with a test function that repeats it.
//
// Each run is in a bubble of testing/synctest, so leases and retries cost no time. Do not call
// Torture in a bubble. A handler must end when its context ends. Otherwise Torture panics after
// twelve hours of fake time, since a handler cannot be ended from outside.
func Torture[W any](
	t *testing.T, setup func(testing.TB, *Faults) W, handlers func(*idem.Router, W), state func(W) any,
	opts ...TortureOption,
) {
	t.Helper()
	text, broken := Search(t, setup, handlers, state, opts...)
	verdict(t, text, broken)
}

// Search is [Torture] for a handler that may break: it returns the report of Torture, and whether a
// schedule broke the handler. A handler that has mistakes without faults still fails the test.
func Search[W any](
	t *testing.T, setup func(testing.TB, *Faults) W, handlers func(*idem.Router, W), state func(W) any,
	opts ...TortureOption,
) (text string, broken bool) {
	t.Helper()
	s := newSearch("Torture", opts,
		argument{"setup", setup}, argument{"handlers", handlers}, argument{"state", state})
	return look(t, s, setup, func(t *testing.T, w W, open opener) job {
		return newRecordsJob(t, s.records, open, func(r *idem.Router) { handlers(r, w) })
	}, state)
}
