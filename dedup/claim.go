package dedup

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"
)

// Token tells one call of [Store.Claim] from all others. Make a new one for each call with [NewToken] and keep it when
// that call is repeated after an error: a repeat with the same token is recognised. One token for everything an
// owner does would be wrong, since two lanes of one process that hold copies of an event would both be told Fresh.
type Token [16]byte

var (
	tokenProcess = func() (b [8]byte) { _, _ = rand.Read(b[:]); return b }() // crypto/rand.Read never fails
	tokenCount   atomic.Uint64
)

// NewToken returns a token that no other call of any process has: 8 random bytes of this process and a counter. Safe for
// concurrent use.
func NewToken() (t Token) {
	copy(t[:8], tokenProcess[:])
	binary.BigEndian.PutUint64(t[8:], tokenCount.Add(1))
	return t
}

// String is the token in 32 hexadecimal digits.
func (t Token) String() string { return hex.EncodeToString(t[:]) }

// Origin is where a delivery came from. It explains duplicates (the same record again, or a copy of it) and gives them an
// age; it is never part of the identity.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
	Time      time.Time // the broker's or producer's time of the record
}

// Same reports whether both are the same record of the same log. Times do not count.
func (o Origin) Same(p Origin) bool {
	return o.Topic == p.Topic && o.Partition == p.Partition && o.Offset == p.Offset
}

// Position says which of an event's own copies a delivery is. The zero value is a record as the producer wrote it; copies
// that Idem makes of an event for a later attempt carry a higher one. The store remembers the position it waits for, and
// answers [Rescheduled] to any lower one, so that at most one copy per attempt can run (rules 3 and 6).
type Position struct {
	Generation uint32 // how often the event was reopened after it had been given up
	Retry      uint32 // how often it was moved on to a later attempt in this generation
}

// Before reports whether p was overtaken by q.
func (p Position) Before(q Position) bool {
	if p.Generation != q.Generation {
		return p.Generation < q.Generation
	}
	return p.Retry < q.Retry
}

// Verdict is the store's answer. The zero value is no answer at all: never run on it.
type Verdict uint8

// The verdicts. With Fresh and Uncertain the claim is yours.
const (
	// Fresh: yours to handle, and no earlier attempt can have had an effect that is not known to have failed.
	Fresh Verdict = iota + 1
	// Uncertain: yours, but an earlier holder died half-way and may have had the effect.
	Uncertain
	// Busy: somebody holds a live claim. He may still die, so the event is neither done nor lost: wait ([Answer.Wait]).
	Busy
	// Done: a duplicate of an event that was handled.
	Done
	// Dead: the event was given up; [Answer.Reason] says why. Its dead letter is in a dead-letter topic.
	Dead
	// Rescheduled: a later attempt of the event is on its way, this copy is overtaken.
	Rescheduled
	// Conflict: the key is known with another fingerprint: two different events share one ID. [Answer.Known] says what
	// became of the other one.
	Conflict
	// TooOld: older than what the store still remembers, so that it cannot tell whether it was handled.
	TooOld
)

var verdictNames = [...]string{"none", "fresh", "uncertain", "busy", "done", "dead", "rescheduled", "conflict", "too-old"}

// String is the verdict in lower case, fit for a metric label.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Held reports whether the claim is yours: Fresh or Uncertain.
func (v Verdict) Held() bool { return v == Fresh || v == Uncertain }

// Request asks for one claim.
type Request struct {
	Key Key
	// Fingerprint finds [Conflict], as [Differ] compares; zero: not compared and, in a new record, not kept.
	Fingerprint Fingerprint
	// Origin is kept with a new record.
	Origin Origin
	// Position is which copy of the event this is.
	Position Position
	// Retention is how long the record is kept once done. Unfinished records live at least as long, counted from their
	// last change. Must be positive.
	Retention time.Duration
	// AnyAge asks not to be told [TooOld]: what the store no longer remembers counts as never seen.
	AnyAge bool
	// NoWait asks for Busy at once where a store would otherwise wait for the transaction that holds the key, and lets the
	// connection go ([TxStore]; rule 20). It counts in calls with one request only.
	NoWait bool
}

