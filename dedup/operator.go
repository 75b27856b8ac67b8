package dedup

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// State is the state of a record, for a person to read.
type State uint8

// The states.
const (
	Claimed  State = iota + 1 // A claim was granted. Record.Lease has the rest of its lease.
	Released                  // The claim was given back: the next delivery may claim.
	Finished                  // The event was handled.
	GivenUp                   // The event is dead: see Record.Reason and Record.Discarded.
	Waiting                   // Rescheduled or reopened: open for the copy of Record.Position.
)

var stateNames = [...]string{"none", "claimed", "released", "done", "dead", "waiting"}

// String returns the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Record is the state of an event in a store.
type Record struct {
	Key   Key
	State State
	// Tx means that the record was made by [TxStore.ClaimTx], not by a claim.
	Tx bool
	// Position of the copy that may run, or ran last.
	Position Position
	// Doubtful means that an earlier run was cut short and may have had the effect: the next claim
	// is Uncertain.
	Doubtful  bool
	Fence     uint64
	Failures  uint32
	Takeovers uint32
	// Lease is the rest of the claim's lease by the server's clock. Zero or less: the lease is
	// over.
	Lease time.Duration
	// First is the origin of the delivery that made the record. Of a dead event: the delivery
	// that was sent to the dead-letter topic.
	First  Origin
	Reason string
	// Compared is how copies of the event are compared with it.
	Compared Comparison
	// Created, Changed and Expires are times of the server, zero where a store does not keep them.
	// From Expires on the store may forget the record.
	Created, Changed, Expires time.Time
}

// ReasonDiscarded begins the [Record.Reason] of an event that a person gave up, see
// [Operator.Discard].
const ReasonDiscarded = "discarded: "

// Discarded reports whether a person gave the event up.
func (r Record) Discarded() bool {
	return r.State == GivenUp && strings.HasPrefix(r.Reason, ReasonDiscarded)
}

// Settled reports whether the event needs no more work: handled, or given up by a person.
func (r Record) Settled() bool { return r.State == Finished || r.Discarded() }

// Operator is an ability of a [Store]: the actions of a person, and of the operator's command, on
// single events. All stores of this module have the ability. Each method may be repeated. After an
// error that matches [ErrUnavailable] the outcome is unknown.
type Operator interface {
	// Inspect returns the records of those keys that the store knows, in the order of keys. A key
	// with a record of a claim and one of a transaction has two.
	Inspect(ctx context.Context, keys ...Key) ([]Record, error)
	// Forget removes all records of key, so that the next delivery, of any position, is Fresh. The
	// error matches [ErrHeld] while a claim is alive, and [ErrNotFound] without a record.
	Forget(ctx context.Context, key Key) error
	// Discard gives key up: a later delivery of any position is Dead, with ReasonDiscarded and the
	// given reason. A live claim is lost then. A key without a record is given up too, for claims
	// and for transactions. The error matches [ErrSettled] if the event was handled already.
	Discard(ctx context.Context, key Key, retention time.Duration, reason string) error
	// Reopen turns a dead record into one that waits for a copy of the next generation, and
	// returns the position that this copy must carry. Failures and take-overs are forgotten, so
	// that an event may run after a repair of the handler. The fingerprint stays, for other
	// copies of the first generation; copies of later generations are not compared. A repetition
	// before that copy was claimed returns the same position. If the key is not dead, the error
	// matches [ErrNotDead].
	Reopen(ctx context.Context, key Key) (Position, error)
	// Import makes records of events that were handled before the store was used, and returns the
	// number of new ones. Existing records stay as they are. Keys may come in any order and several
	// times.
	Import(ctx context.Context, events []Imported) (added int, err error)
}

// Imported is an event that was handled before the store was used.
type Imported struct {
	Key Key
	// Origin may be zero. Its time counts for the store's horizon.
	Origin Origin
	// Retention is how long the record is kept, counted from now. Must be positive.
	Retention time.Duration
	// Tx means that the handler of the event is transactional.
	Tx bool
}

// Lister is an ability of a [Store] with an index: searches by the content of records. A search
// reads all that match, which may take long.
type Lister interface {
	// List calls yield with each record that f chooses, least recently changed first, at most limit
	// of them (zero: all), until yield returns false.
	List(ctx context.Context, f Filter, limit int, yield func(Record) bool) error
	// Find returns the records of an event ID in a scope, of all tenants and types. An empty scope
	// means all scopes.
	Find(ctx context.Context, scope, id string) ([]Record, error)
}

// Filter chooses records. The zero value chooses all.
type Filter struct {
	Scope, Type string
	States      []State
	// Unchanged chooses records that have not changed for this time.
	Unchanged time.Duration
	// Stuck chooses claims with an ended lease.
	Stuck bool
}

// ConflictNoter is an ability of a [Store]: notes of copies with another content, for a person to
// read. The notes are no part of the event's record, and no answer depends on them.
type ConflictNoter interface {
	// NoteConflict remembers the record copyOf for a day, or less if the store forgets the event
	// sooner. A repetition counts once, and a store may leave records out for an event with many.
	NoteConflict(ctx context.Context, key Key, copyOf Origin) error
	// Conflicts returns noted records of the key, the first noted first, at most limit, which is
	// positive. The origins have no times.
	Conflicts(ctx context.Context, key Key, limit int) ([]Origin, error)
}
