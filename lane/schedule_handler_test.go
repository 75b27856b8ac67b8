package lane

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem"
)

// hang is how long a handler hangs that ignores its context.
const hang = 10 * time.Second

var errFatal = errors.New("fatal")

// fate is the outcome of a message in a call.
type fate uint8

const (
	good fate = iota
	waits
	fatal
	hangs
)

// OrderKey implements handler.
func (a *assignment) OrderKey(m *idem.Message) string {
	if a.planted.orderKey != nil && len(m.Key) > 0 {
		return a.planted.orderKey(m)
	}
	return string(m.Key)
}

// Settle stands for a Processor that reports progress for one message, or for several together.
func (a *assignment) Settle(ctx context.Context, msgs []*idem.Message, progress func(int)) error {
	keys := a.enter(msgs)
	defer a.leave(keys)
	reported := 0
	reportUpTo := func(n int) {
		if n == reported {
			return
		}
		a.markReported(msgs[reported:n])
		reported = n
		progress(n)
		a.under(a.look)
	}
	for i, m := range msgs {
		if ctx.Err() != nil { // work that was done and not reported will be found in the store
			return context.Cause(ctx)
		}
		nap, what, report := a.decide()
		if nap > 0 {
			time.Sleep(nap)
		}
		switch what {
		case waits:
			reportUpTo(i)
			return &idem.WaitError{Err: idem.ErrBusy, After: nap}
		case fatal:
			return errFatal
		case good, hangs:
		}
		a.effect(m)
		if report || i == len(msgs)-1 {
			reportUpTo(i + 1)
		}
	}
	return nil
}

func (a *assignment) decide() (nap time.Duration, what fate, report bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rnd.IntN(2) == 0 {
		nap = time.Duration(a.rnd.IntN(3000)) * time.Microsecond
	}
	switch n := a.rnd.IntN(60); {
	case n < 6 && a.world.waits > 0:
		a.world.waits--
		what = waits
	case n == 6 && a.world.fatals > 0:
		a.world.fatals--
		what = fatal
	case n < 10 && a.world.hangs > 0:
		a.world.hangs--
		nap, what = hang, hangs
	}
	return nap, what, a.rnd.IntN(2) == 0
}

// enter begins a call. No key of the call may be in another one.
func (a *assignment) enter(msgs []*idem.Message) (keys []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(msgs) == 0 || len(msgs) > a.cfg.Batch {
		a.fail("a call with %d messages", len(msgs))
	}
	own := map[string]bool{}
	for _, m := range msgs {
		if key := string(m.Key); key != "" && !own[key] {
			own[key] = true
			keys = append(keys, key)
			if a.inFlight[key] {
				a.fail("key %s is in two calls at once (rule 25)", key)
			}
			a.inFlight[key] = true
		}
	}
	return keys
}

func (a *assignment) leave(keys []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range keys {
		delete(a.inFlight, key)
	}
}

// effect runs the event, or finds it in the store. Late effects are fenced off: fencing is the
// subject of other tests.
func (a *assignment) effect(m *idem.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	i, key := a.index[m.Offset], string(m.Key)
	if a.reported[i] {
		a.fail("record %d is settled twice in one assignment", i)
	}
	if last, ok := a.last[key]; ok && key != "" && last >= i || a.cfg.Lanes == 1 && a.lastOfAll(i) {
		a.fail("record %d of key %q comes after a later one", i, key)
	}
	a.last[key] = i
	event := a.event[i]
	if a.effects[event] {
		return
	}
	a.effects[event] = true
	if key == "" {
		return
	}
	if a.first[key][0] != event {
		a.fail("event %d of key %s has its effect before event %d", event, key, a.first[key][0])
	}
	a.first[key] = a.first[key][1:]
}

// lastOfAll reports whether a record after i was settled before. With one lane the order is the
// partition's.
func (a *assignment) lastOfAll(i int) bool {
	for _, last := range a.last {
		if last >= i {
			return true
		}
	}
	return false
}

func (a *assignment) markReported(msgs []*idem.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range msgs {
		a.reported[a.index[m.Offset]] = true
	}
}
