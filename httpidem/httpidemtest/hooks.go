package httpidemtest

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/dedup"
)

// point is a moment between the middleware and the store.
type point string

const (
	beforeClaim point = "before the claim"
	afterClaim  point = "after the claim"
	beforeEnd   point = "before the end is stored"
	afterEnd    point = "after the end was stored"
	renewal     point = "renewal"
)

// hook is called at each point. An error of the hook replaces the result of the store.
type hook func(point) error

// hookClaims puts a hook before a store.
func hookClaims(s dedup.Store, at hook) dedup.Store { return &hooked{s, at} }

type hooked struct {
	dedup.Store
	at hook
}

// around calls fn between two points.
func (h *hooked) around(before, after point, fn func() error) error {
	if err := h.at(before); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	return h.at(after)
}

func (h *hooked) Claim(
	ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
) error {
	return h.around(beforeClaim, afterClaim,
		func() error { return h.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (h *hooked) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	return h.around(renewal, renewal, func() error { return h.Store.Renew(ctx, lease, claims) })
}

func (h *hooked) Complete(ctx context.Context, done []dedup.Completion) error {
	return h.around(beforeEnd, afterEnd, func() error { return h.Store.Complete(ctx, done) })
}

func (h *hooked) Release(ctx context.Context, claims []dedup.Release) error {
	return h.around(beforeEnd, afterEnd, func() error { return h.Store.Release(ctx, claims) })
}

// Look implements [dedup.Looker] if the store does.
func (h *hooked) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	l, ok := h.Store.(dedup.Looker)
	if !ok {
		return errors.New("the store has no look-up")
	}
	return l.Look(ctx, reqs, answers)
}

// hookTx is hookClaims for a transactional store: the end is the commit.
func hookTx[Tx any](s dedup.Store, at hook) dedup.Store {
	return &hookedTx[Tx]{hooked{s, at}, s.(dedup.TxStore[Tx])}
}

type hookedTx[Tx any] struct {
	hooked
	tx dedup.TxStore[Tx]
}

func (h *hookedTx[Tx]) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
	fn func(tx Tx) ([]dedup.Completion, error)) error {
	return h.around(beforeClaim, afterEnd, func() error {
		return h.tx.ClaimTx(ctx, limit, reqs, answers, func(tx Tx) ([]dedup.Completion, error) {
			if err := h.at(afterClaim); err != nil {
				return nil, err
			}
			done, err := fn(tx)
			if err != nil {
				return nil, err
			}
			return done, h.at(beforeEnd)
		})
	})
}

// LookTx implements [dedup.TxLooker] if the store does.
func (h *hookedTx[Tx]) LookTx(
	ctx context.Context, reqs []dedup.Request, answers []dedup.Answer,
) error {
	l, ok := h.Store.(dedup.TxLooker)
	if !ok {
		return errors.New("the store has no look-up")
	}
	return l.LookTx(ctx, reqs, answers)
}
