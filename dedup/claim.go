package dedup

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"
)

// Token names one call of [Store.Claim]. Make a token for each call with [NewToken], and keep the
// token when the call is repeated after an error. The store recognises the repetition by its token.
// Never use one token for several calls, since two lanes of one process that hold copies of an
// event would both be answered Fresh.
type Token [16]byte

var (
	// tokenProcess is random per process; crypto/rand.Read never fails.
	tokenProcess = func() (b [8]byte) { _, _ = rand.Read(b[:]); return b }()
	tokenCount   atomic.Uint64
)

// NewToken returns a token that no other call of any process has: 8 random bytes of this process
// and a counter. NewToken is safe for concurrent use.
func NewToken() (t Token) {
	copy(t[:8], tokenProcess[:])
	binary.BigEndian.PutUint64(t[8:], tokenCount.Add(1))
	return t
}

// String returns the token as 32 hexadecimal digits.
func (t Token) String() string { return hex.EncodeToString(t[:]) }

// Origin is the record of a delivery. Origin is no part of the event's identity. A store uses it to
// explain a duplicate (the same record again, or a copy) and for the event's age.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
	// Time is the timestamp of the record, as the broker or the producer set it. A zero time has no
	// age.
	Time time.Time
}

// Same reports whether both are the same record. Times do not count.
func (o Origin) Same(p Origin) bool {
	return o.Topic == p.Topic && o.Partition == p.Partition && o.Offset == p.Offset
}

// Position is the place of a copy among the copies of one event. The zero value is a record as the
// producer wrote it. Copies that Idem publishes for a later attempt carry a higher position. The
// store remembers the position that may run next and answers [Rescheduled] to lower ones, so that
// at most one copy per attempt runs.
type Position struct {
	// Generation is the number of replays of the event.
	Generation uint32
	// Retry is the number of delayed retries in this generation.
	Retry uint32
}

// Before reports whether p is lower than q. Generation counts before Retry.
func (p Position) Before(q Position) bool {
	if p.Generation != q.Generation {
		return p.Generation < q.Generation
	}
	return p.Retry < q.Retry
}

// Verdict is the store's answer to a request for a claim. The zero value is no answer: never run a
// handler on it.
type Verdict uint8

// The verdicts. Fresh and Uncertain grant the claim.
const (
	// Fresh grants the claim. Earlier attempts, if any, are known to have failed.
	Fresh Verdict = iota + 1
	// Uncertain grants the claim, but an earlier claim ended without a completion and that run may
	// have had the effect.
	Uncertain
	// Busy means that another claim's lease is alive. That run may still fail, so the event is
	// neither handled nor lost: wait for [Answer.Wait] and ask again.
	Busy
	// Done means that the event was handled.
	Done
	// Dead means that the event was given up; [Answer.Reason] has the cause.
	Dead
	// Rescheduled means that a copy with a higher position carries the next attempt.
	Rescheduled
	// Conflict means that the key is known with another fingerprint: two different events share one
	// ID. [Answer.Known] is the state of the other one.
	Conflict
	// TooOld means that the store may have forgotten the event: the event is older than the store's
	// horizon, and has no record.
	TooOld
)

var verdictNames = [...]string{
	"none", "fresh", "uncertain", "busy", "done", "dead", "rescheduled", "conflict", "too-old",
}

// String returns the verdict in lower case, fit for a metric label.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Held reports whether v grants the claim: Fresh or Uncertain.
func (v Verdict) Held() bool { return v == Fresh || v == Uncertain }

// Request asks for one claim.
type Request struct {
	Key Key
	// Fingerprint is compared with that of the record, by [Differ]. Zero: not compared and, in a
	// new record, not kept.
	Fingerprint Fingerprint
	// SecondFingerprint is that of the same content under another secret. A record with either one
	// is no conflict, and a new record keeps Fingerprint. Zero, the default: no second fingerprint.
	// Counts only if both are keyed hashes.
	SecondFingerprint Fingerprint
	// Origin is kept with a new record.
	Origin Origin
	// Position is that of the copy.
	Position Position
	// Retention is how long the store keeps the record once the event is done. Unfinished records
	// live at least as long, counted from the last change. Must be positive.
	Retention time.Duration
	// AnyAge excludes the answer [TooOld]: an event without a record counts as never seen.
	AnyAge bool
	// Token is the token of this request, in place of the call's. Zero: the call's. Set it only for
	// a store that has [CallSharer].
	Token Token
	// NoWait asks for Busy at once where [TxStore.ClaimTx] would wait for the transaction that
	// holds the key. Applies to calls with one request only.
	NoWait bool
}

