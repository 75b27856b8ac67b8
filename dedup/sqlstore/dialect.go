package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"
)

// Dialect has the differences between databases. The dialects of this module are in the packages
// postgres, mysql and sqlite.
type Dialect struct {
	// Name begins the texts of errors, for example "postgres".
	Name string
	// Tables names the call that creates the tables, for the texts of errors.
	Tables string
	// Param returns the placeholder of the i-th argument, from 1 on.
	Param func(i int) string
	// Now is an expression for the present in microseconds since 1970. Empty: the clock of this
	// process, for a database inside the process.
	Now string
	// Micros returns an expression for a time column in microseconds since 1970.
	Micros func(column string) string
	// Time returns the argument for a time column.
	Time func(t time.Time) any
	// Token returns an expression for the column of a token as text.
	Token func(column string) string
	// Quote stands around the name of a column that is a keyword.
	Quote string
	// Lock ends a query that locks its rows until the commit.
	Lock string
	// LockFree is like Lock, but leaves out rows that another transaction has locked. Empty: there
	// is one writer, and no row is locked for it.
	LockFree string
	// Skip ends an INSERT that has no effect on rows with an existing key. Empty: the INSERT
	// fails instead, with the class [Taken].
	Skip string
	// Replace returns the end of an INSERT that replaces these columns of rows with an equal key.
	Replace func(key, columns []string) string
	// Index makes a query use this index of its table. Nil: the settings of InOrder do.
	Index func(name string) string
	// ByKey stands behind the name of a table in a query by keys, and makes the query use the
	// primary key. Empty: the database does so by itself.
	ByKey string
	// JoinedDelete means that the database has MySQL's DELETE of a join, and a DELETE joins the
	// list of keys to the table. With a condition on the keys, MySQL may scan a small table, and
	// then waits for every locked row.
	JoinedDelete bool
	// Lateral means that the database has LATERAL. Then the statistics of the tables have no effect
	// on two kinds of queries. Records are looked up key by key, and the first rows of a queue are
	// read in the order of the primary key.
	Lateral bool
	// RowLookup means that the database finds the row of a subquery in an index by a comparison of
	// whole rows. For the walk of [Store.Find], a database has this, has LATERAL, or skips from one
	// value to the next when a query with DISTINCT reads an index.
	RowLookup bool
	// Reap is a statement with settings for a transaction of the reaper. Empty: no statement.
	Reap string
	// InOrder is a statement with settings that make queries read an index in its order. Empty: no
	// statement.
	InOrder string
	// Isolation is the level of all transactions.
	Isolation sql.IsolationLevel
	// Begin prepares a transaction. The argument wait bounds the wait for a lock. The argument idle
	// is how long the session may stand still before the server ends the session; zero keeps the
	// setting of the session. The result restore gives the handler the settings of the session
	// back, except the setting for idle.
	Begin func(ctx context.Context, q Querier, wait, idle time.Duration) (
		restore func(context.Context) error, err error)
	// Mark marks the transaction, and check fails if the transaction was ended since.
	// A failed check has the class [Ended] or [Aborted].
	Mark func(ctx context.Context, q Querier) (check func(context.Context) error, err error)
	// Check looks for settings and tables that make the store unsafe. A plain error refuses the
	// store. If a query of q or the reading of its rows has failed, with a class other than Refused
	// and Setup, each error is an outage instead.
	Check func(ctx context.Context, q Querier) (warnings []string, err error)
	// Classify returns the class of an error of the driver.
	Classify func(err error) Class
	// Ends reports whether a statement with this error has ended its transaction, and the session
	// would commit each further statement alone. The lent transaction refuses them. Nil: no error
	// does that.
	Ends func(err error) bool
	// Lives reports whether the transaction of a connection goes on. The store asks after each
	// failed statement of the lent transaction, before the next statement. For a database in which
	// the error does not tell; see Ends. Nil: the transaction goes on.
	Lives func(conn driver.Conn) bool
	// CommitStays means that a COMMIT must not be cancelled, since the server may then show the
	// commit without its synchronous standbys. The store stops waiting for a slow COMMIT, and
	// leaves its connection to it.
	CommitStays bool
	// EndBySQL means that Commit and Rollback of the driver have no context, and a server that does
	// not answer holds them for ever. The store then ends a transaction with the statements COMMIT
	// and ROLLBACK. The driver must close the connection when the context of one of them ends. The
	// same is true of a query whose rows are read, and the Close of the driver's rows may have no
	// context. Not together with CommitStays.
	EndBySQL bool
	// OneWriter means that a second transaction waits for the end of the first one.
	OneWriter bool
}

// ended reports whether a statement with this error has ended the transaction of conn.
func (d *Dialect) ended(conn driver.Conn, err error) bool {
	return d.Ends != nil && d.Ends(err) || d.Lives != nil && !d.Lives(conn)
}

// name quotes the name of a column.
func (d *Dialect) name(column string) string { return d.Quote + column + d.Quote }

// Querier is a transaction.
type Querier interface {
	// ExecContext is that of [sql.Tx].
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	// QueryContext is that of [sql.Tx].
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Class is the meaning of an error of a driver for the store.
type Class int

// The classes.
const (
	// Unknown: the connection is lost, or the error is not one of the server.
	Unknown Class = iota
	// Refused: the server refused the statement, and a repetition has the same result.
	Refused
	// Again: a deadlock, a serialization failure or a lost race. A new transaction may succeed.
	Again
	// Taken: an INSERT has met an existing key.
	Taken
	// Locked: another transaction holds a lock.
	Locked
	// Down: the server cannot serve any statement now.
	Down
	// Stopped: the server has stopped the statement, because of a time-out or by order of a person.
	// For a statement of the store it is an outage, for one of a handler an error of the handler.
	Stopped
	// Setup: a table, a right or a database is missing.
	Setup
	// Ended: the transaction was ended.
	Ended
	// Aborted: an earlier statement of the transaction has failed.
	Aborted
)
