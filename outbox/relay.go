package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/setupwait"
)

// maxGrace bounds the wait for the producer after the end of Run's context.
const maxGrace = 10 * time.Second

var (
	errRunTwice = errors.New("outbox: Relay.Run was called before")
	errStopped  = errors.New("outbox: the relay is stopped")
	errNoAnswer = errors.New("no answer")
	errNoWake   = errors.New("the call ended without an error")
)

// Relay publishes the rows of an outbox. Create one with [NewRelay], and call Run.
//
// Several relays may run at once, in one process or in many. Relays share the shards of the outbox.
// When the lease of a relay that has died is over, the others take the shards.
//
// A relay deletes or marks a row only after the broker has acknowledged the message. If the relay
// dies in between, or loses its lease, the row is published again with the same event ID. The first
// appearances of the events of an aggregate are in the order of their commits in any case.
//
// A relay holds at most one batch in memory.
type Relay struct {
	cfg       RelayConfig
	id        string
	share     *shareKeeper
	health    *health
	observers *observers
	ran       atomic.Bool
	woken     chan struct{} // new rows may have come; has room for one, so that no sender waits

	// Only the loop uses these.
	publisher     *publisher
	chores        *chores
	storeBackoff  backoff
	brokerBackoff backoff
}

// NewRelay returns a relay. The error names every field of cfg that is wrong.
func NewRelay(cfg RelayConfig) (*Relay, error) {
	cfg = cfg.withDefaults()
	watch, wrong := newObservers(cfg.Name, cfg.Observers)
	if err := errors.Join(cfg.check(), wrong); err != nil {
		return nil, err
	}
	r := &Relay{
		cfg: cfg, id: newRelayID(), woken: make(chan struct{}, 1),
		health:        newHealth(cfg.Logger),
		observers:     watch,
		storeBackoff:  backoff{min: minStoreBackoff, max: maxStoreBackoff},
		brokerBackoff: backoff{min: minBrokerBackoff, max: maxBrokerBackoff},
	}
	r.share = newShareKeeper(&r.cfg, r.id, r.health)
	r.publisher = newPublisher(&r.cfg, r.share, r.health, r.observers)
	r.chores = &chores{store: cfg.Store, keep: cfg.Keep, health: r.health, observers: r.observers}
	return r, nil
}

// Run publishes until ctx ends, and then returns nil. Before that Run waits for the messages that
// the producer already has, for 10 s or a lease, whichever is less. Run then records the results
// and gives up the relay's share.
//
// During an outage of the database or the broker, Run tries again. The log has one line when an
// outage begins and one when it ends.
//
// Run returns early only for permanent errors:
//
//   - The store is not set up at the start, for longer than [RelayConfig].SetupWait. The error
//     matches [*dedup.SetupError], which names the missing tables or rights and the command that
//     creates them. If a table or right goes missing later, Run waits and repeats the warning once
//     a minute.
//   - A topic of [RelayConfig].Topics is missing at the start, or may not be written to, for longer
//     than SetupWait. The error matches [idem.ErrNoTopic].
//   - Run was called before.
//
// The goroutine of Run calls the observers. If one panics, Run gives up the share of the relay, and
// the panic goes on to the caller.
func (r *Relay) Run(ctx context.Context) error {
	if !r.ran.CompareAndSwap(false, true) {
		return errRunTwice
	}
	r.health.run(true)
	r.cfg.Logger.InfoContext(ctx, "outbox relay starts", "relay", r.id)
	// The batch under way is finished after ctx has ended: own lives until the loop has ended.
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	produce, giveUp := context.WithCancelCause(own)
	listen, deaf := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer func() { // also if an observer panics
		stop()
		deaf()
		giveUp(errStopped)
		group.Wait()
		r.share.leave(ctx)
		r.health.run(false)
		r.observeShare(ctx, true)
	}()
	group.Go(func() { r.share.renew(own) })
	group.Go(func() {
		if pause(own, ctx.Done(), forever) && pause(own, nil, min(maxGrace, r.cfg.Lease)) {
			giveUp(errStopped)
		}
	})
	if w, ok := r.cfg.Store.(Waker); ok && r.cfg.Wake {
		group.Go(func() { r.listen(listen, w) })
	}
	err := r.checkTopics(ctx)
	if err == nil {
		err = r.loop(ctx, produce)
	}
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	r.publisher.settleLast(ctx)
	return nil
}