// Answer is the store's answer to one request.
type Answer struct {
	Verdict Verdict
	// Fence is the number of claims granted on this key, this one included. The number never
	// decreases: an outside system may refuse a lower fence than it has seen. Zero if the claim was
	// not granted.
	Fence uint64
	// Failures is the number of claims released as [Failed]. Only with Fresh and Uncertain.
	Failures uint32
	// Takeovers is the number of claims on this key that ended by their lease, without a
	// completion or a release. The claim that is taken over is included. Only with Fresh and
	// Uncertain. The crash guard recognises an event that crashes the process by this number.
	Takeovers uint32
	// Known is the verdict for a copy with the record's fingerprint. Only with Conflict: Busy,
	// Done, Dead, Rescheduled, or Fresh where the claim would be granted, uncertain or not. Zero:
	// unknown.
	Known Verdict
	// Wait is the rest of the holder's lease. Only with Busy, as Verdict or as Known.
	Wait time.Duration
	// First is the origin of the delivery that made the record.
	First Origin
	// Reason is the cause for which the event was given up. Only with Dead, as Verdict or as Known.
	Reason string
	// Result is the stored [Completion.Result]. Only with Done.
	Result Result
}

// Result is kept with a completion and replayed to duplicates. The zero value is no result.
type Result struct {
	// Schema is the version of the encoding of Data. A reader of another version runs the function
	// again.
	Schema uint32
	Data   []byte
}

// IsZero reports whether r is no result.
func (r Result) IsZero() bool { return r.Schema == 0 && r.Data == nil }

// Claim is a claim that is held. Make it with [Request.Held] from request and answer. A Claim
// repeats the values that belong into the final record, so that a store may write that record
// without reading the old one.
type Claim struct {
	Key   Key
	Token Token
	Fence uint64
	// Fingerprint is that of the request. Zero: the store keeps the record's.
	Fingerprint Fingerprint
	First       Origin
	Position    Position
}

// Conflicted returns the answer for a copy with another fingerprint. a is the answer for an equal
// copy; without a verdict it stands for a granted claim. Stores call it. The result is left out,
// because only equal copies get a result.
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

// Differs reports whether known, the fingerprint of a record, is of another content than that of r:
// [Differ] holds for Fingerprint, and known is not SecondFingerprint. Stores call it.
func (r *Request) Differs(known Fingerprint) bool {
	return Differ(known, r.Fingerprint) && (known != r.SecondFingerprint || known.IsChecksum())
}

// Second returns the bytes of SecondFingerprint, for a store that compares on its server. Nil means
// that no second fingerprint counts.
func (r *Request) Second() []byte {
	if r.SecondFingerprint == (Fingerprint{}) || r.Fingerprint.Comparison() != ByFingerprint ||
		r.SecondFingerprint.IsChecksum() {
		return nil
	}
	return r.SecondFingerprint[:]
}

// TokenOr returns the token of r. Without one, TokenOr returns t, the token of the call.
func (r *Request) TokenOr(t Token) Token {
	if r.Token != (Token{}) {
		return r.Token
	}
	return t
}

// Held returns the claim that answer a granted to r under token t.
func (r Request) Held(t Token, a Answer) Claim {
	return Claim{
		Key: r.Key, Token: r.TokenOr(t), Fence: a.Fence, Fingerprint: r.Fingerprint, First: a.First,
		Position: r.Position,
	}
}

// Completion ends a claim. With Dead and Retry zero the event is done.
type Completion struct {
	Claim
	// Retention is how long the record is kept, counted from the call. Must be positive.
	Retention time.Duration
	// Result is kept and replayed to duplicates.
	Result Result
	// Dead, if not empty, gives the event up and is the reason. Any bytes are accepted; a store
	// replaces bytes that cannot be kept and cuts the text to [MaxReason] bytes. Claim.First, if
	// not zero, becomes the record's origin: that of the delivery that was sent to the
	// dead-letter topic.
	Dead string
	// Retry, if not zero, means that the event was published again for this attempt
	// ([Position.Retry]). The record is open for that copy, and Rescheduled for all earlier ones.
	Retry uint32
}

// MaxReason is how many bytes of [Completion.Dead] a store keeps.
const MaxReason = 1024

// Outcome is the result of a run at the release of a claim.
type Outcome uint8

// The outcomes of a claim that did not end in a completion.
const (
	// Unstarted: the handler did not run. The next claim gets the verdict of this one.
	Unstarted Outcome = iota
	// Failed: the run failed in a way that may be tried again. As Unstarted, but the failure is
	// counted in [Answer.Failures].
	Failed
	// Unknown: the run was cut short and may have had the effect. The next claim is Uncertain, at
	// once. The run does not count as a failure, since a deployment may be the cause.
	Unknown
	// Undone: the run ended and all effects were undone. As Unstarted, but the fingerprint is
	// forgotten, unless an earlier run is uncertain. The next claim may then carry another payload,
	// and the new fingerprint is kept.
	Undone
)

// Release gives a claim back. A store treats unknown values of Outcome as Unstarted.
type Release struct {
	Claim
	Outcome Outcome
	// Retention is how long the record is kept, counted from the call. Must be positive.
	Retention time.Duration
}
