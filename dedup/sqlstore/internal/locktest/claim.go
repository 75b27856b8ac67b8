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
	require.Equal(t, dedup.Fresh, site.claim(t, "e", time.Microsecond))
	require.Equal(t, dedup.Busy, site.claimMeanwhile(t, "e",
		"UPDATE idempotency_keys SET fence = fence + 1, lease_until = "+site.Later))
}

// NewClaim claims a new event while another transaction adds the record of it. The store does not
// see the record yet, and must not write over it: the event is Busy (P-01).
func NewClaim(t *testing.T, site Site) {
	require.Equal(t, dedup.Fresh, site.claim(t, "e", time.Hour))
	require.Equal(t, dedup.Busy, site.claimMeanwhile(t, "new",
		"UPDATE idempotency_keys SET event_id = 'new'"))
}

func (site Site) claim(t *testing.T, id string, lease time.Duration) dedup.Verdict {
	req := []dedup.Request{{Key: dedup.Key{Scope: "s", Type: "t", ID: id}, Retention: time.Hour}}
	answers := make([]dedup.Answer, 1)
	err := site.Store.Claim(context.WithoutCancel(t.Context()), dedup.NewToken(), lease, req, answers)
	if err != nil {
		t.Error(err)
	}
	return answers[0].Verdict
}

// claimMeanwhile claims an event while another transaction with that statement is open, and commits
// the transaction when the claim waits for it.
func (site Site) claimMeanwhile(t *testing.T, id, statement string) dedup.Verdict {
	other, err := site.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }() // no effect after the commit
	_, err = other.ExecContext(t.Context(), statement)
	require.NoError(t, err)
	late := make(chan dedup.Verdict, 1)
	go func() { late <- site.claim(t, id, time.Minute) }()
	require.Eventually(t, func() bool {
		var n int
		return site.DB.QueryRowContext(t.Context(), site.Waiting).Scan(&n) == nil && n > 0
	}, 10*time.Second, 150*time.Millisecond, "the store does not wait for the lock")
	require.NoError(t, other.Commit())
	return <-late
}
