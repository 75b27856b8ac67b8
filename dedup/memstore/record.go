package memstore

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/dedup"
)

// state of a record. open is released, rescheduled or reopened.
type state uint8

const (
	open state = iota
	claimed
	done
	dead
)

// record is the state of one key.
type record struct {
	key         dedup.Key
	fingerprint dedup.Fingerprint
	first       dedup.Origin
	position    dedup.Position
	state       state

	token     dedup.Token // of the holder, or of the last call, which may be repeated
	lastCall  verb        // the last call of the token
	lease     time.Time   // end of the lease, if claimed
	doubt     bool        // this claim, or the next one, is Uncertain
	fence     uint64
	failures  uint32
	takeovers uint32

	reason   string
	result   dedup.Result
	reopened bool // waits for the first claim of a replayed copy

	differing []dedup.Origin // copies with another content

	created, changed time.Time

	retention time.Duration
	expires   time.Time
	index     int // in the heap
}

type verb uint8

const (
	silent verb = iota
	completed
	released
)

func newRecord(r *dedup.Request, now time.Time) *record {
	return &record{
		key: r.Key, fingerprint: r.Fingerprint, first: r.Origin, position: r.Position,
		retention: r.Retention, created: now,
	}
}

// claim decides in the order of the contract's table.
func (r *record) claim(t dedup.Token, lease time.Duration, q *dedup.Request,
	now time.Time) dedup.Answer {
	repeated := r.heldBy(t) && !r.conflicts(q) // the answer was lost: repeat it
	if !repeated {
		if a, refused := r.refuse(q, now); refused {
			return a
		}
		if r.state == claimed { // neither completed nor released
			r.doubt = true
			r.takeovers++
		}
		r.state, r.token, r.lastCall = claimed, t, silent
		r.position, r.reopened = q.Position, false
		r.sign(q)
		r.fence++
		r.retention = max(r.retention, q.Retention)
	}
	r.renew(lease, now)
	a := dedup.Answer{First: r.first}
	r.granted(&a)
	return a
}

// refuse returns the answer for a request without a claim, unless the claim may be granted. The
// record stays as it is.
func (r *record) refuse(q *dedup.Request, now time.Time) (a dedup.Answer, refused bool) {
	a, refused = r.refuseEqual(q, now)
	if r.conflicts(q) {
		return a.Conflicted(), true
	}
	if !refused {
		return dedup.Answer{}, false
	}
	return a, true
}

// refuseEqual is refuse for a copy with the same content. Without a refusal the answer has no
// verdict.
func (r *record) refuseEqual(q *dedup.Request, now time.Time) (a dedup.Answer, refused bool) {
	a.First = r.first
	switch {
	case r.state == done:
		a.Verdict = dedup.Done
		a.Result = dedup.Result{Schema: r.result.Schema, Data: bytes.Clone(r.result.Data)}
	case r.state == dead:
		a.Verdict, a.Reason = dedup.Dead, r.reason
	case r.state == claimed && r.lease.After(now):
		a.Verdict, a.Wait = dedup.Busy, r.lease.Sub(now)
	case q.Position.Generation != r.position.Generation, q.Position.Before(r.position):
		a.Verdict = dedup.Rescheduled
	default:
		return a, false
	}
	return a, true
}

func (r *record) granted(a *dedup.Answer) {
	a.Verdict = dedup.Fresh
	if r.doubt {
		a.Verdict = dedup.Uncertain
	}
	a.Fence, a.Failures, a.Takeovers = r.fence, r.failures, r.takeovers
}

// conflicts compares the fingerprints if there are two. A replayed copy may differ, since a
// person may have repaired the copy.
func (r *record) conflicts(q *dedup.Request) bool {
	return q.Position.Generation == 0 && dedup.Differ(r.fingerprint, q.Fingerprint)
}

// sign keeps the fingerprint of a claim if the record has no fingerprint. That of a replayed
// copy is not kept: the copy may have been repaired.
func (r *record) sign(q *dedup.Request) {
	if r.fingerprint == (dedup.Fingerprint{}) && r.position.Generation == 0 {
		r.fingerprint = q.Fingerprint
	}
}

func (r *record) heldBy(t dedup.Token) bool { return r.state == claimed && r.token == t }

// endedBy reports whether v under token t was the last call on this record.
func (r *record) endedBy(v verb, t dedup.Token) bool {
	return r.state != claimed && r.lastCall == v && r.token == t
}

// late reports whether c is the success of a run after the release of the claim as Unknown,
// without a claim since (rule 13).
func (r *record) late(c *dedup.Completion) bool {
	return c.Dead == "" && c.Retry == 0 && r.doubt && r.endedBy(released, c.Token)
}

// renew begins the lease anew. The record is kept for the retention after it (rule 33).
func (r *record) renew(lease time.Duration, now time.Time) {
	r.changed, r.lease = now, now.Add(lease)
	r.expires = r.lease.Add(r.retention)
}

// complete reports whether c is of the holder, or a repetition.
func (r *record) complete(c *dedup.Completion, now time.Time) bool {
	if !r.heldBy(c.Token) && !r.late(c) {
		return r.endedBy(completed, c.Token)
	}
	r.lastCall = completed
	switch {
	case c.Dead != "":
		r.state, r.reason = dead, reason(c.Dead)
		if known(c.First) { // of the delivery whose dead letter was sent (rule 6)
			r.first = c.First
		}
	case c.Retry != 0:
		r.state, r.position.Retry = open, c.Retry
	default:
		r.state = done
		r.result = dedup.Result{Schema: c.Result.Schema, Data: slices.Clone(c.Result.Data)}
	}
	r.keep(c.Retention, now)
	return true
}

func (r *record) release(c *dedup.Release, now time.Time) bool {
	if !r.heldBy(c.Token) {
		return r.endedBy(released, c.Token)
	}
	r.state, r.lastCall = open, released
	if c.Outcome == dedup.Failed {
		r.failures++
	}
	if c.Outcome == dedup.Unknown {
		r.doubt = true
	}
	if c.Outcome == dedup.Undone && !r.doubt {
		r.fingerprint = dedup.Fingerprint{}
	}
	r.keep(c.Retention, now)
	return true
}

func (r *record) reopen(now time.Time) bool {
	if r.reopened {
		return true
	}
	if r.state != dead {
		return false
	}
	r.state, r.reopened, r.lastCall = open, true, silent
	r.position = dedup.Position{Generation: r.position.Generation + 1}
	r.reason = ""
	r.doubt, r.failures, r.takeovers = false, 0, 0
	r.keep(r.retention, now)
	return true
}

// discard gives the event up, also while a claim is held. The record keeps its own expiry if that
// is later.
func (r *record) discard(why string, retention time.Duration, now time.Time) {
	r.state, r.lastCall, r.reopened = dead, silent, false
	r.reason = reason(dedup.ReasonDiscarded + why)
	r.keep(max(retention, r.expires.Sub(now)), now)
}

// known reports whether o is not zero.
func known(o dedup.Origin) bool { return !o.Same(dedup.Origin{}) || !o.Time.IsZero() }

func (r *record) keep(retention time.Duration, now time.Time) {
	r.changed, r.retention = now, retention
	r.expires = now.Add(retention)
}

// reason returns s in a form that every store can keep: valid UTF-8 without NUL, at most MaxReason
// bytes, without a cut character.
func reason(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	if len(s) <= dedup.MaxReason {
		return s
	}
	n := dedup.MaxReason
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
