package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// cut is the end of the context of a run.
type cut uint8

const (
	alive cut = iota
	lost
	timedOut
	stopping
)

// runEnd is how a run ended. classify sees the first two fields only.
type runEnd struct {
	cause, err error

	cut                                cut
	none                               bool // no error
	permanent, notApplied, unavailable bool // marks
	asked                              bool // RetryAfter
	after                              time.Duration
	panicked                           bool
}

// reading of a run's end.
type wantOutcome struct {
	meaning   meaning
	class     idemtype.Class
	after     time.Duration
	marked    bool
	unapplied bool
}

func (r *runEnd) says(m meaning, c idemtype.Class) wantOutcome {
	return wantOutcome{meaning: m, class: c, after: r.after}
}

func (r *runEnd) outage(c idemtype.Class) wantOutcome {
	return wantOutcome{meaning: unavailable, class: c, after: r.after, marked: true, unapplied: r.notApplied}
}

// classifyTable has the meaning of each error of a handler.
var classifyTable = decisionTable[runEnd, wantOutcome]{
	{
		"success", func(r *runEnd) bool { return r.none },
		constant[runEnd](wantOutcome{meaning: succeeded}),
		line("classify", "returns `nil`, also after its context ended", "success", "–"),
	},
	{
		"permanent", func(r *runEnd) bool { return r.permanent },
		func(r *runEnd) wantOutcome {
			w := r.says(permanent, idemtype.ClassPermanent)
			w.unapplied = r.notApplied
			return w
		},
		line("classify", "returns `idem.Permanent(err)`", "permanent failure", "`permanent`"),
	},
	{
		"outage, not applied, later", func(r *runEnd) bool { return r.notApplied && r.unavailable && r.asked },
		func(r *runEnd) wantOutcome { return r.outage(idemtype.ClassRetryAfter) },
		sameAs("later"),
	},
	{
		"outage, not applied", func(r *runEnd) bool { return r.notApplied && r.unavailable },
		func(r *runEnd) wantOutcome { return r.outage(idemtype.ClassFailed) },
		line("classify", "returns `idem.NotApplied` and `idem.Unavailable` in one error", "outage without an effect", "`failed`"),
	},
	{
		"not applied, later", func(r *runEnd) bool { return r.notApplied && r.asked },
		func(r *runEnd) wantOutcome { return r.says(notApplied, idemtype.ClassRetryAfter) },
		sameAs("later"),
	},
	{
		"not applied", func(r *runEnd) bool { return r.notApplied },
		func(r *runEnd) wantOutcome { return r.says(notApplied, idemtype.ClassFailed) },
		line("classify", "returns `idem.NotApplied(err)`", "failure without an effect", "`failed`"),
	},
	{
		"claim lost, later", func(r *runEnd) bool { return r.cut == lost && r.asked },
		func(r *runEnd) wantOutcome { return r.says(claimLost, idemtype.ClassRetryAfter) },
		absent("a run whose claim was lost leaves no dead letter, and its pause is not kept"),
	},
	{
		"claim lost", func(r *runEnd) bool { return r.cut == lost },
		func(r *runEnd) wantOutcome { return r.says(claimLost, idemtype.ClassFailed) },
		line("classify", "returns another error after its lease ended", "claim lost", "–"),
	},
	{
		"time-out", func(r *runEnd) bool { return r.cut == timedOut },
		func(r *runEnd) wantOutcome { return r.says(unknown, idemtype.ClassTimeout) },
		line("classify", "returns another error, or panics, after its `Timeout` (30 s)", "failure", "`timeout`"),
	},
	{
		"stop, later", func(r *runEnd) bool { return r.cut == stopping && r.asked },
		func(r *runEnd) wantOutcome { return r.says(stopped, idemtype.ClassRetryAfter) },
		sameAs("later"),
	},
	{
		"stop", func(r *runEnd) bool { return r.cut == stopping },
		func(r *runEnd) wantOutcome { return r.says(stopped, idemtype.ClassFailed) },
		line("classify", "returns another error after a stop or a rebalance cancelled its context", "cut short", "`failed`"),
	},
	{
		"panic", func(r *runEnd) bool { return r.panicked },
		func(r *runEnd) wantOutcome { return r.says(unknown, idemtype.ClassPanic) },
		line("classify", "panics, or ends its goroutine", "failure", "`panic`"),
	},
	{
		"outage, later", func(r *runEnd) bool { return r.unavailable && r.asked },
		func(r *runEnd) wantOutcome { return r.outage(idemtype.ClassRetryAfter) },
		sameAs("later"),
	},
	{
		"outage", func(r *runEnd) bool { return r.unavailable },
		func(r *runEnd) wantOutcome { return r.outage(idemtype.ClassFailed) },
		line("classify", "returns `idem.Unavailable(err)`", "outage", "`failed`"),
	},
	{
		"later", func(r *runEnd) bool { return r.asked },
		func(r *runEnd) wantOutcome { return r.says(transient, idemtype.ClassRetryAfter) },
		line("classify", "returns `idem.RetryAfter(d, err)`", "as `err`, and no attempt before `d` has passed", "`retry-after` in place of `failed`"),
	},
	{
		"error", always[runEnd],
		func(r *runEnd) wantOutcome { return r.says(transient, idemtype.ClassFailed) },
		line("classify", "returns any other error", "failure", "`failed`"),
	},
}

