package decision

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/dedup"
)

// endedBy reports whether v under token t was the last call on this record.
func (r *Record) endedBy(v Verb, t dedup.Token) bool {
	return r.State != Claimed && r.LastCall == v && r.Token == t
}

// late reports whether c is the success of a run after the release of the claim as Unknown,
// without a claim since (rule 13).
func (r *Record) late(c *dedup.Completion) bool {
	return c.Dead == "" && c.Retry == 0 && r.MaySucceed && r.endedBy(Released, c.Token)
}

// Complete reports whether c is of the holder, or a repetition. changed reports whether the record
// must be written.
func (r *Record) Complete(c *dedup.Completion, now time.Time) (served, changed bool) {
	if !r.HeldBy(c.Token) && !r.late(c) {
		return r.endedBy(Completed, c.Token), false
	}
	r.End(c, now)
	return true, true
}

// End writes the completion c, no matter which token holds the claim.
func (r *Record) End(c *dedup.Completion, now time.Time) {
	r.LastCall = Completed
	switch {
	case c.Dead != "":
		r.State, r.Reason = Dead, Reason(c.Dead)
		if known(c.First) { // of the delivery whose dead letter was sent (rule 6)
			r.First = c.First
		}
	case c.Retry != 0:
		r.State, r.Position.Retry = Open, c.Retry
	default:
		r.State = Done
		r.Result = dedup.Result{Schema: c.Result.Schema, Data: slices.Clone(c.Result.Data)}
	}
	r.Keep(c.Retention, now)
}

// Release reports whether c is of the holder, or a repetition. changed reports whether the record
// must be written.
func (r *Record) Release(c *dedup.Release, now time.Time) (served, changed bool) {
	if !r.HeldBy(c.Token) {
		return r.endedBy(Released, c.Token), false
	}
	r.State, r.LastCall, r.MaySucceed = Open, Released, c.Outcome == dedup.Unknown
	if c.Outcome == dedup.Failed {
		r.Failures++
	}
	if c.Outcome == dedup.Unknown {
		r.Doubt = true
	}
	if c.Outcome == dedup.Undone && !r.Doubt {
		r.Fingerprint = dedup.Fingerprint{}
	}
	r.Keep(c.Retention, now)
	return true, true
}

// Reopen turns a dead record into one that waits for a copy of the next generation. ok is false if
// the record is not dead. A record that was reopened before stays as it is.
func (r *Record) Reopen(now time.Time) (ok bool) {
	if r.Reopened {
		return true
	}
	if r.State != Dead {
		return false
	}
	r.State, r.Reopened, r.LastCall, r.Token = Open, true, Silent, dedup.Token{}
	r.Position = dedup.Position{Generation: r.Position.Generation + 1}
	r.Reason = ""
	r.Doubt, r.Failures, r.Takeovers = false, 0, 0
	r.Keep(r.Retention, now)
	return true
}

// Discard gives the event up, also while a claim is held. The record keeps its own expiry if that
// is later.
func (r *Record) Discard(why string, retention time.Duration, now time.Time) {
	r.State, r.LastCall, r.Reopened, r.Token = Dead, Silent, false, dedup.Token{}
	r.Reason = Reason(dedup.ReasonDiscarded + why)
	r.Keep(max(retention, r.Expires.Sub(now)), now)
}

// Keep sets how long the record is kept from now on.
func (r *Record) Keep(retention time.Duration, now time.Time) {
	r.Changed, r.Retention = now, retention
	r.Expires = now.Add(retention)
}

// known reports whether o is not zero.
func known(o dedup.Origin) bool { return !o.Same(dedup.Origin{}) || !o.Time.IsZero() }

// Reason returns s in a form that every store can keep: valid UTF-8 without NUL, at most
// [dedup.MaxReason] bytes, without a cut character.
func Reason(s string) string {
	s = Storable(s)
	if len(s) <= dedup.MaxReason {
		return s
	}
	n := dedup.MaxReason
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Storable returns s with a replacement for bytes that a database cannot keep.
func Storable(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}

// Shown returns the state for a person to read.
func (r *Record) Shown() dedup.State {
	switch {
	case r.State == Claimed:
		return dedup.Claimed
	case r.State == Done:
		return dedup.Finished
	case r.State == Dead:
		return dedup.GivenUp
	case r.LastCall == Released:
		return dedup.Released
	}
	return dedup.Waiting
}

// View returns the record for a person to read.
func (r *Record) View(now time.Time) dedup.Record {
	v := dedup.Record{
		Key: r.Key, State: r.Shown(), Position: r.Position, Doubtful: r.Doubt, Fence: r.Fence,
		Failures: r.Failures, Takeovers: r.Takeovers, First: r.First, Reason: r.Reason,
		Compared: r.Fingerprint.Comparison(), Created: r.Created, Changed: r.Changed,
		Expires: r.Expires,
	}
	if r.State == Claimed {
		v.Lease = r.Lease.Sub(now)
	}
	return v
}
