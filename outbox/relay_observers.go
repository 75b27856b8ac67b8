package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// RoundObserver sees every batch.
type RoundObserver interface {
	// ObserveRound gets each round that fetched rows or failed.
	ObserveRound(context.Context, Round)
}

// Round is one batch with its results. A Round without rows and with an error reports an outage of
// the database.
type Round struct {
	// Outbox is [RelayConfig].Name.
	Outbox string
	// Rows counts the rows that were fetched. Of these, the broker acknowledged Sent, Failed are
	// tried again, Parked were given up, and Blocked wait behind a parked row. The remaining rows
	// were left for the next round.
	Rows, Sent, Failed, Parked, Blocked int
	// Shards is the number of shards that the relay holds.
	Shards int
	// Took is the duration of the round, up to the results of the producer.
	Took time.Duration
	// Delay is the greatest time from the adding of a row to its acknowledgement, by the clocks of
	// the database and of this host.
	Delay time.Duration
	// Err is the last error of the broker or of the database. Nil: there was no error. After an
	// error of the broker, rows are published again. After an error of the database, the results
	// are recorded later.
	Err error
}

// ParkedObserver sees every row that was parked.
type ParkedObserver interface {
	// ObserveParked gets a row after the store has parked it, and the error of the producer.
	ObserveParked(context.Context, Row, error)
}

// BacklogObserver sees the backlog about every ten seconds.
type BacklogObserver interface {
	ObserveBacklog(context.Context, Backlog)
}

// ShareObserver sees the number of shards of a relay whenever the number changes, and the end of
// the relay.
type ShareObserver interface {
	ObserveShare(context.Context, Share)
}

// Share is the number of shards that a relay holds.
type Share struct {
	// Outbox is [RelayConfig].Name.
	Outbox string
	// Relay is the ID of the relay. Each relay has a new one, so the ID is no metric label.
	Relay string
	// Shards is the number of shards that the relay holds.
	Shards int
	// Ended means that the relay has ended, and that this is its last Share.
	Ended bool
}

// observers are the observers of a relay, by interface. Only the goroutine of Run uses observers.
type observers struct {
	outbox    string // RelayConfig.Name
	rounds    []RoundObserver
	publishes []PublishObserver
	parked    []ParkedObserver
	backlogs  []BacklogObserver
	shares    []ShareObserver
	shards    int // the number in the last Share
}

// newObservers sorts list by interface. The error names observers that implement no such interface.
func newObservers(outbox string, list []Observer) (*observers, error) {
	w := &observers{outbox: outbox}
	var problems []error
	for _, o := range list {
		watches := false
		if r, ok := o.(RoundObserver); ok {
			w.rounds, watches = append(w.rounds, r), true
		}
		if p, ok := o.(PublishObserver); ok {
			w.publishes, watches = append(w.publishes, p), true
		}
		if p, ok := o.(ParkedObserver); ok {
			w.parked, watches = append(w.parked, p), true
		}
		if b, ok := o.(BacklogObserver); ok {
			w.backlogs, watches = append(w.backlogs, b), true
		}
		if s, ok := o.(ShareObserver); ok {
			w.shares, watches = append(w.shares, s), true
		}
		if !watches {
			problems = append(problems, fmt.Errorf("outbox: RelayConfig.Observers: "+
				"%T implements none of the interfaces of a relay's observer", o))
		}
	}
	return w, errors.Join(problems...)
}

func (w *observers) observeRound(ctx context.Context, seen Round) {
	seen.Outbox = w.outbox
	for _, o := range w.rounds {
		o.ObserveRound(ctx, seen)
	}
}

func (w *observers) observeParked(ctx context.Context, row *Row, err error) {
	for _, o := range w.parked {
		o.ObserveParked(ctx, *row, err)
	}
}

func (w *observers) observeBacklog(ctx context.Context, b Backlog) {
	b.Outbox = w.outbox
	for _, o := range w.backlogs {
		o.ObserveBacklog(ctx, b)
	}
}

// observeShare reports the number of shards that relay holds, if the number has changed or the
// relay has ended.
func (w *observers) observeShare(ctx context.Context, relay string, shards int, ended bool) {
	if shards == w.shards && !ended {
		return
	}
	w.shards = shards
	for _, o := range w.shares {
		o.ObserveShare(ctx, Share{Outbox: w.outbox, Relay: relay, Shards: shards, Ended: ended})
	}
}
