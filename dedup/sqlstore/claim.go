package sqlstore

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// Claim implements [dedup.Store] in one transaction. The transaction reads and locks the rows in
// the order of the keys, and decides. Then it writes the changed rows in one statement, and the new
// rows in another.
func (s *Store) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return s.wrong("claim", err)
	}
	if lease <= 0 {
		return s.wrong("claim", errLease)
	}
	if len(reqs) == 0 {
		return nil
	}
	err := s.ownTx(ctx, "claim", scopesOf(reqs), func(ctx context.Context, w *work) error {
		clear(answers)
		_, err := w.claim(ctx, keysTable, reqs, answers, func(r *decision.Record,
			q *dedup.Request) dedup.Answer {
			return r.Claim(q.TokenOr(t), lease, q, w.now)
		})
		return err
	})
	if err != nil {
		clear(answers)
	}
	return err
}

// claim answers the requests and writes the claims that are granted. The records are those of the
// granted requests, by their indices.
func (w *work) claim(ctx context.Context, t *table, reqs []dedup.Request, answers []dedup.Answer,
	grant func(*decision.Record, *dedup.Request) dedup.Answer) (map[int]*decision.Record, error) {
	found, err := w.read(ctx, t, keysOf(reqs), w.d.Lock)
	if err != nil {
		return nil, err
	}
	granted := make(map[int]*decision.Record)
	var added, changed []*decision.Record
	for i := range reqs {
		q := &reqs[i]
		r, there := found[q.Key]
		if !there {
			if decision.TooOld(q, w.horizons[q.Key.Scope]) {
				answers[i] = dedup.Answer{Verdict: dedup.TooOld}
				continue
			}
			r = decision.New(q, w.now)
		}
		old := r.Expires
		answers[i] = grant(r, q)
		if !answers[i].Verdict.Held() {
			continue
		}
		r.Expires = later(r.Expires, old) // the longest retention that a call has asked for
		granted[i] = r
		if there {
			changed = append(changed, r)
		} else {
			added = append(added, r)
		}
	}
	if err := t.replace(ctx, w.q, w.d, changed); err != nil {
		return nil, err
	}
	return granted, t.add(ctx, w.q, w.d, added)
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func keysOf(reqs []dedup.Request) []dedup.Key {
	keys := make([]dedup.Key, len(reqs))
	for i := range reqs {
		keys[i] = reqs[i].Key
	}
	return keys
}

// Look implements [dedup.Looker], without a lock.
func (s *Store) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.look(ctx, keysTable, reqs, answers)
}

// LookTx implements [dedup.TxLooker]. LookTx never waits for a transaction.
func (s *Store) LookTx(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.look(ctx, eventsTable, reqs, answers)
}

func (s *Store) look(ctx context.Context, t *table, reqs []dedup.Request,
	answers []dedup.Answer) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return s.wrong("look", err)
	}
	if len(reqs) == 0 {
		return nil
	}
	err := s.reading(ctx, "look", scopesOf(reqs), func(ctx context.Context, w *work) error {
		found, err := w.read(ctx, t, keysOf(reqs), "")
		if err != nil {
			return err
		}
		for i := range reqs {
			q := &reqs[i]
			switch r, there := found[q.Key]; {
			case there:
				answers[i], _ = r.Refuse(q, w.now)
			case decision.TooOld(q, w.horizons[q.Key.Scope]):
				answers[i].Verdict = dedup.TooOld
			}
		}
		return nil
	})
	if err != nil {
		clear(answers)
	}
	return err
}

// reading runs fn with the connections for look-ups, without a transaction.
func (s *Store) reading(ctx context.Context, verb string, scopes []string,
	fn func(context.Context, *work) error) error {
	bounded, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	return s.failed(ctx, verb, fn(bounded, &work{q: s.reader, d: s.d, scopes: scopes}))
}
