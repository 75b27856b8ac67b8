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
	// groupWait is how long a group waits for any lock, in the claim and in the handler (rule 1), and how long a request
	// that says NoWait does for a transaction that took its key without taking its turn (rule 20).
	groupWait = 20 * time.Millisecond
	// claimTimeout is the statement_timeout of a claim: one shorter than lockWait would turn "somebody holds it" into
	// an error that looks like a fault of the event.
	claimTimeout = lockWait + 3*time.Second
	// idleSlack is added to the handler's limit for idle_in_transaction_session_timeout.
	idleSlack = 5 * time.Second
)

// commitSQL commits only the transaction that begin_tx.sql marked, which a handler may have ended and replaced by SQL:
// the session's status looks the same then (P-13). Without arguments, both statements travel in one message.
const commitSQL = "select 1 / (coalesce(current_setting('idem.session', true), '') <> '')::int; commit"

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
	open    []dedup.Request // what was not answered by looking
	places  []int           // of open in reqs; nil: the same
	fn      func(pgx.Tx) ([]dedup.Completion, error)

	conn   session
	socket net.Conn
	tx     pgx.Tx     // the transaction itself
	xid    string     // its number at the server; "": it has written nothing
	inTurn bool       // it waits for nobody, since nobody else who does not wait is at its key
	lent   *handlerTx // what fn sees of it
	again  bool       // it may succeed if it is run once more
}

func (r *txRun) group() bool { return len(r.reqs) > 1 }

// noWait reports whether the transaction is for one request that is not to wait for another transaction (rule 20).
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

// heldKeys are the keys of some requests of a transaction. They ask for no number: that could take a second connection.
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

// handlerFailed says what an error of fn means. Its text and its chain stay as they are.
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
		// A code of another database, which fn may also use, leaves this transaction as it was.
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	return err
}

// handlerLeft looks at the transaction after fn returned no error, without a round trip.
func (r *txRun) handlerLeft() error {
	c := r.conn.Conn()
	switch {
	case c.IsClosed() && r.ctx.Err() != nil:
		return fmt.Errorf("pgstore: connection closed while the handler ran: %w", r.ctx.Err())
	case c.PgConn().IsBusy():
		return errors.New("pgstore: the handler left a result open: close its rows before returning")
	}
	return r.lent.state()
}

// end gives the connection back. A transaction that is still there, for whatever reason, is rolled back.
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
		_ = r.tx.Rollback(ctx) // if it fails the connection is closed, and the server rolls back
	}
	r.conn.Release()
}

// abandon gets rid of a connection that somebody still uses. Nothing of the driver's connection may be touched here,
// since it is not made for two at once; a socket can be closed under its user.
func (r *txRun) abandon() {
	_ = r.socket.Close()
	r.conn.Hijack() // the pool makes a new one in its place
	r.conn = session{}
}

// socketOf is the connection below TLS, which would first say good-bye and may wait to do so.
func socketOf(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}
