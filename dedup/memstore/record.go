package memstore

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/dedup"
)

// state is what a record is. The zero state is one that waits: released, moved on or reopened.
type state uint8

const (
	open state = iota
	claimed
	done
	dead
)

// record is all that is remembered of one key.
type record struct {
	key         dedup.Key
	fingerprint dedup.Fingerprint
	first       dedup.Origin
	position    dedup.Position
	state       state

	token     dedup.Token // who holds it, or who spoke last: a repeat of his last word succeeds
	lastWord  verb        // what he said last
	lease     time.Time   // its end, if claimed
	doubt     bool        // the verdict of this claim, or of the next one, is Uncertain
	fence     uint64
	failures  uint32
	takeovers uint32

	reason   string
	result   dedup.Result
	reopened bool // waits for the copy that a redrive publishes, which nobody has claimed yet

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
		key: r.Key, fingerprint: r.Fingerprint, first: r.Origin, position: r.Position, retention: r.Retention, created: now,
	}
}

// claim decides, from top to bottom as the table of the contract does.
func (r *record) claim(t dedup.Token, lease time.Duration, q *dedup.Request, now time.Time) dedup.Answer {
	repeated := r.heldBy(t) && !r.conflicts(q) // the reply was lost: the same answer again
	if !repeated {
		if a, refused := r.refuse(q, now); refused {
			return a
		}
		if r.state == claimed { // its holder never spoke
			r.doubt = true
			r.takeovers++
		}
		r.state, r.token, r.lastWord = claimed, t, silent
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

// refuse is the answer for somebody who holds nothing, unless he may have the claim. Nothing changes.
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

// refuseEqual is refuse for a copy of the same content. The answer has no verdict if it is not refused.
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

// conflicts compares fingerprints if there are two. A copy that was redriven may differ: somebody repaired it.
func (r *record) conflicts(q *dedup.Request) bool {
	return q.Position.Generation == 0 && dedup.Differ(r.fingerprint, q.Fingerprint)
}

// sign takes the fingerprint of a claim where none is kept, but not that of a redriven copy: it may have been repaired.
func (r *record) sign(q *dedup.Request) {
	if r.fingerprint == (dedup.Fingerprint{}) && r.position.Generation == 0 {
		r.fingerprint = q.Fingerprint
	}
}

func (r *record) heldBy(t dedup.Token) bool { return r.state == claimed && r.token == t }

// said reports whether v was the last word on this record, and t's.
func (r *record) said(v verb, t dedup.Token) bool {
	return r.state != claimed && r.lastWord == v && r.token == t
}

// late reports whether c is the success of a run whose claim was released in doubt, and nobody has claimed since (rule 13).
func (r *record) late(c *dedup.Completion) bool {
	return c.Dead == "" && c.Retry == 0 && r.doubt && r.said(released, c.Token)
}

// renew lets the lease begin anew. The record outlives it by its retention (rule 33).
func (r *record) renew(lease time.Duration, now time.Time) {
	r.changed, r.lease = now, now.Add(lease)
	r.expires = r.lease.Add(r.retention)
}

// complete reports whether c's holder may speak, or has said this before.
func (r *record) complete(c *dedup.Completion, now time.Time) bool {
	if !r.heldBy(c.Token) && !r.late(c) {
		return r.said(completed, c.Token)
	}
	r.lastWord = completed
	switch {
	case c.Dead != "":
		r.state, r.reason = dead, reason(c.Dead)
		if known(c.First) { // the dead letter is of that delivery (rule 6)
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
		return r.said(released, c.Token)
	}
	r.state, r.lastWord = open, released
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
	r.state, r.reopened, r.lastWord = open, true, silent
	r.position = dedup.Position{Generation: r.position.Generation + 1}
	r.reason = ""
	r.doubt, r.failures, r.takeovers = false, 0, 0
	r.keep(r.retention, now)
	return true
}

// discard gives the record up for good, whoever holds it. It is kept for as long as it was to be kept, if that is longer.
func (r *record) discard(why string, retention time.Duration, now time.Time) {
	r.state, r.lastWord, r.reopened = dead, silent, false
	r.reason = reason(dedup.ReasonDiscarded + why)
	r.keep(max(retention, r.expires.Sub(now)), now)
}

// known reports whether o says anything.
func known(o dedup.Origin) bool { return !o.Same(dedup.Origin{}) || !o.Time.IsZero() }

func (r *record) keep(retention time.Duration, now time.Time) {
	r.changed, r.retention = now, retention
	r.expires = now.Add(retention)
}

// reason is text as every store can keep it: valid UTF-8 without NUL, at most MaxReason bytes and no half character.
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
