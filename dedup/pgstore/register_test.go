package pgstore_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/stretchr/testify/require"
)

// TestRegister_Descriptor_Rule7: a descriptor that differs from the recorded one is refused. The
// refused call records no descriptor and no topic.
func TestRegister_Descriptor_Rule7(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t, inMode(mode))
			r := dedup.Registration{Scope: "g", Group: "g", Topics: []string{"t"}, Descriptors: map[string]string{"a": "1", "b": "2"}}
			for range 2 {
				require.NoError(t, s.Register(t.Context(), r))
			}
			r.Descriptors = map[string]string{"a": "1", "c": "3"} // one is new, one no longer named
			require.NoError(t, s.Register(t.Context(), r))

			r.Descriptors, r.Topics = map[string]string{"b": "changed", "d": "4"}, []string{"t", "u"}
			err := s.Register(t.Context(), r)
			require.ErrorIs(t, err, dedup.ErrIdentityChanged)
			var changed *dedup.IdentityChangedError
			require.ErrorAs(t, err, &changed)
			require.Equal(t, []string{"b"}, changed.Types)
			require.NotErrorIs(t, err, dedup.ErrUnavailable)
			require.ErrorContains(t, err, `type "b": on record [2], now [changed]`)
			count := func(sql string) (n int) {
				t.Helper()
				require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&n))
				return n
			}
			require.Equal(t, 3, count("SELECT count(*) FROM idem_descriptors"))
			require.Equal(t, 1, count("SELECT count(*) FROM idem_scope_topics"))

			r.Scope = "other" // descriptors belong to a scope
			require.NoError(t, s.Register(t.Context(), r))
			r.Scope, r.AcceptNewIdentity = "g", true
			require.NoError(t, s.Register(t.Context(), r))
			r.AcceptNewIdentity = false
			require.NoError(t, s.Register(t.Context(), r), "it is on record now")
			require.Equal(t, 1, count("SELECT count(*) FROM idem_descriptors WHERE scope = 'g' AND descriptor = 'changed'"))
			require.Equal(t, 2, count("SELECT count(*) FROM idem_scope_topics WHERE scope = 'g'"))
		})
	}
}

// TestRegister_Scope_Rule14: a group without offsets does not start on topics that another scope remembers.
func TestRegister_Scope_Rule14(t *testing.T) {
	s, _ := newStore(t)
	first := dedup.Registration{Scope: "orders", Group: "orders", Topics: []string{"payments", "refunds"}, NoOffsets: true}
	require.NoError(t, s.Register(t.Context(), first), "nobody knows the topics yet")
	require.NoError(t, s.Register(t.Context(), first), "its offsets may have expired")

	second := dedup.Registration{Scope: "orders-v2", Group: "orders-v2", Topics: []string{"invoices", "payments"}, NoOffsets: true}
	for range 2 { // a refusal leaves no record that would admit the next attempt
		err := s.Register(t.Context(), second)
		require.ErrorIs(t, err, dedup.ErrOtherScope)
		require.ErrorContains(t, err, `topic "payments" is known under ["orders"]`)
	}
	inherits := second
	inherits.Scope = "orders"
	require.NoError(t, s.Register(t.Context(), inherits))
	runs := second
	runs.NoOffsets = false
	runs.Scope, runs.Group = "elsewhere", "elsewhere"
	require.NoError(t, s.Register(t.Context(), runs), "it has offsets: it is at work already")
	second.NewScope = true
	require.NoError(t, s.Register(t.Context(), second))
	second.NewScope = false
	require.NoError(t, s.Register(t.Context(), second), "it is known now")
}

// TestRegister_AtOnce: of two instances that start together with different descriptors, either one
// is refused.
func TestRegister_AtOnce(t *testing.T) {
	s, _ := newStore(t)
	for round := range 10 {
		scope := string(rune('a' + round))
		errs := make([]error, 4)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				errs[i] = s.Register(t.Context(), dedup.Registration{Scope: scope, Descriptors: map[string]string{"x": string(rune('0' + i))}})
			})
		}
		all.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				require.ErrorIs(t, err, dedup.ErrIdentityChanged)
			}
		}
		require.Equal(t, 1, won, errors.Join(errs...))
	}
}

// TestRegister_NoTables: without its tables, a store gives no answer.
func TestRegister_NoTables(t *testing.T) {
	s, pool := newStore(t)
	_, err := pool.Exec(t.Context(), "DROP TABLE idem_descriptors")
	require.NoError(t, err)
	r := dedup.Registration{Scope: "g", Descriptors: map[string]string{"a": "1"}}
	require.ErrorIs(t, s.Register(t.Context(), r), dedup.ErrUnavailable)
	require.NoError(t, pgstore.Migrate(t.Context(), pool), "what is missing is made")
	require.NoError(t, s.Register(t.Context(), r))
}
