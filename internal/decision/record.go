package decision

import (
	"bytes"
	"time"

	"github.com/idem-go/idem/dedup"
)

// State is the state of a record. Open is released, rescheduled or reopened.
type State uint8

// The states.
const (
	Open State = iota
	Claimed
	Done
	Dead
)

// Verb is the last call of a record's token, by which a store recognises a repetition.
type Verb uint8

// The verbs. Silent means that the token has no call that ended a claim.
const (
	Silent Verb = iota
	Completed
	Released
)

// Record is the state of one key. The zero value is no record: make one with [New].
type Record struct {
	Key         dedup.Key
	Fingerprint dedup.Fingerprint
	First       dedup.Origin
	Position    dedup.Position
	State       State

	Token     dedup.Token // of the holder, or of the last call, which may be repeated
	LastCall  Verb        // the last call of the token
	Lease     time.Time   // end of the lease, if claimed
	Doubt     bool        // this claim, or the next one, is Uncertain
	Fence     uint64
	Failures  uint32
	Takeovers uint32

	// MaySucceed means that the last release was Unknown: that run may still succeed (rule 13). A
	// store that does not keep the outcome sets MaySucceed to Doubt.
	MaySucceed bool

	Reason   string
	Result   dedup.Result
	Reopened bool // waits for the first claim of a replayed copy

	Created, Changed time.Time

	Retention time.Duration
	Expires   time.Time
}

// New returns a record of the key of q that is open.
func New(q *dedup.Request, now time.Time) *Record {
	return &Record{
		Key: q.Key, Fingerprint: q.Fingerprint, First: q.Origin, Position: q.Position,
		Retention: q.Retention, Created: now,
	}
}

// Claim decides in the order of the table of [dedup.Store]. Without a grant the record is
// unchanged.
func (r *Record) Claim(t dedup.Token, lease time.Duration, q *dedup.Request,
	now time.Time) dedup.Answer {
	repeated := r.HeldBy(t) && !r.conflicts(q) // the answer was lost: repeat it
	if !repeated {
		if a, refused := r.Refuse(q, now); refused {
			return a
		}
		if r.State == Claimed { // neither completed nor released
			r.Doubt = true
			r.Takeovers++
		}
		r.State, r.Token, r.LastCall = Claimed, t, Silent
		r.Position, r.Reopened = q.Position, false
		r.sign(q)
		r.Fence++
		r.Retention = max(r.Retention, q.Retention)
	}
	r.Renew(lease, now)
	a := dedup.Answer{First: r.First}
	r.granted(&a)
	return a
}

// Refuse returns the answer for a request without a claim, unless the claim may be granted. The
// record stays as it is.
func (r *Record) Refuse(q *dedup.Request, now time.Time) (a dedup.Answer, refused bool) {
	a, refused = r.refuseEqual(q, now)
	if r.conflicts(q) {
		return a.Conflicted(), true
	}
	if !refused {
		return dedup.Answer{}, false
	}
	return a, true
}

// refuseEqual is Refuse for a copy with the same content. Without a refusal the answer has no
// verdict.
func (r *Record) refuseEqual(q *dedup.Request, now time.Time) (a dedup.Answer, refused bool) {
	a.First = r.First
	switch {
	case r.State == Done:
		a.Verdict = dedup.Done
		a.Result = dedup.Result{Schema: r.Result.Schema, Data: bytes.Clone(r.Result.Data)}
	case r.State == Dead:
		a.Verdict, a.Reason = dedup.Dead, r.Reason
	case r.Live(now):
		a.Verdict, a.Wait = dedup.Busy, r.Lease.Sub(now)
	case q.Position.Generation != r.Position.Generation, q.Position.Before(r.Position):
		a.Verdict = dedup.Rescheduled
	default:
		return a, false
	}
	return a, true
}

func (r *Record) granted(a *dedup.Answer) {
	a.Verdict = dedup.Fresh
	if r.Doubt {
		a.Verdict = dedup.Uncertain
	}
	a.Fence, a.Failures, a.Takeovers = r.Fence, r.Failures, r.Takeovers
}

// conflicts compares the fingerprints if there are two. A replayed copy may differ, since a
// person may have repaired the copy.
func (r *Record) conflicts(q *dedup.Request) bool {
	return q.Position.Generation == 0 && q.Differs(r.Fingerprint)
}

// sign keeps the fingerprint of a claim if the record has no fingerprint. That of a replayed
// copy is not kept: the copy may have been repaired.
func (r *Record) sign(q *dedup.Request) {
	if r.Fingerprint == (dedup.Fingerprint{}) && r.Position.Generation == 0 {
		r.Fingerprint = q.Fingerprint
	}
}

// Live reports whether a claim is held and its lease has not ended.
func (r *Record) Live(now time.Time) bool { return r.State == Claimed && r.Lease.After(now) }

// HeldBy reports whether t holds the claim. The lease may have ended.
func (r *Record) HeldBy(t dedup.Token) bool { return r.State == Claimed && r.Token == t }

// Renew begins the lease anew. The record is kept for the retention after it (rule 33).
func (r *Record) Renew(lease time.Duration, now time.Time) {
	r.Changed, r.Lease = now, now.Add(lease)
	r.Expires = r.Lease.Add(r.Retention)
}

// TooOld reports whether an event without a record may be a forgotten one (rule 8): its time lies
// before the horizon of the scope. Without a horizon pass the zero time. A later copy is never too
// old, and a Kafka record without a time has no age.
func TooOld(q *dedup.Request, horizon time.Time) bool {
	return !horizon.IsZero() && !q.AnyAge && q.Position == (dedup.Position{}) &&
		q.Origin.Time.UnixMilli() > 0 && q.Origin.Time.Before(horizon)
}
