package pgstore

import (
	"cmp"
	"context"
	"errors"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

func (r *txRun) look() error {
	err := lookFor(r.ctx, r.db, r.reqs, r.answers, r.numbers,
		func(q *statements, rows *requestRows) (string, []any) {
			return q.lookEvents[rows.form], rows.existing()
		})
	if err == nil {
		r.open, r.places = unanswered(r.reqs, r.answers)
	}
	return err
}

// claim begins the transaction and inserts the claims in one round trip. Keys that were not
// inserted are looked up in a second one. Most events are new, and to look these up would cost as
// much as to insert them.
func (r *txRun) claim() error {
	rows, answers := newRequestRows(r.open, placesAt(r.numbers, r.places)), r.answers
	if r.places != nil {
		answers = make([]dedup.Answer, len(r.open))
	}
	along := rows.form == mixed && !r.known.none()
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

// askRest looks up the keys that have no answer yet.
func (r *txRun) askRest(answers []dedup.Answer) (answered int64, err error) {
	rest, places := unanswered(r.open, answers)
	found := make([]dedup.Answer, len(rest))
	var b pgx.Batch
	r.queueSettings(&b, false)
	numbers := placesAt(placesAt(r.numbers, r.places), places)
	_, answered, err = r.ask(&b, newRequestRows(rest, numbers), rest, found, false, true)
	for i, p := range places {
		answers[p] = found[i]
	}
	return answered, err
}

// ask sends a batch that begins with settings: a new transaction with an insert, or a later look.
// along: also look up existing rows.
func (r *txRun) ask(b *pgx.Batch, rows *requestRows, reqs []dedup.Request, answers []dedup.Answer,
	begins, along bool) (
	inserted, answered int64, err error) {
	if along {
		b.Queue(r.q.existingEvents[rows.form], rows.existing()...)
	}
	b.Queue(r.q.restore, !r.group())
	ctx, cancel := context.WithTimeout(r.ctx, r.db.silence)
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
	// Close repeats an error that a statement has returned
	return inserted, answered, cmp.Or(err, results.Close())
}

// claimFailed explains an error of the claim. No handler has run.
func (r *txRun) claimFailed(err error) error {
	code := sqlState(err)
	switch {
	case r.group() && (code == codeNoLock || code == codeDeadlock || code == codeSerialization):
		return contended(err)
	case r.group() && errors.Is(err, errNoAnswer):
		r.again = true
		return contended(err)
	case code == codeNoLock:
		// another transaction holds the key: the answer is Busy (rules 10 and 20)
		r.answers[0] = dedup.Answer{Verdict: dedup.Busy}
		return nil
	}
	r.again = lostRace(err)
	return r.db.failed(r.ctx, "claim", err)
}
