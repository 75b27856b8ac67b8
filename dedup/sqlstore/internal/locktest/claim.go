// Package locktest holds a row of a store of sqlstore under a lock while the store claims it.
package locktest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/stretchr/testify/require"
)

// Site is a database with the tables of one test.
type Site struct {
	Store *sqlstore.Store
	DB    *sql.DB
	// Waiting counts the sessions of the database that wait for a lock. MariaDB knows new ones only
	// if it was not asked for 100 ms.
	Waiting string
	// Later is an expression for a time in an hour, as in a column of times.
	Later string
}

// Claim lets the lease of a claim end, and claims the event while another transaction takes it
// over. The store must read the record under a lock: then it sees the other claim, and the event is
// Busy (P-01).
func Claim(t *testing.T, site Site) {
	req := []dedup.Request{{Key: dedup.Key{Scope: "s", Type: "t", ID: "e"}, Retention: time.Hour}}
	claim := func(lease time.Duration) dedup.Verdict {
		answers := make([]dedup.Answer, 1)
		require.NoError(t, site.Store.Claim(t.Context(), dedup.NewToken(), lease, req, answers))
		return answers[0].Verdict
	}
	require.Equal(t, dedup.Fresh, claim(time.Microsecond))
	other, err := site.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }() // no effect after the commit
	_, err = other.ExecContext(t.Context(), "UPDATE idempotency_keys SET fence = fence + 1, lease_until = "+site.Later)
	require.NoError(t, err)
	late := make(chan dedup.Answer, 1)
	go func() {
		answers := make([]dedup.Answer, 1)
		if err := site.Store.Claim(context.WithoutCancel(t.Context()), dedup.NewToken(), time.Minute, req, answers); err != nil {
			t.Error(err)
		}
		late <- answers[0]
	}()
	require.Eventually(t, func() bool {
		var n int
		return site.DB.QueryRowContext(t.Context(), site.Waiting).Scan(&n) == nil && n > 0
	}, 10*time.Second, 150*time.Millisecond, "the store does not wait for the lock")
	require.NoError(t, other.Commit())
	require.Equal(t, dedup.Busy, (<-late).Verdict)
}
