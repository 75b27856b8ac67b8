package idemtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/idem-go/idem/dedup"
)

// TortureDo is [Torture] for functions that run by [dedup.Do] or [dedup.DoTx].
//
// call makes one call with the guard of its process, and returns the results of Do. After an error
// the caller calls again, ten seconds later and for half an hour at most, or twelve leases if that
// is longer. Errors that no later call changes are answers: ErrConflict, ErrGivenUp, ErrNoResult
// and ErrResult of package dedup, and ErrUnknownOutcome unless the guard has Rerun. If the process
// dies, the caller gets no result, and calls another process. At the end the caller calls once
// more, and gets the kept result.
//
// The state of each run must be that of the run without faults, and each answer its first answer,
// as reflect.DeepEqual compares them. Neither may differ between two runs without faults. Let call
// return those parts of the result that a caller uses, and no time.
//
// The option [Guard] configures the guards, and [TxStore] names the store for DoTx. [Records] has
// no effect.
func TortureDo[W, R any](
	t *testing.T, setup func(testing.TB, *Faults) W,
	call func(ctx context.Context, g *dedup.Guard, world W) (r R, replayed bool, err error),
	state func(W) any, opts ...TortureOption,
) {
	t.Helper()
	text, broken := SearchDo(t, setup, call, state, opts...)
	verdict(t, text, broken)
}

// SearchDo is [TortureDo] for a function that may break, as [Search] is for handlers.
func SearchDo[W, R any](
	t *testing.T, setup func(testing.TB, *Faults) W,
	call func(ctx context.Context, g *dedup.Guard, world W) (r R, replayed bool, err error),
	state func(W) any, opts ...TortureOption,
) (text string, broken bool) {
	t.Helper()
	s := newSearch("TortureDo", opts,
		argument{"setup", setup}, argument{"call", call}, argument{"state", state})
	return look(t, s, setup, func(_ *testing.T, w W, open opener) job {
		return newCallsJob(func(p *process) client {
			g := dedup.NewGuard(open(p), s.guard)
			return client{stop: g.Close, call: func() reply {
				r, replayed, err := call(p.ctx, g, w)
				return replyOf(r, replayed, err, s.guard.Rerun)
			}}
		})
	}, state)
}

// replyOf classifies the end of a call of Do for its caller.
func replyOf(r any, replayed bool, err error, rerun bool) reply {
	unknown := errors.Is(err, dedup.ErrUnknownOutcome)
	switch {
	case err == nil && replayed:
		return reply{answer: r, text: fmt.Sprintf("%+v, replayed", r)}
	case err == nil:
		return reply{answer: r, text: fmt.Sprintf("%+v", r)}
	case unknown && !rerun, errors.Is(err, dedup.ErrConflict), errors.Is(err, dedup.ErrGivenUp),
		errors.Is(err, dedup.ErrNoResult), errors.Is(err, dedup.ErrResult):
		return reply{answer: err.Error(), unknown: unknown, text: err.Error()}
	default:
		return reply{again: err}
	}
}
