package pgstore

import (
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// expectation is the share of known events in the last group of a store, as a forecast for the next
// group. A wrong forecast costs one round trip.
type expectation struct{ known atomic.Uint32 }

const (
	knownNone uint32 = iota // in a transaction: read existing rows only if an insert was skipped
	knownSome               // read existing rows in the same round trip
	knownMost               // look first
)

func (e *expectation) none() bool { return e.known.Load() == knownNone }
func (e *expectation) most() bool { return e.known.Load() == knownMost }

func (e *expectation) learn(answers []dedup.Answer) {
	held := 0
	for i := range answers {
		if answers[i].Verdict.Held() {
			held++
		}
	}
	known := knownSome
	switch {
	case len(answers) < 2:
		return
	case held == len(answers):
		known = knownNone
	case 2*held < len(answers):
		known = knownMost
	}
	if e.known.Load() != known {
		e.known.Store(known)
	}
}

func unanswered(reqs []dedup.Request, answers []dedup.Answer) (open []dedup.Request, places []int) {
	for i := range answers {
		if answers[i].Verdict == 0 {
			open, places = append(open, reqs[i]), append(places, i)
		}
	}
	return open, places
}

// readExisting reads the rows of existing_*.sql. The result is the number of answered requests.
func readExisting(results pgx.BatchResults, reqs []dedup.Request,
	answers []dedup.Answer) (int64, error) {
	rows, err := results.Query()
	if err != nil {
		return 0, err
	}
	return readRows(rows, reqs, answers)
}

// readInserted counts the inserted rows. If all keys differ by their ID alone, the statement
// returns the inserted IDs, in the order of the keys.
func readInserted(results pgx.BatchResults, r *requestRows, answers []dedup.Answer) (int64, error) {
	if r.form == mixed {
		tag, err := results.Exec()
		return tag.RowsAffected(), err
	}
	rows, err := results.Query()
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var inserted int64
	for i := 0; rows.Next(); inserted++ {
		if i, err = r.find(rows, i); err != nil {
			return inserted, err
		}
		answers[i] = dedup.Answer{Verdict: dedup.Fresh, Fence: 1, First: r.reqs[i].Origin}
		i++
	}
	return inserted, rows.Err()
}

// find returns the request that the ID in the current row belongs to. The search starts at next.
// Hashed IDs have another order, so their requests are looked up in a map.
func (r *requestRows) find(rows pgx.Rows, next int) (int, error) {
	if r.places == nil {
		id := rows.RawValues()[0]
		for ; next < len(r.reqs); next++ {
			if r.reqs[next].Key.ID == string(id) {
				return next, nil
			}
		}
		return 0, errUnknown
	}
	id := pgtype.UUID{Valid: true}
	if raw := rows.RawValues()[0]; len(raw) == len(id.Bytes) { // the binary format
		copy(id.Bytes[:], raw)
	} else if err := rows.Scan(&id); err != nil {
		return 0, err
	}
	if next < len(r.places) && r.places[next].id == id {
		return next, nil
	}
	if r.byID == nil {
		r.byID = make(map[pgtype.UUID]int, len(r.places))
		for i := range r.places {
			r.byID[r.places[i].id] = i
		}
	}
	i, ok := r.byID[id]
	if !ok {
		return 0, errUnknown
	}
	return i, nil
}

// readFresh answers Fresh for the new keys. Rows that were just inserted do not count as existing.
// So if the two numbers add up, the keys without an answer are exactly the new ones. If the numbers
// do not add up, a row has changed in between, or existing rows were not read. Then the state of a
// key without an answer is unknown.
func readFresh(reqs []dedup.Request, answers []dedup.Answer, inserted,
	answered int64) (complete bool) {
	if inserted+answered != int64(len(reqs)) {
		return false
	}
	for i := range answers {
		if answers[i].Verdict == 0 {
			answers[i] = dedup.Answer{Verdict: dedup.Fresh, Fence: 1, First: reqs[i].Origin}
		}
	}
	return true
}

var verdicts = map[string]dedup.Verdict{
	"fresh": dedup.Fresh, "uncertain": dedup.Uncertain, "busy": dedup.Busy, "done": dedup.Done,
	"dead": dedup.Dead, "moved": dedup.Rescheduled, "too-old": dedup.TooOld,
}

// conflictVerdicts are the answers for copies with another fingerprint, by the answer of an equal
// copy. "mine" answers a repeated claim with another fingerprint.
var conflictVerdicts = map[string]dedup.Verdict{
	"conflict done": dedup.Done, "conflict dead": dedup.Dead, "conflict moved": dedup.Rescheduled,
	"conflict busy": dedup.Busy, "conflict mine": dedup.Busy, "conflict grant": dedup.Fresh,
}

// readRows reads and counts answers. The scan targets are made once for all rows.
func readRows(rows pgx.Rows, reqs []dedup.Request, answers []dedup.Answer) (answered int64,
	err error) {
	defer rows.Close()
	var (
		n, fence, wait      int64
		failures, takeovers int32
		verdict, topic      word
		reason              pgtype.Text
		partition           pgtype.Int4
		offset, schema      pgtype.Int8
		at                  pgtype.Timestamptz
		data                []byte
	)
	into := []any{&n, &verdict, &fence, &failures, &takeovers, &wait, &topic, &partition, &offset,
		&at, &reason, &schema, &data}
	for ; rows.Next(); answered++ {
		if err := rows.Scan(into...); err != nil {
			return answered, err
		}
		v, ok := verdicts[string(verdict)]
		known, conflict := conflictVerdicts[string(verdict)]
		if conflict {
			v, ok = known, true
		}
		if !ok || n < 1 || n > int64(len(answers)) {
			return answered, errUnknown
		}
		first := readOrigin(string(topic), partition, offset, at)
		if topic := reqs[n-1].Origin.Topic; topic == first.Topic {
			first.Topic = topic // shares the request's string
		}
		var result dedup.Result
		result.Schema, result.Data = uint32(schema.Int64), data
		answers[n-1] = dedup.Answer{Verdict: v, Fence: uint64(fence), Failures: uint32(failures),
			First: first, Takeovers: uint32(takeovers), Reason: reason.String, Result: result,
			Wait: time.Duration(wait) * time.Microsecond}
		if conflict {
			answers[n-1] = answers[n-1].Conflicted()
		}
	}
	return answered, rows.Err()
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
