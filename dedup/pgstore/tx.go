package pgstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// groupWait is how long a group waits for a lock, in the claim and in the handler (rule 1).
	// A request with NoWait waits as long for a transaction that holds the key without the
	// advisory lock (rule 20).
	groupWait = 20 * time.Millisecond
	// claimTimeout is the statement_timeout of a claim. A value below lockWait would turn a held
	// key into an error that looks like a fault of the event.
	claimTimeout = lockWait + 3*time.Second
	// idleSlack is added to the handler's limit for idle_in_transaction_session_timeout.
	idleSlack = 5 * time.Second
)

// commitSQL commits only the transaction that begin_tx.sql has marked. A handler may have ended
// that transaction by SQL and begun another, and the session's status would look the same
// (P-13). Without arguments, both statements travel in one message.
const commitSQL = "select 1 / (coalesce(current_setting('idem.session', true), '') <> '')::int; " +
	"commit"

// txRun is one transaction of ClaimTx.
type txRun struct {
	ctx     context.Context
	db      *database
	known   *expectation
	q       *statements
	limit   time.Duration
	reqs    []dedup.Request
	numbers []place // of reqs, in the compact layout
	answers []dedup.Answer
	open    []dedup.Request // requests that the look has not answered
	places  []int           // indices of open in reqs; nil: the same
	fn      func(pgx.Tx) ([]dedup.Completion, error)

	conn   session
	socket net.Conn
	tx     pgx.Tx     // the transaction of the driver
	xid    string     // its number at the server; "": no row was written
	inTurn bool       // it has the advisory lock of its key
	lent   *handlerTx // the transaction for fn
	again  bool       // a repeat may succeed
}

func (r *txRun) group() bool { return len(r.reqs) > 1 }

// noWait reports whether the transaction is for one request with NoWait (rule 20).
func (r *txRun) noWait() bool { return len(r.reqs) == 1 && r.reqs[0].NoWait }

func (r *txRun) queueSettings(b *pgx.Batch, mark bool) {
	wait, idle := groupWait, ""
	if !r.group() && !r.noWait() {
		wait = lockWait
	}
	if r.limit > 0 {
		idle = milliseconds(r.limit + idleSlack)
	}
	b.Queue(r.q.beginTx, milliseconds(wait), milliseconds(claimTimeout), idle, r.db.durable, mark)
}

// heldKeys are the keys of some requests of a transaction. heldKeys make no numbers, because
// that could take a second connection.
type heldKeys struct {
	r     *txRun
	texts keyRows
	kinds []int32
	ids   []pgtype.UUID
}

func newHeldKeys(r *txRun, n int) *heldKeys { return &heldKeys{r: r, texts: newKeyRows(n)} }

func (h *heldKeys) add(i int) {
	if h.r.numbers == nil {
		h.texts.add(&h.r.reqs[i].Key)
		return
	}
	h.kinds, h.ids = append(h.kinds, h.r.numbers[i].kind), append(h.ids, h.r.numbers[i].id)
}

func (h *heldKeys) args() []any {
	if h.r.numbers == nil {
		return []any{h.texts.tenant, h.texts.scope, h.texts.typ, h.texts.id}
	}
	return []any{h.kinds, h.ids}
}

// handlerFailed explains an error of fn. The text and the chain of err stay unchanged.
func (r *txRun) handlerFailed(err error) error {
	code, broken := sqlState(err), r.conn.Conn().IsClosed()
	aborted := !broken && r.conn.Conn().PgConn().TxStatus() == 'E'
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case r.group() && (code == codeNoLock || code == codeDeadlock || code == codeSerialization):
		return contended(err)
	case aborted && (code == codeSerialization || code == codeDeadlock):
		r.again = true
	case aborted && infrastructure(code), broken && !ended:
		// An error of another database, which fn may also use, does not affect this transaction.
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	return err
}

// handlerLeft checks the transaction after fn returned without an error, without a round trip.
func (r *txRun) handlerLeft() error {
	c, state := r.conn.Conn(), r.lent.state()
	switch {
	case errors.Is(state, dedup.ErrTxEnded): // also with a lost connection or open rows
		return state
	case c.IsClosed() && r.ctx.Err() != nil:
		return fmt.Errorf("pgstore: connection closed while the handler ran: %w", r.ctx.Err())
	case c.PgConn().IsBusy():
		return errors.New("pgstore: the handler left a result open: close its rows before " +
			"returning")
	}
	return state
}

// end returns the connection to the pool. An unfinished transaction is rolled back.
func (r *txRun) end() {
	if r.conn.poolConn == nil {
		return // abandoned
	}
	if r.lent != nil {
		r.lent.close() // fn panicked
	}
	c := r.conn.Conn()
	if r.tx != nil && !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), endTimeout)
		defer cancel()
		_ = r.tx.Rollback(ctx) // after an error the connection is closed, and the server rolls back
	}
	r.conn.Release()
}

// abandon drops a connection that is still in use. Two goroutines must not use the driver's
// connection, so abandon closes only the socket below it.
func (r *txRun) abandon() {
	_ = r.socket.Close()
	r.conn.Hijack() // the pool replaces it
	r.conn = session{}
}

// socketOf is the connection below TLS. Close of a TLS connection sends a message, which may block.
func socketOf(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}
