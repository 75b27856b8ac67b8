package engine

import (
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/throttle"
	"github.com/idem-go/idem/observe"
)

// task is the processing of one delivery, from its record to its settlement.
type task struct {
	message *idemtype.Message
	copied  *copied // history of a copy or of a deferred event; nil for an original record
	index   int     // index in the batch
	budget  *waitBudget
	reading
	attempts
	lease
	busy

	deferred *deferredEvent // its queue in the store, if the event was deferred
	// first task of the same event in the group; its settlement settles this task too
	leader     *task
	isolated   bool               // shares no group with other events
	pending    step               // step of the last attempt, carried out before the next one
	permit     throttle.Permit    // permit of the handler's limits for the next run
	retryPaid  bool               // the group has paid the retry budget for the next run
	dataUsed   bool               // an earlier run may have changed data
	action     action             // the last decision about a failure
	settled    bool               // the offset may be committed
	settlement observe.Settlement // kind of the settlement, for observers
	end        end                // end of the event, for its queue
	handled    bool               // the event is handled, by this task or before
	seen       dedup.Origin       // the record that was handled, if handled

	shadow      bool // the handler runs regardless of the store's answer
	skipCounted bool // shadow mode has counted the delivery as a duplicate
}

// reading is the result of resolving a record: handler, identity and data, or the first error.
type reading struct {
	destination destination
	route       *bound
	access      *storeAccess
	tx          TxStore // nil for a claimed handler
	claimed     bool    // the handler runs under a claim, not in a transaction
	typ         string  // the type of a message without a handler
	id          string
	data        any // nil if not decoded
	request     dedup.Request
	class       idemtype.Class // class of the dead letter, together with err
	err         error
	refusal     outcome // a permanent failure of the reading, recorded like a failed run
}

// attempts is the history of an event.
type attempts struct {
	attempt   int  // number of the current or last run, from 1
	uncertain bool // an earlier run may have had its effect
	earlier   int  // runs that an earlier copy of the event has used
	// failed runs of a transactional handler; the store counts those of a claimed handler
	failures     int
	firstFailure time.Time
	lastFailure  time.Time
	// start of the time for retries in place; waits that the event did not cause move it on
	blockedSince time.Time
	// times in a row that the store was unavailable to the event but answered a probe
	outages    int
	downSince  time.Time // start of an outage that only the handler reports; zero if none
	rereads    int       // failed readings of this delivery
	readerDown int       // waits for a dependency of the reading
}

// lease is the claim of an event, with the answer that granted it.
type lease struct {
	answer   dedup.Answer // the last answer of the store
	decision decision     // the decision about the answer
	claim    dedup.Claim
	held     *dedup.HeldClaims // renews the claim
	heldAt   int               // index of the claim in held
	began    time.Time         // start of the current transaction
}

// busy tells since when another worker has held the claim of the event.
type busy struct {
	busySince    time.Time
	busyNotified bool
}
