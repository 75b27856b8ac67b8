package pgstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// Undecodable events among good ones are given up once, in every kind of handler and every mode of
// the client. All good events have their effect once. Delivered again, no event runs. A replay runs
// under the key of the event as soon as the value is known to the handler (rule 6).
func TestUndecodable_GivenUpOnce_Rule6(t *testing.T) {
	t.Parallel()
	type amount struct{ N int }
	for mode, m := range modes {
		for form, register := range map[string]func(*engine, *idem.Router){
			"On": func(e *engine, r *idem.Router) {
				idem.On(r, "paid", func(_ context.Context, ev idem.Event[amount]) error { e.ran(ev.ID); return nil })
			},
			"OnTx": func(e *engine, r *idem.Router) {
				idem.OnTx(r, "paid", func(ctx context.Context, tx pgx.Tx, ev idem.Event[amount]) error {
					e.ran(ev.ID)
					return addEffect(ctx, tx, ev.ID)
				})
			},
			"OnTx, one each": func(e *engine, r *idem.Router) {
				idem.OnTx(r, "paid", func(ctx context.Context, tx pgx.Tx, ev idem.Event[amount]) error {
					e.ran(ev.ID)
					return addEffect(ctx, tx, ev.ID)
				}, idem.TxPerEvent())
			},
			"OnBatchTx": func(e *engine, r *idem.Router) {
				idem.OnBatchTx(r, "paid", func(ctx context.Context, tx pgx.Tx, all []idem.Event[amount]) error {
					for _, ev := range all {
						e.ran(ev.ID)
						if err := addEffect(ctx, tx, ev.ID); err != nil {
							return err
						}
					}
					return nil
				})
			},
		} {
			t.Run(mode+"/"+form, func(t *testing.T) {
				s, _ := newStore(t, inMode(m))
				e := newEngine(t, s, register)
				bad := map[string]bool{"e0": true, "e7": true, "e8": true, "e19": true}
				var msgs []*idem.Message
				for i := range 20 {
					id := fmt.Sprintf("e%d", i)
					m := e.message("paid", id)
					if m.Value = []byte(`{"N":1}`); bad[id] {
						m.Value = []byte(`{"N":"one"}`)
					}
					msgs = append(msgs, m)
				}
				for range 3 {
					e.settle(msgs...)
				}
				require.Len(t, e.deadLetters, len(bad))
				for i := range msgs {
					id := fmt.Sprintf("e%d", i)
					records, err := s.Inspect(t.Context(), dedup.Key{Scope: "orders", Type: "paid", ID: id})
					require.NoError(t, err)
					require.Len(t, records, 1)
					if bad[id] {
						require.Zero(t, e.runs[id])
						require.Equal(t, dedup.GivenUp, records[0].State, id)
						continue
					}
					require.Equal(t, 1, e.runs[id], id)
					require.Equal(t, dedup.Finished, records[0].State, id)
				}

				l, err := deadletter.Parse(e.deadLetters[0])
				require.NoError(t, err)
				require.Equal(t, idem.ClassUndecodable, l.Class)
				position, err := s.Reopen(t.Context(), l.Key)
				require.NoError(t, err)
				again, err := l.Redrive(position)
				require.NoError(t, err)
				e.settle(again)
				require.Len(t, e.deadLetters, len(bad)+1, "still undecodable")
				l, err = deadletter.Parse(e.deadLetters[len(bad)])
				require.NoError(t, err)
				require.Equal(t, idem.ClassUndecodable, l.Class)
				position, err = s.Reopen(t.Context(), l.Key)
				require.NoError(t, err)
				again, err = l.Redrive(position)
				require.NoError(t, err)
				released := newEngine(t, s, func(e *engine, r *idem.Router) { // the next release takes text too
					idem.OnTx(r, "paid", func(ctx context.Context, tx pgx.Tx, ev idem.Event[struct{ N any }]) error {
						e.ran(ev.ID)
						return addEffect(ctx, tx, ev.ID)
					})
				})
				if form == "On" {
					return // a claimed handler and a transactional one share no records
				}
				released.settle(again, again)
				require.Equal(t, 1, released.runs[l.Key.ID])
				require.Empty(t, released.deadLetters)
			})
		}
	}
}
