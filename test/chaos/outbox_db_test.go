package chaos

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
)

// outboxDB is a database with an outbox, a store, and the table emitted. The table has a row for
// each event of a committed transaction, and no relay reads the table.
type outboxDB interface {
	// relayFlags are the flags of a relayworker on this database.
	relayFlags() []string
	// relays is the outbox as relays have it.
	relays() outbox.Store
	// query runs a query with portable SQL and no arguments.
	query(ctx context.Context, text string) (*sql.Rows, error)
	// transact runs fn in a transaction. emit of fn adds events to the outbox and to emitted.
	// The error of fn rolls the transaction back. parent is the event that a gated transaction
	// handles.
	transact(ctx context.Context, how way, parent dedup.Key,
		fn func(emit func([]emission) error) error) error
	// runsAgain reports whether the server has rolled back because of another transaction.
	runsAgain(err error) bool
	// committed selects tx, n and aggregate of emitted. Those of one aggregate are in the order of
	// the commits.
	committed() string
}

// outboxDBs are the databases under test.
var outboxDBs = map[string]func(*testing.T) *mailbox{
	"postgres": func(t *testing.T) *mailbox {
		return newMailbox(t, testenv.Kafka(t), testenv.Postgres(t), outboxPartitions)
	},
	"mariadb": func(t *testing.T) *mailbox {
		return newMariaDBMailbox(t, testenv.Kafka(t), testenv.MariaDB(t), outboxPartitions)
	},
}

// onEachOutbox runs a test once for each database.
func onEachOutbox(t *testing.T, test func(*testing.T, *mailbox)) {
	t.Helper()
	needTime(t)
	for name, open := range outboxDBs {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// gatedEntry returns the entry of an event in a transaction of this kind. In a gated transaction
// the context names the parent.
func gatedEntry(e outbox.Entry, how way, named bool) outbox.Entry {
	if how == gated && named {
		e.Parent = dedup.Key{}
	}
	return e
}

// closeRows ends a query.
func closeRows(t testing.TB, rows *sql.Rows) {
	t.Helper()
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
}

// newGuard returns a guard on a store, closed in Cleanup.
func newGuard(t testing.TB, store dedup.Store) *dedup.Guard {
	t.Helper()
	g := dedup.NewGuard(store, dedup.GuardConfig{Lease: time.Minute})
	t.Cleanup(g.Close)
	return g
}