// Answer is the store's answer to one request.
type Answer struct {
	Verdict Verdict
	// Fence counts the claims that were granted on this key, this one included. It never goes back: a fencing number that
	// an effect may compare. Zero if the claim is not held.
	Fence uint64
	// Failures counts the runs that were released as [Failed] so far. Only with Fresh and Uncertain.
	Failures uint32
	// Takeovers counts the claims on this key whose lease ended before their holder spoke, this take-over included. Only
	// with Fresh and Uncertain. An event that kills its process shows here (rule 18).
	Takeovers uint32
	// Known is what an equal copy of the event would be told now. Only with Conflict: Busy, Done, Dead or Rescheduled, and Fresh
	// where an equal copy would get the claim, in doubt or not. Zero if it is not known.
	Known Verdict
	// Wait is how long the holder's lease still lasts. Only with Busy, as Verdict or as Known.
	Wait time.Duration
	// First is the origin of the delivery that made the record.
	First Origin
	// Reason says why a key was given up. Only with Dead, as Verdict or as Known.
	Reason string
	// Result is what [Completion.Result] stored. Only with Done.
	Result Result
}

// Result is kept for replay to duplicates. Schema is the version of what Data holds; a reader that does not know it runs
// again instead of serving it. The zero value is no result.
type Result struct {
	Schema uint32
	Data   []byte
}

// IsZero reports whether there is no result to keep.
func (r Result) IsZero() bool { return r.Schema == 0 && r.Data == nil }

// Claim is a claim that is held. Make it with [Request.Held] from request and answer: it repeats what belongs into the final
// record, so that a store may write that without reading the old one. A zero fingerprint says that the request had none;
// a store then keeps the record's.
type Claim struct {
	Key         Key
	Token       Token
	Fence       uint64
	Fingerprint Fingerprint
	First       Origin
	Position    Position
}

// Conflicted is the answer for a copy with another fingerprint, made from what an equal copy would be told: a, or the claim
// if a has no verdict. Stores use it. A result is for equal copies only.
func (a Answer) Conflicted() Answer {
	c := Answer{Verdict: Conflict, Known: a.Verdict, First: a.First}
	switch a.Verdict {
	case Dead:
		c.Reason = a.Reason
	case Busy:
		c.Wait = a.Wait
	case 0, Uncertain:
		c.Known = Fresh
	case Fresh, Done, Rescheduled, Conflict, TooOld:
	}
	return c
}

// Held is the claim that answer a granted to r under token t.
func (r Request) Held(t Token, a Answer) Claim {
	return Claim{Key: r.Key, Token: t, Fence: a.Fence, Fingerprint: r.Fingerprint, First: a.First, Position: r.Position}
}

// Completion ends a claim for good. With Dead and Retry zero the event is done.
type Completion struct {
	Claim
	// Retention is how long the record is kept from now on. Must be positive.
	Retention time.Duration
	// Result is kept for replay.
	Result Result
	// Dead, if not empty, says that the event is given up, and why. Any bytes will do, since an event that cannot be given up
	// would be in the way for ever; what a store cannot keep is replaced. At most [MaxReason] bytes are kept.
	// Claim.First, if not zero, is kept as the record's origin from then on: that of the delivery whose dead letter was sent
	// (rule 6).
	Dead string
	// Retry, if not zero, says that the event was published again as this attempt ([Position.Retry]): the record is open
	// for that copy, and [Rescheduled] for all earlier ones.
	Retry uint32
}

// MaxReason is how many bytes of [Completion.Dead] a store keeps; the rest is cut.
const MaxReason = 1024

// Outcome says what happened under a claim that is given back.
type Outcome uint8

// The outcomes of a claim that did not end in a completion.
const (
	// Unstarted: nothing ran. The next claim gets the verdict this one got.
	Unstarted Outcome = iota
	// Failed: it ran, and failed in a way that may be tried again. The failure is counted, else as Unstarted.
	Failed
	// Unknown: it was cut short and may have had its effect. The next claim is Uncertain, at once (rule 13). It does not
	// count as a failure: a deploy is not the event's fault.
	Unknown
	// Undone: it ran, and nothing of it has happened. As Unstarted, but the fingerprint is forgotten, unless an earlier run is in
	// doubt: the next claim may be of another payload, and its fingerprint is kept then (H-11).
	Undone
)

// Release gives a claim back.
type Release struct {
	Claim
	Outcome Outcome
	// Retention is how long the record is kept from now on. Must be positive.
	Retention time.Duration
}