// causes of an ended context.
var causes = []struct {
	cut   cut
	cause error
}{
	{alive, nil},
	{lost, dedup.ErrClaimLost},
	{lost, fmt.Errorf("renew: %w", dedup.ErrClaimLost)},
	{timedOut, idemtype.ErrHandlerTimeout},
	{timedOut, fmt.Errorf("handler: %w", idemtype.ErrHandlerTimeout)},
	{stopping, errors.Join(idemtype.ErrStopping, context.Canceled)},
	{stopping, idemtype.ErrPartitionLost},
	{stopping, dedup.ErrLeaseRenewerClosed},
	{stopping, context.DeadlineExceeded},
	{stopping, errSlow},
}

// unmarked errors, and whether they are those of a panic.
var unmarked = []struct {
	err      error
	panicked bool
}{
	{errors.New("plain"), false},
	{context.Canceled, false},             // of a context of the handler's own
	{idemtype.ErrHandlerTimeout, false},   // the same
	{dedup.ErrClaimLost, false},           // the same
	{userErr(dedup.ErrAbandoned), false},  // of a client of the handler's own
	{dedup.ErrUnavailable, false},         // without a mark
	{panicked(nil), true},                 // or runtime.Goexit
	{panicked("text"), true},              //
	{panicked(errors.New("e")), true},     //
	{fmt.Errorf("%w", panicked(1)), true}, // returned by a handler that recovered
}

// shapes puts marks on an error.
var shapes = []func(base error, marks []func(error) error) error{
	nested,
	func(base error, marks []func(error) error) error {
		return fmt.Errorf("wrapped: %w", nested(base, marks))
	},
	func(base error, marks []func(error) error) error { return errors.Join(branches(base, marks)...) },
	func(base error, marks []func(error) error) error {
		return errors.Join(errors.New("first"), multi(branches(base, marks)))
	},
	func(base error, marks []func(error) error) error {
		return userErr(errors.Join(idemtype.ErrAbandoned, nested(base, marks)))
	},
}

func nested(err error, marks []func(error) error) error {
	for _, mark := range marks {
		err = mark(err)
	}
	return err
}

// branches puts each mark on an error of its own.
func branches(base error, marks []func(error) error) []error {
	all := []error{base}
	for _, mark := range marks {
		all = append(all, mark(errors.New("branch")))
	}
	return all
}

// walkRunEnds yields every combination of marks, in several orders and shapes, with every cause.
func walkRunEnds(yield func(*runEnd)) {
	for _, c := range causes {
		yield(&runEnd{cause: c.cause, cut: c.cut, none: true})
		for _, base := range unmarked {
			for marks := range 16 {
				walkMarks(marks, func(end runEnd, list []func(error) error) {
					end.cause, end.cut, end.panicked = c.cause, c.cut, base.panicked
					for _, shape := range shapes {
						end.err = shape(base.err, list)
						yield(&end)
					}
					if base.panicked { // with a marked error as the value of the panic
						end.err = panicked(nested(errors.New("value"), list))
						yield(&end)
					}
				})
			}
		}
	}
}

// walkMarks yields the marks of a set, RetryAfter with several pauses, in both orders.
func walkMarks(set int, yield func(end runEnd, marks []func(error) error)) {
	var end runEnd
	var marks []func(error) error
	if end.permanent = set&1 != 0; end.permanent {
		marks = append(marks, Permanent)
	}
	if end.notApplied = set&2 != 0; end.notApplied {
		marks = append(marks, NotApplied)
	}
	if end.unavailable = set&4 != 0; end.unavailable {
		marks = append(marks, Unavailable)
	}
	if end.asked = set&8 != 0; !end.asked {
		yield(end, marks)
		yield(end, reversed(marks))
		return
	}
	for _, end.after = range []time.Duration{-time.Second, 0, time.Minute} {
		later := func(err error) error { return RetryAfter(end.after, err) }
		inner := func(err error) error { return later(RetryAfter(time.Hour, err)) } // the outer one counts
		yield(end, append(reversed(marks), later))
		yield(end, reversed(append(reversed(marks), later)))
		yield(end, append(reversed(marks), inner))
	}
}

