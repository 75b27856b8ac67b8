package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Claim implements [dedup.Store]: one pipeline for keys that are new, done, dead, overtaken or
// too old, and a second one for the others. One call a minute also asks for the birth of the
// scope, and one for the server's time, unless no request has an age.
func (s *Store) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return err
	}
	if lease <= 0 {
		return errLease
	}
	if err := s.claim(ctx, t, lease, reqs, answers); err != nil {
		clear(answers)
		return s.unavailable(ctx, "claim", err)
	}
	return nil
}

func (s *Store) claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
) error {
	old, err := s.tooOld(ctx, reqs, true, s.birth)
	if err != nil {
		return err
	}
	sets := s.newCommands(len(reqs))
	for i := range reqs {
		what := setNew
		if len(old) > 0 && old[i] {
			what = look // an unknown event must not become a claim
		}
		rec := claimed(reqs[i].TokenOr(t), lease, &reqs[i])
		sets.add(what, reqs[i].Key, &rec, rec.total)
	}
	if err := sets.send(ctx, s.client); err != nil {
		return err
	}
	var calls []call
	var asked []int // calls[j] is for reqs[asked[j]]
	for i := range reqs {
		switch {
		case !sets.absent(i):
		case sets.kinds[i] == look:
			answers[i] = dedup.Answer{Verdict: dedup.TooOld}
			continue
		default:
			answers[i] = dedup.Answer{Verdict: dedup.Fresh, Fence: 1, First: reqs[i].Origin}
			continue
		}
		known, err := decode(sets.reply(i), sets.checks[i])
		if err != nil {
			return keyError(reqs[i].Key, err)
		}
		var settled bool
		if answers[i], settled = s.settled(&known, &reqs[i]); !settled {
			asked = append(asked, i)
			args := []any{sets.value(i), int(sets.kinds[i])}
			if second := reqs[i].Second(); second != nil {
				args = append(args, second)
			}
			calls = append(calls, call{
				script: claimScript, key: sets.name(i), token: reqs[i].TokenOr(t), args: args,
			})
		}
	}
	if err := s.runScripts(ctx, calls); err != nil {
		return err
	}
	for j, i := range asked {
		var err error
		if answers[i], err = s.granted(calls[j].reply, calls[j].token, &reqs[i]); err != nil {
			return keyError(reqs[i].Key, err)
		}
	}
	return nil
}

// claimed is the record of a new claim. The record outlives the lease by the retention, so that
// a crash of the holder leaves a record (rule 33).
func claimed(t dedup.Token, lease time.Duration, req *dedup.Request) record {
	l := millis(lease)
	return record{
		state: pending, token: t, fence: 1, position: req.Position,
		fingerprint: req.Fingerprint, first: req.Origin, lease: l, total: l + millis(req.Retention),
	}
}

// settled is the answer that r gives without a clock and without a change. claim.lua replies look
// in the same cases.
func (s *Store) settled(r *record, req *dedup.Request) (a dedup.Answer, ok bool) {
	a.First = r.first
	conflict := r.conflicts(req)
	switch {
	case r.state == done:
		a.Verdict, a.Result = dedup.Done, r.result
		if !r.result.IsZero() {
			s.results.Store(true)
		}
	case r.state == dead:
		a.Verdict, a.Reason = dedup.Dead, r.reason
	case r.state == open && overtaken(r, req):
		a.Verdict = dedup.Rescheduled
	case r.state == open && conflict: // an equal copy would get the claim
	default:
		return dedup.Answer{}, false
	}
	if conflict {
		a = a.Conflicted()
	}
	return a, true
}

// underClaim is the answer for a pending record with left milliseconds of the lease. There is no
// verdict if an equal copy would get the claim.
func (r *record) underClaim(req *dedup.Request, left int64) dedup.Answer {
	a := dedup.Answer{First: r.first}
	switch {
	case left > 0:
		a.Verdict, a.Wait = dedup.Busy, time.Duration(left)*time.Millisecond
	case overtaken(r, req):
		a.Verdict = dedup.Rescheduled
	}
	if r.conflicts(req) {
		a = a.Conflicted()
	}
	return a
}

// conflicts compares fingerprints if there are two. A replayed copy may differ, because a person
// may have repaired the copy.
func (r *record) conflicts(req *dedup.Request) bool {
	return req.Position.Generation == 0 && req.Differs(r.fingerprint)
}

func overtaken(r *record, req *dedup.Request) bool {
	return req.Position.Generation != r.position.Generation || req.Position.Retry < r.position.Retry
}

// granted is the answer in a reply of claim.lua.
func (s *Store) granted(p reply, t dedup.Token, req *dedup.Request) (dedup.Answer, error) {
	if p.code == "old" {
		return dedup.Answer{Verdict: dedup.TooOld}, nil
	}
	r, err := decode(p.value, checkOf(req.Key))
	if err != nil {
		return dedup.Answer{}, err
	}
	switch {
	case p.code == "held" && r.state == pending && r.token == t:
		a := dedup.Answer{
			Verdict: dedup.Fresh, Fence: r.fence, Failures: r.failures, Takeovers: r.takeovers,
			First: r.first,
		}
		if r.uncertain {
			a.Verdict = dedup.Uncertain
		}
		return a, nil
	case p.code == "busy" && r.state == pending && p.left > 0 && !r.conflicts(req),
		p.code == "conflict" && r.state == pending && r.conflicts(req):
		return r.underClaim(req, p.left), nil
	case p.code == "look":
		// the lease has ended, and a later copy will come
		if r.state == pending && overtaken(&r, req) {
			return dedup.Answer{Verdict: dedup.Rescheduled, First: r.first}, nil
		}
		if a, ok := s.settled(&r, req); ok {
			return a, nil
		}
	}
	return dedup.Answer{}, fmt.Errorf("reply %q does not fit the record", p.code)
}