// Ready returns nil if the relay works. Use Ready for a readiness probe; a restart does not repair
// the problems. Safe for concurrent use.
//
// The error names everything that is wrong: Run does not run, Run waits at the start for topics, or
// one of these was not possible within the last lease:
//
//   - get the relay's share from the database (the share may be empty)
//   - read and write the table
//   - publish, if rows waited
func (r *Relay) Ready() error {
	return r.health.ready(r.cfg.Lease, r.share.lastAnswer())
}

// loop works until ctx ends. Calls of the producer live until produce ends. An error means that the
// store is not set up.
func (r *Relay) loop(ctx, produce context.Context) error {
	var missing time.Time // since when, before the first turn that worked
	started := false
	for ctx.Err() == nil {
		rest, err := r.turn(ctx, produce)
		var setup *dedup.SetupError
		switch {
		case err == nil:
			started = true
		case started || !errors.As(err, &setup):
			missing = time.Time{}
		default:
			if missing.IsZero() {
				missing = time.Now()
			}
			d, again := setupwait.Pause(time.Since(missing), r.cfg.SetupWait)
			if !again {
				return err
			}
			rest.until = d
		}
		if rest.until <= 0 {
			continue
		}
		var woken <-chan struct{}
		if rest.idle {
			woken = r.woken
		}
		pause(ctx, woken, rest.until)
	}
	return nil
}

// turn does one round, the chores and the observations. The error is the store's.
func (r *Relay) turn(ctx, produce context.Context) (rest, error) {
	b, err := r.publisher.do(ctx, produce)
	r.observeShare(ctx, false)
	if err == nil && ctx.Err() == nil {
		r.chores.run(ctx)
	}
	if err != nil {
		b.seen.Err = err
	}
	if b.seen.Rows > 0 || (b.seen.Err != nil && ctx.Err() == nil) {
		b.seen.Shards = len(r.share.held())
		r.observers.observeRound(ctx, b.seen)
	}
	if err != nil {
		return rest{until: r.storeBackoff.next()}, err
	}
	r.storeBackoff.reset()
	return r.restAfter(b), nil
}

// rest is the pause after a turn.
type rest struct {
	until time.Duration // the next turn
	idle  bool          // there was no row to publish, so that a new row ends the pause
}

// restAfter returns the pause after a round in which the store has worked.
func (r *Relay) restAfter(b *batch) rest {
	if b.seen.Sent+b.seen.Parked > 0 {
		r.brokerBackoff.reset()
	}
	switch {
	case b.hopeless() && !b.retry: // a retry has waited for its own backoff
		return rest{until: r.brokerBackoff.next()}
	case b.crowded:
		return rest{until: jitter(minBrokerBackoff)}
	case b.results() > 0: // the next round leaves failed aggregates out, and fetches other rows
		return rest{}
	case b.seen.Rows == 0 && (b.partial || r.publisher.sweep.unfinished()):
		return rest{} // the outbox is empty only if every shard was fetched
	}
	return rest{idle: true, until: min(jitter(r.cfg.Interval), r.share.shareIn(),
		r.publisher.failures.next(time.Now()), r.chores.dueIn())}
}

func (r *Relay) observeShare(ctx context.Context, ended bool) {
	r.observers.observeShare(ctx, r.id, len(r.share.held()), ended)
}

// listen has the store announce new rows, and calls Wake again when the call ends. Rows are also
// found every Interval (O-12).
func (r *Relay) listen(ctx context.Context, w Waker) {
	again := backoff{min: minStoreBackoff, max: time.Minute}
	for ctx.Err() == nil {
		began := time.Now()
		err := w.Wake(ctx, func() {
			r.health.wake.clear(ctx, "wake")
			r.wake()
		})
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errNoWake
		}
		if time.Since(began) > time.Minute {
			again.reset()
		}
		r.health.wake.set(ctx, "wake", err)
		r.wake() // rows may have come meanwhile
		pause(ctx, nil, again.next())
	}
}

func (r *Relay) wake() {
	select {
	case r.woken <- struct{}{}:
	default: // a wake-up waits already
	}
}
