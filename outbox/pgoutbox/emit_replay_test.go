package pgoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/outbox"
)

func keyOf(scope, id string) dedup.Key { return dedup.Key{Scope: scope, Type: "order.paid", ID: id} }

// Rule 23: a redelivered event emits no event if the store knows it. Otherwise it emits the same
// IDs, which consumers skip. The order of the entries does not matter, here that of a map.
func TestReplayEmitsTheSameIdentities_Rule23(t *testing.T) {
	t.Parallel()
	s := newService(t)
	p := s.processor("orders", func(r *idem.Router) {
		idem.OnTx(r, "order.paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
			lines := map[string]string{}
			for i := range 12 {
				lines[fmt.Sprint("line ", i)] = fmt.Sprint("k", i%3)
			}
			for name, key := range lines {
				entry := send(key)
				entry.Name = name
				if err := s.box.Add(ctx, tx, entry); err != nil {
					return err
				}
			}
			return nil
		})
	})
	s.trust(p)
	msgs := s.messages("a", "b", "c")
	s.settle(p, msgs...)
	first := s.ids()
	require.Len(t, slices.Compact(slices.Clone(first)), 36)
	s.settle(p, msgs...)
	s.settle(p, s.messages("a", "b", "c")...) // copies
	require.Equal(t, first, s.ids(), "nothing new")

	store := pgstore.New(s.pool)
	for _, id := range []string{"a", "b", "c"} {
		require.NoError(t, store.Forget(t.Context(), keyOf("orders", id)))
	}
	s.settle(p, msgs...)
	again := s.ids()
	require.Len(t, again, 72)
	require.Equal(t, first, slices.Compact(again))
}

// Rule 23: a replayed dead letter emits the same events as its event.
func TestRedrivenDeadLetterEmitsTheSameIdentities_Rule23(t *testing.T) {
	t.Parallel()
	s := newService(t)
	fails := true
	p := s.processor("orders", func(r *idem.Router) {
		idem.OnTx(r, "order.paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
			err := s.box.Add(ctx, tx, send("k"))
			if fails && e.ID == "a" {
				err = errors.Join(err, idem.Permanent(errBad))
			}
			return err
		})
	})
	s.trust(p)
	s.settle(p, s.messages("a")...)
	require.Empty(t, s.rows())
	require.Len(t, s.deadLetters, 1)
	letter, err := deadletter.Parse(s.deadLetters[0])
	require.NoError(t, err)
	fails = false
	position, err := pgstore.New(s.pool).Reopen(t.Context(), letter.Key)
	require.NoError(t, err)
	m, err := letter.Redrive(position)
	require.NoError(t, err)
	s.settle(p, m)
	entry := send("k")
	require.Equal(t, []string{outbox.ID(keyOf("orders", "a"), &entry)}, s.ids())
}

// Rule 23: two groups that emit the same from one event make two events of it.
func TestTwoGroupsEmitDifferentIdentities_Rule23(t *testing.T) {
	t.Parallel()
	s := newService(t)
	m := s.message("a")
	for _, scope := range []string{"billing", "mailing"} {
		s.settle(s.processor(scope, s.emits("")), m)
	}
	ids := s.ids()
	require.Len(t, ids, 2)
	require.NotEqual(t, ids[0], ids[1])
}

// Rule 23: a handler of batches must set the parent of an entry, also with a single event.
func TestBatchHandlersSayTheParent_Rule23(t *testing.T) {
	t.Parallel()
	s := newService(t)
	says := false
	var errs []error
	var mu sync.Mutex
	p := s.processor("orders", func(r *idem.Router) {
		idem.OnBatchTx(r, "order.paid", func(ctx context.Context, tx pgx.Tx, events []idem.Event[order]) error {
			for _, e := range events {
				entry := send("k")
				if says {
					entry.Parent = e.Identity()
				}
				if err := s.box.Add(ctx, tx, entry); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return err
				}
			}
			return nil
		}, idem.SameKey())
	})
	s.settle(p, s.messages("alone")...)
	s.settle(p, s.messages("a", "b", "c")...)
	require.Empty(t, s.rows())
	require.Len(t, s.deadLetters, 4)
	require.NotEmpty(t, errs)
	for _, err := range errs {
		require.ErrorIs(t, err, outbox.ErrNoParent)
	}
	says = true
	s.settle(p, s.messages("d", "e", "f")...)
	var want []string
	entry := send("k")
	for _, id := range []string{"d", "e", "f"} {
		want = append(want, outbox.ID(keyOf("orders", id), &entry))
	}
	require.ElementsMatch(t, want, s.ids())
}
