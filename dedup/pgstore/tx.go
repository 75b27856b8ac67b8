package pgstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// lockWait is how long a single request waits for the transaction that holds its key (rule 10).
	lockWait = 2 * time.Second
	// groupWait is how long a group waits for any lock, in the claim and in the handler (rule 1), and how long a request
	// that says NoWait does for a transaction that took its key without taking its turn (rule 20).
	groupWait = 20 * time.Millisecond
	// claimTimeout is the statement_timeout of a claim: one shorter than lockWait would turn "somebody holds it" into
	// an error that looks like a fault of the event.
	claimTimeout = lockWait + 3*time.Second
	// idleSlack is added to the handler's limit for idle_in_transaction_session_timeout.
	idleSlack = 5 * time.Second
)

// ClaimTx implements [dedup.TxStore]. fn gets a transaction of the level READ COMMITTED. Its Commit and Rollback return
// [ErrTxOwned]; savepoints (Begin) are allowed; Conn gives the connection itself, past these guards. After fn has
// returned, tx returns [pgx.ErrTxClosed].
//
// If fn panics or ends its goroutine, the transaction is rolled back and the panic goes on.
//
// A request with NoWait takes an advisory lock of the transaction on a number made of the schema and the key, in the same round
// trip. Who does not get it is answered by what is committed, or Busy, and has given its connection back. A transaction that
// holds the key without that lock, because it waits for others or is the caller's own ([Store.Once]), is waited for 20 ms.
// Two keys with one number, of 64 bits, make a needless Busy.
//
// A limit that is not positive leaves idle_in_transaction_session_timeout as the session has it. A Busy answer has no
// Wait: nobody knows when the other transaction ends.
func (s *Store) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(tx pgx.Tx) ([]dedup.Completion, error)) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return fmt.Errorf("pgstore: claim: %w", err)
	}
	if len(reqs) == 0 {
		return nil
	}
	q, err := s.statements(ctx)
	if err != nil {
		return s.failed(ctx, "claim", err)
	}
	numbers, err := s.places(ctx, reqs)
	if err != nil {
		clear(answers)
		return err
	}
	for try := 1; ; try++ {
		r := &txRun{ctx: ctx, s: s, q: q, limit: limit, reqs: reqs, numbers: numbers, answers: answers, open: reqs, fn: fn}
		err := r.run()
		if err != nil {
			clear(answers)
		}
		if !r.again || try == attempts || pause(ctx, try) != nil {
			return err
		}
		clear(answers)
	}
}

// txRun is one transaction of ClaimTx.
type txRun struct {
	ctx     context.Context
	s       *Store
	q       *statements
	limit   time.Duration
	reqs    []dedup.Request
	numbers []place // of reqs, in the compact layout
	answers []dedup.Answer
	open    []dedup.Request // what was not answered by looking
	places  []int           // of open in reqs; nil: the same
	fn      func(pgx.Tx) ([]dedup.Completion, error)

	conn   *pgxpool.Conn
	socket net.Conn
	tx     pgx.Tx     // the transaction itself
	xid    string     // its number at the server; "": it has written nothing
	inTurn bool       // it waits for nobody, since nobody else who does not wait is at its key
	lent   *handlerTx // what fn sees of it
	again  bool       // it may succeed if it is run once more
}

func (r *txRun) group() bool { return len(r.reqs) > 1 }

func (r *txRun) run() (err error) {
	if r.group() && r.s.events.most() {
		if err := r.look(); err != nil || len(r.open) == 0 {
			return err
		}
	}
	if r.conn, err = r.s.acquire(r.ctx); err != nil {
		return r.s.failed(r.ctx, "claim", err)
	}
	dedup.ClaimBegins(r.ctx)
	r.socket = socketOf(r.conn.Conn().PgConn().Conn())
	defer r.end() // also when fn panics
	name := r.conn.Conn().PgConn().ParameterStatus(nameParameter)
	if err := r.claim(); err != nil {
		return r.claimFailed(err)
	}
	r.s.events.learn(r.answers)
	if !slices.ContainsFunc(r.answers, func(a dedup.Answer) bool { return a.Verdict == dedup.Fresh }) {
		return nil
	}
	return r.handle(name)
}

// handle lends the transaction to fn and commits. name is the session's outside of it.
func (r *txRun) handle(name string) error {
	r.lent = &handlerTx{Tx: r.tx, outside: name,
		marked: name != r.conn.Conn().PgConn().ParameterStatus(nameParameter)}
	done, err := r.fn(r.lent)
	r.lent.close()
	if errors.Is(err, dedup.ErrAbandoned) {
		r.abandon()
		if ended, ok := errors.AsType[*dedup.TxEndedError](err); ok {
			return r.takeBack(ended, err)
		}
		return err
	}
	return r.unwritten(r.finishRun(done, err))
}

