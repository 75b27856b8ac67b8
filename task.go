package idem

import (
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/throttle"
)

// task is one delivery on its way through a batch: from its record to its settlement.
type task struct {
	message *Message
	index   int // index in the batch
	budget  *waitBudget
	reading
	attempts
	lease
	busy

	deferred   *deferredEvent  // its place in the store, if it was taken from there
	leader     *task           // the first copy of the event in its group, which settles this one too
	isolated   bool            // shares no group with other events
	pending    step            // left over from a group: carried out before the event is claimed again
	permit     throttle.Permit // of its handler's limits, for the next run
	retryPaid  bool            // its group has paid the retry budget for the next run
	dataUsed   bool            // a run may have changed data
	action     action          // the last decision about a failure
	settled    bool            // its offset may be committed
	settlement Settlement      // how it was settled, for observers
	end        end             // how its event ended, for its queue
	handled    bool            // its event is handled, here or elsewhere
	seen       dedup.Origin    // the record whose effect it is, if handled

	shadow      bool // the handler runs whatever the store answers
	skipCounted bool // shadow mode has counted it as a duplicate
}

// reading is the result of reading a record: its handler, its identity and its data, or the error that came first.
type reading struct {
	destination destination
	route       *bound
	access      *storeAccess
	tx          txStore // nil for a claimed handler
	claimed     bool    // the handler runs under a claim, not in a transaction
	typ         string  // the type, if there is no handler for it
	id          string
	data        any // nil if it is not decoded
	request     dedup.Request
	class       Class // of the dead letter, together with err
	err         error
	refusal     outcome // of a reading that failed for good; recorded like the outcome of a run
}

// attempts is the history of an event.
type attempts struct {
	attempt      int  // number of the current or last run, from 1
	uncertain    bool // an earlier run may have had its effect
	earlier      int  // runs before this copy was made
	failures     int  // failed runs of a transactional handler; the store counts those of a claimed one
	firstFailure time.Time
	lastFailure  time.Time
	blockedSince time.Time // start of the in-place clock, moved on by every wait that is not the event's
	outages      int       // times in a row that the store was unavailable to the event and answered a probe
	downSince    time.Time // start of an outage that only the handler reports; zero: none
	rereads      int       // failed readings of this delivery
	readerDown   int       // waits for what the reading depends on
}

// lease is the claim that an event holds, and the answer that granted it.
type lease struct {
	answer   dedup.Answer // the last answer of the store to its group
	decision decision     // what the answer means
	claim    dedup.Claim
	held     *dedup.HeldClaims // renews the claim
	heldAt   int               // index in held
	began    time.Time         // of the transaction under way
}

// busy is the time for which another holder has kept the event.
type busy struct {
	busySince    time.Time
	busyNotified bool
}