func reversed[T any](s []T) []T {
	s = slices.Clone(s)
	slices.Reverse(s)
	return s
}

func TestClassify_Table(t *testing.T) {
	t.Parallel()
	classifyTable.check(t, walkRunEnds, func(r *runEnd, want wantOutcome) string {
		o := classify(r.cause, r.err)
		got := wantOutcome{meaning: o.meaning, class: o.class, after: o.after, marked: o.marked, unapplied: o.unapplied}
		switch {
		case got != want:
			return fmt.Sprintf("classified as %+v, wanted %+v", got, want)
		case o.refused || o.unbegun:
			return "a run that began was classified as refused or unbegun"
		case !r.none && o.err == nil, r.none && o.err != nil:
			return fmt.Sprintf("error %v", o.err)
		}
		return ""
	})
}

// batchEnd is how a call of several events ended, seen from one of them.
type batchEnd struct {
	ctx   context.Context
	cut   cut // its end
	all   outcome
	n, at int // events in the call, and which one it is

	names    bool // a BatchError decides, in err itself or wrapped once by each error around it
	outside  bool // it names an event that is not in the call
	beside   bool // marked as a whole, or one of several branches
	left     bool // the handler was left behind
	overTime bool
	named    *runEnd // the error of this event; nil: not named, or named with nil
}

// wantEvent is the meaning of a call for one event.
type wantEvent struct {
	outcome wantOutcome
	about   bool // the error is about all events of the call
}

// batchTable has the meaning of the error of a call of several events for each of them.
var batchTable = decisionTable[batchEnd, wantEvent]{
	{
		"batch: left behind", func(b *batchEnd) bool { return b.left },
		func(b *batchEnd) wantEvent { return wantEvent{b.whole(), true} },
		absent("the result of a handler that still runs is not known; the table of results says what follows"),
	},
	{
		"batch: no names", func(b *batchEnd) bool { return !b.names && !b.outside && !b.beside },
		func(b *batchEnd) wantEvent { return wantEvent{b.whole(), true} },
		line("batch", "an error without a `BatchError`", "all", "as the error says"),
	},
	{
		"batch: not in the call", func(b *batchEnd) bool { return b.outside && !b.beside },
		func(b *batchEnd) wantEvent { return wantEvent{b.whole(), true} },
		line("batch", "a `BatchError` that names an event outside the call", "all", "failure"),
	},
	{
		"batch: beside others", func(b *batchEnd) bool { return b.beside },
		func(b *batchEnd) wantEvent { return wantEvent{b.whole(), true} },
		line("batch", "a `BatchError` with a mark on it, or joined with other errors", "all", "as the mark or the other errors say"),
	},
	{
		"batch: not named", func(b *batchEnd) bool { return b.named == nil },
		constant[batchEnd](wantEvent{outcome: wantOutcome{meaning: succeeded}}),
		line("batch", "a `BatchError`, wrapped or not", "not named, or named with `nil`", "success"),
	},
	{
		"batch: named after the time-out", func(b *batchEnd) bool { return b.overTime },
		func(b *batchEnd) wantEvent { return wantEvent{outcome: b.one(timedOut)} },
		sameAs("batch: named"),
	},
	{
		"batch: named", always[batchEnd],
		func(b *batchEnd) wantEvent { return wantEvent{outcome: b.one(b.cut)} },
		line("batch", "a `BatchError`, wrapped or not", "named", "as its own error says, by the table above"),
	},
}

func (b *batchEnd) whole() wantOutcome {
	return wantOutcome{b.all.meaning, b.all.class, b.all.after, b.all.marked, b.all.unapplied}
}

// one is the row of the table of errors for the event's own error.
func (b *batchEnd) one(c cut) wantOutcome {
	if b.named == nil {
		return wantOutcome{class: "an event without an error"}
	}
	end := *b.named
	end.cut = c
	want, _ := classifyTable.decide(&end)
	return want
}

