package pgstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// mail is work before commit that writes the queued mails of events, unless it fails.
type mail struct {
	to   []string
	fail func(ctx context.Context, tx pgx.Tx, to []string) error
}

func (m *mail) Mark() int       { return len(m.to) }
func (m *mail) Rewind(mark int) { m.to = m.to[:mark] }

func (m *mail) Flush(ctx context.Context, tx any) error {
	if err := m.fail(ctx, tx.(pgx.Tx), m.to); err != nil {
		return err
	}
	for _, to := range m.to {
		if err := addEffect(ctx, tx.(pgx.Tx), "mail to "+to); err != nil {
			return err
		}
	}
	return nil
}

// newMailEngine makes an engine with a handler that writes an effect and queues a mail.
func newMailEngine(t *testing.T, fail func(context.Context, pgx.Tx, []string) error) (e *engine, count func(name string) int) {
	t.Helper()
	s, pool := newStore(t)
	e = newEngine(t, s, func(e *engine, r *idem.Router) {
		idem.OnTx(r, "paid", func(ctx context.Context, tx pgx.Tx, ev idem.Event[payload]) error {
			w, err := tx.(dedup.TxKeeper).KeepTx("mail", func() dedup.TxWork { return &mail{fail: fail} })
			if err != nil {
				return err
			}
			w.(*mail).to = append(w.(*mail).to, ev.ID)
			return e.write(ctx, tx, ev)
		}, quickRetry)
	})
	e.trust("paid")
	return e, func(name string) int { return countEffects(t, pool, name) }
}

var group5 = []string{"a", "b", culprit, "c", "d"}

func (e *engine) settle5() {
	e.t.Helper()
	var msgs []*idem.Message
	for _, id := range group5 {
		msgs = append(msgs, e.message("paid", id))
	}
	e.settle(msgs...)
}

// Rule 22: the server has no room for the locks of a group. Each of its events gets a transaction
// of its own. That is no outage, and no event is to blame.
func TestFullLockTableTakesAGroupApart_Rule22(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"53200", "57014", "55P03", "40P01"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			groups := 0
			e, count := newMailEngine(t, func(ctx context.Context, tx pgx.Tx, to []string) error {
				if len(to) < 2 {
					return nil
				}
				groups++
				return raises(code)(ctx, tx)
			})
			e.settle5()
			require.Equal(t, 1, groups, "once, and not again and again")
			for _, id := range group5 {
				require.Equal(t, 1, count(id), id)
				require.Equal(t, 1, count("mail to "+id), id)
				runs, letters := e.counts(id)
				require.Equal(t, 2, runs, "in the group, and by itself")
				require.Zero(t, letters)
			}
			require.Zero(t, e.downs)
		})
	}
}

// Rule 12: the kept work of one event breaks a constraint. That event is taken apart from the
// others and dead-lettered, alone.
func TestFlushFailsForOneEvent_Rule12(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context, pgx.Tx) error{
		"constraint": raises("23505"), "swallowed": func(ctx context.Context, tx pgx.Tx) error { _ = raises("23505")(ctx, tx); return nil },
		"panic": func(context.Context, pgx.Tx) error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, count := newMailEngine(t, func(ctx context.Context, tx pgx.Tx, to []string) error {
				for _, id := range to {
					if id == culprit {
						return fail(ctx, tx)
					}
				}
				return nil
			})
			e.settle5()
			require.Len(t, e.deadLetters, 1)
			class, id := classOf(e.deadLetters[0])
			require.Equal(t, idem.ClassFailed, class)
			require.Equal(t, culprit, id)
			for _, id := range group5 {
				want := 1
				if id == culprit {
					want = 0
				}
				require.Equal(t, want, count(id), id)
				require.Equal(t, want, count("mail to "+id), id)
			}
			require.Zero(t, e.downs)
		})
	}
}

// T-03: an outage of the server before the commit counts as no attempt of an event.
func TestFlushMeetsAnOutage_T03(t *testing.T) {
	t.Parallel()
	lost := 0
	e, count := newMailEngine(t, func(ctx context.Context, tx pgx.Tx, to []string) error {
		if to[0] != "a" || lost == 5 {
			return nil
		}
		lost++
		return runs("SELECT pg_terminate_backend(pg_backend_pid())")(ctx, tx)
	})
	e.settle5()
	require.Equal(t, 5, lost)
	require.Empty(t, e.deadLetters)
	require.NotZero(t, e.downs)
	for _, id := range group5 {
		require.Equal(t, 1, count("mail to "+id), fmt.Sprint(id))
	}
}
