package dedup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What a person may see and do, through the operator's command: look at what a store holds, and put single events right.

// State is what a record says, for a person to read.
type State uint8

// The states.
const (
	Claimed  State = iota + 1 // somebody holds it, or held it when he died: see Record.Lease
	Released                  // given back, or taken over by nobody yet: the next delivery may have it
	Finished                  // done
	GivenUp                   // dead; see Record.Reason and Record.Discarded
	Waiting                   // open for a copy of Record.Position: moved to a later attempt, or reopened
)

var stateNames = [...]string{"none", "claimed", "released", "done", "dead", "waiting"}

// String is the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Record is what a store holds of an event.
type Record struct {
	Key   Key
	State State
	// Tx says that the record is one of a transaction ([TxStore]), not a claim.
	Tx bool
	// Position of the copy that may run, or ran last.
	Position Position
	// Doubtful says that an earlier run was cut short and may have had its effect: the next claim is Uncertain.
	Doubtful  bool
	Fence     uint64
	Failures  uint32
	Takeovers uint32
	// Lease is how long the claim still lasts by the server's clock. Zero or less: its holder has not spoken in time.
	Lease time.Duration
	// First is the origin of the delivery that made the record; of a dead one, of the delivery whose dead letter was sent.
	First  Origin
	Reason string
	// Compared says how copies of the event are compared with it.
	Compared Comparison
	// Created and Changed are the server's times, zero where a store does not keep them. Expires is when the record may be
	// forgotten, zero if that is not known.
	Created, Changed, Expires time.Time
}

// ReasonDiscarded begins the [Record.Reason] of an event that a person gave up for good, see [Operator.Discard].
const ReasonDiscarded = "discarded: "

// Discarded reports whether a person gave the event up for good.
func (r Record) Discarded() bool {
	return r.State == GivenUp && strings.HasPrefix(r.Reason, ReasonDiscarded)
}

// Settled reports whether nothing of the event is left to be done: it was handled, or a person gave it up.
func (r Record) Settled() bool { return r.State == Finished || r.Discarded() }

// Operator is an ability of a [Store]: what a person does to single events. Each verb may be repeated. An error that
// matches [ErrUnavailable] leaves open what happened.
type Operator interface {
	// Inspect returns the records of those keys that the store knows, in the order of keys. A key that has a record of both
	// ways has two.
	Inspect(ctx context.Context, keys ...Key) ([]Record, error)
	// Forget removes all that is known of key, so that the next delivery, of whatever position, is Fresh. The error matches
	// [ErrHeld] while somebody holds a live claim, and [ErrNotFound] if there was nothing.
	Forget(ctx context.Context, key Key) error
	// Discard gives key up: a later delivery of it, of any position, is Dead, and its reason is ReasonDiscarded with the
	// given one. That takes the claim from whoever holds one. A key that is not known is given up all the same, for both ways. The
	// error matches [ErrSettled] if the event was handled already.
	Discard(ctx context.Context, key Key, retention time.Duration, reason string) error
	// Reopen turns a dead record into one that waits for a copy of the next generation, and returns the position that
	// this copy must carry. Failures and take-overs are forgotten, so that an event whose handler was repaired may run.
	// The fingerprint stays, for other copies of the first generation; copies of later generations are not compared.
	// A repetition before that copy was claimed returns the same position. If the key is not dead, the error matches
	// [ErrNotDead].
	Reopen(ctx context.Context, key Key) (Position, error)
	// Import makes records of events that were handled before the store knew of them. What is known already stays as it is.
	// It returns how many are new. Keys may come in any order and several times.
	Import(ctx context.Context, events []Imported) (added int, err error)
}

// ConflictNoter is an ability of a [Store]: to remember which copies of an event had another content, for a person who looks at
// it. It is no part of the event's record, and no answer depends on it.
type ConflictNoter interface {
	// NoteConflict remembers a record of a topic for a day, or for less if the store forgets the event sooner. A record that
	// is noted again counts once, and a store may leave out those of an event that has many.
	NoteConflict(ctx context.Context, key Key, copyOf Origin) error
	// Conflicts returns noted records of the key, the first noted first, at most limit, which is positive. They have no times.
	Conflicts(ctx context.Context, key Key, limit int) ([]Origin, error)
}

// Imported is an event that was handled elsewhere.
type Imported struct {
	Key Key
	// Origin may be zero. Its time counts for the store's horizon where one is kept.
	Origin Origin
	// Retention from now. Must be positive.
	Retention time.Duration
	// Tx says that its handler is a transactional one.
	Tx bool
}

// Filter chooses records. The zero value chooses all.
type Filter struct {
	Scope, Type string
	States      []State
	// Unchanged chooses records that have not changed for so long.
	Unchanged time.Duration
	// Stuck chooses claims whose lease is over.
	Stuck bool
}

// Lister is an ability of a [Store] that can find records by what they say. It reads all that match, which may take long.
type Lister interface {
	// List calls yield with each record that f chooses, least recently changed first, at most limit of them (zero: all),
	// until it returns false.
	List(ctx context.Context, f Filter, limit int, yield func(Record) bool) error
	// Find returns the records of an event ID in a scope, of every tenant and type. An empty scope is every scope.
	Find(ctx context.Context, scope, id string) ([]Record, error)
}

// The errors of an [Operator].
var (
	ErrHeld     = errors.New("key is held by a live claim")
	ErrNotFound = errors.New("key is not known")
	ErrSettled  = errors.New("event was handled already")
)