// walkBatchEnds yields every event of calls with BatchErrors of many contents, in many places of
// the error.
func walkBatchEnds(yield func(*batchEnd)) {
	plain := errors.New("plain")
	kinds := []runEnd{
		{err: plain},
		{err: userErr(dedup.ErrAbandoned)},
		{err: dedup.ErrAbandoned}, // becomes its own
		{err: Permanent(plain), permanent: true},
		{err: NotApplied(plain), notApplied: true},
		{err: Unavailable(plain), unavailable: true},
		{err: RetryAfter(time.Minute, plain), asked: true, after: time.Minute},
	}
	places := []struct {
		put           func(error) error
		names, beside bool
	}{
		{func(err error) error { return err }, true, false},
		{func(err error) error { return fmt.Errorf("wrapped: %w", err) }, true, false},
		{func(err error) error { return userErr(fmt.Errorf("twice: %w", fmt.Errorf("wrapped: %w", err))) }, true, false},
		{Permanent, true, true},
		{func(err error) error { return fmt.Errorf("x: %w", NotApplied(err)) }, true, true},
		{Unavailable, true, true},
		{func(err error) error { return RetryAfter(time.Second, err) }, true, true},
		{func(err error) error { return errors.Join(err) }, true, true},
		{func(err error) error { return errors.Join(err, plain) }, true, true},
		{func(err error) error { return fmt.Errorf("%w: %w", plain, err) }, true, true},
		{func(error) error { return plain }, false, false},
	}
	wholes := []outcome{
		{meaning: transient, class: idemtype.ClassFailed}, {meaning: unknown, class: idemtype.ClassTimeout}, {meaning: abandoned, class: idemtype.ClassTimeout},
		{meaning: notApplied, class: idemtype.ClassRetryAfter, after: time.Second},
	}
	for _, n := range []int{1, 3} {
		for _, p := range places {
			for _, outside := range []int{0, -1, n} { // 0: no event
				for mask := range 1 << n {
					for kind := range kinds {
						named, ends := batchError(n, mask, kinds[kind:], plain)
						if outside != 0 {
							named[outside] = plain
						}
						err := p.put(named)
						for _, all := range wholes {
							all.err = err
							b := batchEnd{
								all: all, n: n, names: p.names, outside: p.names && outside != 0, beside: p.beside,
								left: all.meaning == abandoned, overTime: all.class == idemtype.ClassTimeout,
							}
							walkCauses(b, ends, yield)
						}
					}
				}
			}
		}
	}
}

// batchError names the events of the mask, the second of them with nil.
func batchError(n, mask int, kinds []runEnd, plain error) (named idemtype.BatchError, ends []*runEnd) {
	named, ends = idemtype.BatchError{}, make([]*runEnd, n)
	for i := range n {
		switch {
		case mask&(1<<i) == 0:
		case i == 1:
			named[i] = nil
		case i < len(kinds):
			ends[i], named[i] = &kinds[i], kinds[i].err
		default:
			ends[i], named[i] = &runEnd{err: plain}, plain
		}
	}
	return named, ends
}

func walkCauses(b batchEnd, ends []*runEnd, yield func(*batchEnd)) {
	for _, c := range causes {
		ctx, cancel := context.WithCancelCause(context.Background())
		if c.cause != nil {
			cancel(c.cause)
		}
		b.ctx, b.cut = ctx, c.cut //nolint:fatcontext // each context of causes is tried in turn, not nested
		for b.at, b.named = range ends {
			yield(&b)
		}
		cancel(nil)
	}
}

func TestClassify_BatchTable(t *testing.T) {
	t.Parallel()
	batchTable.check(t, walkBatchEnds, func(b *batchEnd, want wantEvent) string {
		tasks := make([]*task, b.n)
		for i := range tasks {
			tasks[i] = &task{}
		}
		all := newOutcomes(b.ctx, b.all, tasks)
		o := all.of(tasks[b.at])
		got := wantEvent{wantOutcome{o.meaning, o.class, o.after, o.marked, o.unapplied}, all.named == nil}
		good, bad := all.split(tasks)
		switch {
		case got != want:
			return fmt.Sprintf("event %d: %+v, wanted %+v", b.at, got, want)
		case all.many != (b.n > 1):
			return fmt.Sprintf("many: %v", all.many)
		case len(good)+len(bad) != b.n || slices.Contains(good, tasks[b.at]) != (want.outcome.meaning == succeeded):
			return fmt.Sprintf("%d good and %d bad events of %d", len(good), len(bad), b.n)
		case errors.Is(o.err, idemtype.ErrAbandoned) && !want.about:
			return "the error of an event ends its partition"
		}
		return ""
	})
}

// The error of a call that no BatchError describes is about all of its events.
func TestClassify_NamedIn(t *testing.T) {
	require.Nil(t, namedIn(nil, 1))
	require.Nil(t, namedIn(errors.New("plain"), 1))
	require.Equal(t, idemtype.BatchError{}, namedIn(idemtype.BatchError{}, 1))
	require.Equal(t, idemtype.BatchError{}, namedIn(idemtype.BatchError{0: nil}, 1))
	require.Nil(t, namedIn(idemtype.BatchError{1: nil}, 1))
}
