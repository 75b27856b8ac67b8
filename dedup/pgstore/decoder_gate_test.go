package pgstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
)

// registry is a decoder that knows no schema until its service has answered.
type registry struct {
	known, asked int // questions until there is an answer
	during       func()
}

func (r *registry) Decode(ctx context.Context, _ *idem.Message, _ any) error {
	if r.asked >= r.known {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.asked++
	r.during() // in each question
	if r.asked < r.known {
		return idem.Unavailable(errors.New("registry is down"))
	}
	return nil
}

// While a registry is asked, neither a connection of the pool nor a claim is held, and the duplicate before it is settled. The
// effects are there once.
func TestDecoderAsksOutsideTransactions_Rule60(t *testing.T) {
	for name, on := range map[string]func(e *engine, r *idem.Router, opts ...idem.Option){
		"OnTx": func(e *engine, r *idem.Router, opts ...idem.Option) { idem.OnTx(r, "paid", e.write, opts...) },
		"On": func(e *engine, r *idem.Router, opts ...idem.Option) {
			idem.On(r, "paid", func(_ context.Context, ev idem.Event[payload]) error { e.ran(ev.ID); return nil }, opts...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, pool := newStore(t)
			d := &registry{}
			e := newEngine(t, s, func(e *engine, r *idem.Router) { on(e, r, idem.DecodeWith(d)) })
			first := e.message("paid", "e1")
			e.settle(first)
			d.known, d.during = 4, func() {
				require.Zero(t, pool.Stat().AcquiredConns(), "connections in use")
				require.NotContains(t, states(t, s), dedup.Claimed)
			}
			e.settle(first, e.message("paid", "e2"), e.message("paid", "e3"))
			require.Equal(t, 4, d.asked)
			for _, id := range []string{"e1", "e2", "e3"} {
				runs, letters := e.counts(id)
				require.Equal(t, 1, runs, id)
				require.Zero(t, letters)
			}
		})
	}
}

// states are the states of e2 and e3, as far as the store knows them.
func states(t *testing.T, s *pgstore.Store) (all []dedup.State) {
	for _, id := range []string{"e2", "e3"} {
		records, err := s.Inspect(t.Context(), dedup.Key{Scope: "orders", Type: "paid", ID: id})
		require.NoError(t, err)
		for _, r := range records {
			all = append(all, r.State)
		}
	}
	return all
}
