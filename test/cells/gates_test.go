package cells

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/internal/history"
)

// The gates are the stores of a worker, with all their abilities: the steps of the cell lie around
// claims and completions.
type (
	pgGate struct {
		*pgstore.Store
		w *worker
	}
	sqlGate struct {
		*sqlstore.Store
		w *worker
	}
	redisGate struct {
		*redisstore.Store
		w *worker
	}
	dynamoGate struct {
		*dynamostore.Store
		w *worker
	}
	memoryGate struct {
		*memstore.Store
		w *worker
	}
)

func (w *worker) claim(answers []dedup.Answer, claim func() error) error {
	w.asks()
	w.at(beforeClaim)
	if w.Fault == cutAfter {
		w.at(afterClaim) // the test cuts once the server has acted
	}
	if err := claim(); err != nil {
		return err
	}
	if len(answers) > 0 && answers[0].Verdict.Held() {
		w.did(history.Claimed, answers[0].Fence)
		w.at(afterClaim)
	}
	return nil
}

func (w *worker) complete(done []dedup.Completion, complete func() error) error {
	w.at(beforeEnd)
	w.at(beforeAnswer)
	if err := complete(); err != nil {
		return err
	}
	w.did(history.Completed, done[0].Fence)
	w.at(afterEnd)
	return nil
}

// claimTx has the steps of a transaction.
func claimTx[Tx any](ctx context.Context, w *worker, s dedup.TxStore[Tx], limit time.Duration,
	reqs []dedup.Request, answers []dedup.Answer, fn func(Tx) ([]dedup.Completion, error)) error {
	w.asks()
	w.at(beforeClaim)
	if w.Fault == cutAfter {
		w.at(afterClaim)
	}
	ran := false
	err := s.ClaimTx(ctx, limit, reqs, answers, func(tx Tx) ([]dedup.Completion, error) {
		w.at(afterClaim)
		done, err := fn(tx)
		if err == nil {
			ran = true
			w.at(beforeEnd)
			w.at(beforeAnswer)
		}
		return done, err
	})
	if err == nil && ran {
		w.at(afterEnd)
	}
	return err
}

func (g *pgGate) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	return g.w.claim(answers, func() error { return g.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (g *pgGate) Complete(ctx context.Context, done []dedup.Completion) error {
	return g.w.complete(done, func() error { return g.Store.Complete(ctx, done) })
}

func (g *pgGate) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(pgx.Tx) ([]dedup.Completion, error)) error {
	return claimTx[pgx.Tx](ctx, g.w, g.Store, limit, reqs, answers, fn)
}

func (g *sqlGate) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	return g.w.claim(answers, func() error { return g.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (g *sqlGate) Complete(ctx context.Context, done []dedup.Completion) error {
	return g.w.complete(done, func() error { return g.Store.Complete(ctx, done) })
}

func (g *sqlGate) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(*sql.Tx) ([]dedup.Completion, error)) error {
	return claimTx[*sql.Tx](ctx, g.w, g.Store, limit, reqs, answers, fn)
}

func (g *redisGate) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	return g.w.claim(answers, func() error { return g.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (g *redisGate) Complete(ctx context.Context, done []dedup.Completion) error {
	return g.w.complete(done, func() error { return g.Store.Complete(ctx, done) })
}

func (g *dynamoGate) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	return g.w.claim(answers, func() error { return g.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (g *dynamoGate) Complete(ctx context.Context, done []dedup.Completion) error {
	return g.w.complete(done, func() error { return g.Store.Complete(ctx, done) })
}

func (g *memoryGate) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	return g.w.claim(answers, func() error { return g.Store.Claim(ctx, t, lease, reqs, answers) })
}

func (g *memoryGate) Complete(ctx context.Context, done []dedup.Completion) error {
	return g.w.complete(done, func() error { return g.Store.Complete(ctx, done) })
}