// finishRun ends the transaction after fn has returned and nobody uses it any longer.
func (r *txRun) finishRun(done []dedup.Completion, err error) error {
	if err != nil {
		if ended, ok := errors.AsType[*dedup.TxEndedError](err); ok {
			return r.takeBack(ended, err)
		}
		return r.handlerFailed(err)
	}
	if err := r.handlerLeft(); err != nil {
		return err
	}
	if err := r.flush(); err != nil {
		if errors.Is(err, errBusy) {
			return nil
		}
		return err
	}
	return r.commit(done)
}

func (r *txRun) look() error {
	err := r.s.look(r.ctx, r.reqs, r.answers, r.numbers, func(q *statements, rows *requestRows) (string, []any) {
		return q.lookEvents[rows.form], rows.existing()
	})
	if err == nil {
		r.open, r.places = unanswered(r.reqs, r.answers)
	}
	return err
}

// claim begins the transaction and claims, in one round trip. What was not inserted is asked for in a second one: most
// events are new, and to look for those too would cost as much as to insert them.
func (r *txRun) claim() error {
	rows, answers := newRequestRows(r.open, at(r.numbers, r.places)), r.answers
	if r.places != nil {
		answers = make([]dedup.Answer, len(r.open))
	}
	along := rows.form == mixed && !r.s.events.none()
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{BeginQuery: beginSQL, CommitQuery: commitSQL})
	r.queueSettings(&b, r.group())
	if r.noWait() {
		b.Queue(r.q.takeTurn, turnOf(r.q.schema, &r.reqs[0].Key))
		b.Queue(r.q.insertInTurn, rows.insert()...)
	} else {
		b.Queue(r.q.insertEvents[rows.form], rows.insert()...)
	}
	inserted, answered, err := r.ask(&b, rows, r.open, answers, true, along)
	if err == nil && r.noWait() && !r.inTurn {
		return r.outOfTurn(rows)
	}
	if err == nil && !along && inserted < int64(len(r.open)) {
		answered, err = r.askRest(answers)
	}
	if err == nil && !readFresh(r.open, answers, inserted, answered) {
		err = errNoAnswer
	}
	for i, p := range r.places {
		r.answers[p] = answers[i]
	}
	return err
}

// askRest asks for what has no answer yet.
func (r *txRun) askRest(answers []dedup.Answer) (answered int64, err error) {
	rest, places := unanswered(r.open, answers)
	found := make([]dedup.Answer, len(rest))
	var b pgx.Batch
	r.queueSettings(&b, false)
	_, answered, err = r.ask(&b, newRequestRows(rest, at(at(r.numbers, r.places), places)), rest, found, false, true)
	for i, p := range places {
		answers[p] = found[i]
	}
	return answered, err
}

func (r *txRun) queueSettings(b *pgx.Batch, mark bool) {
	wait, idle := groupWait, ""
	if !r.group() && !r.noWait() {
		wait = lockWait
	}
	if r.limit > 0 {
		idle = milliseconds(r.limit + idleSlack)
	}
	b.Queue(r.q.beginTx, milliseconds(wait), milliseconds(claimTimeout), idle, r.s.durable, mark)
}

// ask sends a batch that begins with settings: a new transaction with an insert, or more of one. along says whether to ask
// for what exists.
func (r *txRun) ask(b *pgx.Batch, rows *requestRows, reqs []dedup.Request, answers []dedup.Answer, begins, along bool) (
	inserted, answered int64, err error) {
	if along {
		b.Queue(r.q.existingEvents[rows.form], rows.existing()...)
	}
	b.Queue(r.q.restore, !r.group())
	ctx, cancel := context.WithTimeout(r.ctx, r.s.silence)
	defer cancel()
	results := r.conn.SendBatch(ctx, b)
	settings := 1
	if begins {
		r.tx = results.Tx()
		settings = 2
	}
	for i := 0; i < settings && err == nil; i++ {
		_, err = results.Exec()
	}
	if err == nil && begins && r.noWait() {
		err = results.QueryRow().Scan(&r.inTurn)
	}
	if err == nil && begins {
		inserted, err = readInserted(results, rows, answers)
	}
	if err == nil && along {
		answered, err = readExisting(results, reqs, answers)
	}
	if err == nil {
		var xid *string
		err = results.QueryRow().Scan(&xid, nil, nil, nil, nil, nil, nil)
		r.xid = value(xid)
	}
	return inserted, answered, cmp.Or(err, results.Close()) // closing tells what has failed already once more
}

// claimFailed says what an error of the claim means, before any handler ran.
func (r *txRun) claimFailed(err error) error {
	code := sqlState(err)
	switch {
	case r.group() && (code == codeNoLock || code == codeDeadlock || code == codeSerialization):
		return contended(err)
	case r.group() && errors.Is(err, errNoAnswer):
		r.again = true
		return contended(err)
	case code == codeNoLock: // somebody holds it: that is an answer (rules 10 and 20)
		r.answers[0] = dedup.Answer{Verdict: dedup.Busy}
		return nil
	}
	r.again = lostRace(err)
	return r.s.failed(r.ctx, "claim", err)
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

// commit stores the completions that say more than "done" and commits.
func (r *txRun) commit(done []dedup.Completion) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), endTimeout)
	defer cancel()
	keys, ends := newHeldKeys(r, len(done)), newEndRows(len(done))
	var dead deadOrigins
	buried := newHeldKeys(r, 0)
	for i := range done {
		at, plain, err := r.checkCompletion(&done[i])
		if err != nil {
			return err
		}
		if plain {
			continue
		}
		keys.add(at)
		if err := ends.add(&done[i]); err != nil {
			return fmt.Errorf("pgstore: complete: %w", err)
		}
		if dead.add(i, &done[i]); len(dead.claims) > len(buried.texts.id)+len(buried.ids) {
			buried.add(at)
		}
	}
	err := r.finish(ctx, ends, keys, &dead, buried)
	if err != nil {
		return r.s.failed(ctx, "complete", err)
	}
	if err = r.tx.Commit(ctx); err == nil {
		return nil
	}
	switch code := sqlState(err); {
	case code == codeZero && r.conn.Conn().PgConn().TxStatus() == 'E': // not COMMIT failed, but what stands before it
		return fmt.Errorf("pgstore: %w, and began another", dedup.ErrTxEnded)
	case code == codeSerialization || code == codeDeadlock:
		if r.group() {
			return contended(err)
		}
		r.again = true
	}
	return commitError(err)
}

// finish writes what completions say: one round trip.
func (r *txRun) finish(ctx context.Context, ends *endRows, keys *heldKeys, dead *deadOrigins, buried *heldKeys) error {
	if len(ends.status) == 0 {
		return nil
	}
	var b pgx.Batch
	b.Queue(r.q.finishEvents, append(ends.args(), keys.args()...)...)
	if !dead.none() {
		if r.numbers != nil {
			// Made here, not in a transaction of their own, which could take a second connection: only the rows of this
			// one use them, and nobody remembers them.
			b.Queue(r.q.newOrigins, dead.topic, dead.part)
		}
		b.Queue(r.q.originEvents, dead.args(buried.args())...)
	}
	return r.tx.SendBatch(ctx, &b).Close()
}

// checkCompletion returns which request c is about and whether its row already says what c says.
func (r *txRun) checkCompletion(c *dedup.Completion) (i int, plain bool, err error) {
	i, ok := slices.BinarySearchFunc(r.reqs, c.Key, func(q dedup.Request, k dedup.Key) int { return q.Key.Compare(k) })
	switch {
	case !ok || r.answers[i].Verdict != dedup.Fresh:
		return i, false, fmt.Errorf("pgstore: complete: key %q is not held by this transaction", c.Key)
	case c.Retention <= 0:
		return i, false, fmt.Errorf("pgstore: complete: key %q: retention must be positive", c.Key)
	}
	return i, c.Dead == "" && c.Retry == 0 && c.Result.IsZero() && c.Retention <= r.reqs[i].Retention, nil
}

// end gives the connection back. A transaction that is still there, for whatever reason, is rolled back.
func (r *txRun) end() {
	if r.conn == nil {
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
	giveBack(r.conn)
}

// abandon gets rid of a connection that somebody still uses. Nothing of the driver's connection may be touched here,
// since it is not made for two at once; a socket can be closed under its user.
func (r *txRun) abandon() {
	_ = r.socket.Close()
	r.conn.Hijack() // the pool makes a new one in its place
	r.conn = nil
}

// socketOf is the connection below TLS, which would first say good-bye and may wait to do so.
func socketOf(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

func contended(err error) error {
	return fmt.Errorf("pgstore: %w: %w", dedup.ErrContended, err)
}
