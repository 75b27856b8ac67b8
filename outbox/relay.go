package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/safetext"
)

const (
	// storeTimeout bounds each call of a store but Hold, which has less.
	storeTimeout = 10 * time.Second
	// maxGrace is how long after the end what was given to the producer is waited for, at most.
	maxGrace = 10 * time.Second
	// endTimeout bounds each of the last two calls of a store: to settle, and to leave.
	endTimeout = 3 * time.Second

	// setupWait is how long a relay that starts looks again for tables or rights that are missing: somebody may be making them.
	setupWait = 3 * time.Second

	minStoreBackoff, maxStoreBackoff   = 100 * time.Millisecond, 5 * time.Second
	minBrokerBackoff, maxBrokerBackoff = 200 * time.Millisecond, 5 * time.Second
)

var (
	errRunTwice = errors.New("outbox: Relay.Run was called before")
	errStopped  = errors.New("outbox: the relay is stopped")
)

// Relay publishes what is in an outbox. Several may run at once, in one process or in many: they share the shards, and one that dies is
// replaced by the others when its lease is over. Create it with [NewRelay], start it with Run.
//
// What was published is marked, or deleted, only after the broker's acknowledgement (O-08). A relay that dies in between, or that loses its
// lease, leaves rows that are published again, with the same event ID (O-07). The first appearances of the events of an aggregate are in
// the order in which they were committed, whatever happens. A relay holds at most one batch in memory (O-15).
type Relay struct {
	cfg    RelayConfig
	id     string
	share  share
	health health
	ran    atomic.Bool
	woken  chan struct{} // something may have come; never blocks who sends

	publishers []PublishObserver // of the observers of cfg
	sharers    []ShareObserver
	toldShards int // what they were told last

	// What only the loop uses.
	mutes         mutes
	pending       *settling    // what could not be settled yet; nothing is fetched before it is
	busy          map[int]bool // shards that had a full quota when they were last looked at
	sweep         []int        // shards that the sweep under way has still to look at
	swept         time.Time    // when the last sweep began
	again         []int        // shards of which only what is fresh was looked at, and which are to be looked at once more
	turns         int
	storeBackoff  backoff
	brokerBackoff backoff
	purgeAt       time.Time
	backlogAt     time.Time
}

// NewRelay returns a relay, or all that is wrong with cfg.
func NewRelay(cfg RelayConfig) (*Relay, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	r := &Relay{
		cfg: cfg, id: newRelayID(), share: newShare(cfg.Lease), health: newHealth(cfg.Logger), woken: make(chan struct{}, 1),
		mutes: mutes{}, busy: map[int]bool{},
		storeBackoff:  backoff{min: minStoreBackoff, max: maxStoreBackoff},
		brokerBackoff: backoff{min: minBrokerBackoff, max: maxBrokerBackoff},
	}
	for _, o := range cfg.Observers {
		if p, ok := o.(PublishObserver); ok {
			r.publishers = append(r.publishers, p)
		}
		if s, ok := o.(ShareObserver); ok {
			r.sharers = append(r.sharers, s)
		}
	}
	return r, nil
}

// Run publishes until ctx ends, then waits for what it gave to the producer, for 10 s or a lease at most, whichever is less, records what
// became of it, gives up its share and returns nil. A database or a broker that is away is waited for, with one log line when that begins
// and one when it is over.
//
// Run returns early only at its start, when the store has said for three seconds that it is not set up: with that [*dedup.SetupError],
// which names the tables or rights that are missing and the command that mends it. What goes missing later is waited for, and told once a
// minute. Run may be called once: a second call is an error.
//
// Observers are called by the goroutine of Run. If one panics, Run gives up its share and the panic goes on to the caller.
func (r *Relay) Run(ctx context.Context) error {
	if !r.ran.CompareAndSwap(false, true) {
		return errRunTwice
	}
	r.health.run(true)
	r.cfg.Logger.InfoContext(ctx, "outbox relay starts", "relay", r.id)
	// What must outlive ctx, since the batch under way is brought to its end, lives until the loop has ended.
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	produce, giveUp := context.WithCancelCause(own)
	listen, deaf := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer func() { // also if an observer panics
		stop()
		deaf()
		giveUp(errStopped)
		group.Wait()
		r.leave(ctx)
		r.health.run(false)
		r.tellShare(ctx, true)
	}()
	group.Go(func() { r.keep(own) })
	group.Go(func() {
		if pause(own, ctx.Done(), forever) && pause(own, nil, min(maxGrace, r.cfg.Lease)) {
			giveUp(errStopped)
		}
	})
	if w, ok := r.cfg.Store.(Waker); ok && r.cfg.Wake {
		group.Go(func() { r.listen(listen, w) })
	}
	if err := r.loop(ctx, produce); err != nil {
		r.cfg.Logger.ErrorContext(ctx, "outbox relay cannot start", "relay", r.id, "error", cutText(safetext.Text(err)))
		return fmt.Errorf("outbox: %w", err)
	}
	r.settleLast(ctx)
	return nil
}

// loop works until ctx ends. What is published lives on until produce ends. The error says that the store is not set up.
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
		case missing.IsZero():
			missing = time.Now()
		case time.Since(missing) >= setupWait:
			return err
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

// rest is what comes after a turn.
type rest struct {
	until time.Duration // the next one
	idle  bool          // there was nothing to do, so that news end the rest
}

// turn is one round with what comes before and after it. The error is the store's.
func (r *Relay) turn(ctx, produce context.Context) (rest, error) {
	b, err := r.work(ctx, produce)
	r.tellShare(ctx, false)
	if err == nil && ctx.Err() == nil {
		r.chores(ctx)
	}
	if err != nil {
		b.seen.Err = err
	}
	if b.seen.Rows > 0 || (b.seen.Err != nil && ctx.Err() == nil) {
		b.seen.Shards = len(r.share.held())
		r.observeRound(ctx, b.seen)
	}
	if err != nil {
		return rest{until: r.storeBackoff.next()}, err
	}
	r.storeBackoff.reset()
	if b.seen.Sent+b.seen.Parked > 0 {
		r.brokerBackoff.reset()
	}
	switch {
	case b.hopeless() && !b.retry: // what is tried again has rested for itself
		return rest{until: r.brokerBackoff.next()}, nil
	case b.crowded:
		return rest{until: jitter(minBrokerBackoff)}, nil
	}
	if b.seen.Sent+b.seen.Parked+b.seen.Blocked+b.seen.Failed > 0 {
		return rest{}, nil // what failed is skipped now, and what lies behind it is to be seen
	}
	if b.seen.Rows == 0 && (b.partial || r.unseen()) {
		return rest{}, nil // the outbox is empty only if all of it was looked at
	}
	return rest{until: min(jitter(r.cfg.Interval), r.share.shareIn(), r.mutes.next(time.Now()), r.choresIn()), idle: true}, nil
}

// work settles what is left of an earlier round, has the shards shared out anew if it is time, and does a round. The error is the store's.
func (r *Relay) work(ctx, produce context.Context) (*batch, error) {
	b := &batch{r: r}
	if err := r.settle(produce); err != nil { // first: what is of a shard that is given up could not be settled
		return b, err
	}
	if r.share.shareIn() <= 0 {
		if err := r.hold(ctx, true); err != nil {
			return b, err
		}
	}
	if err := b.fetch(ctx); err != nil || len(b.rows) == 0 {
		return b, err
	}
	b.publish(ctx, produce)
	return b, r.settle(produce)
}

// settleLast tries a little longer to record what the last round came to. What is not recorded is published again (O-07).
func (r *Relay) settleLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	b := backoff{min: minStoreBackoff, max: maxStoreBackoff}
	for ctx.Err() == nil && r.settle(ctx) != nil {
		pause(ctx, nil, b.next())
	}
}

// leave lets others have the share at once. If that fails they have it when the lease is over.
func (r *Relay) leave(ctx context.Context) {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	r.share.forget()
	if err := r.cfg.Store.Leave(late, r.id); err != nil {
		r.cfg.Logger.WarnContext(ctx, "outbox relay ends, its share is free when its lease is over", "relay", r.id,
			"lease", r.cfg.Lease, "error", cutText(safetext.Text(err)))
		return
	}
	r.cfg.Logger.InfoContext(ctx, "outbox relay ends", "relay", r.id)
}

// listen has the store say that rows may have come, and starts that again when it stops. Nothing depends on it: rows are looked for every
// Interval anyway (O-12).
func (r *Relay) listen(ctx context.Context, w Waker) {
	again := backoff{min: minStoreBackoff, max: time.Minute}
	for ctx.Err() == nil {
		began := time.Now()
		err := w.Wake(ctx, func() {
			r.health.listener.clear(ctx, "wake")
			r.wake()
		})
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it ended")
		}
		if time.Since(began) > time.Minute {
			again.reset()
		}
		r.health.listener.set(ctx, "wake", err)
		r.wake() // what came meanwhile
		pause(ctx, nil, again.next())
	}
}

func (r *Relay) wake() {
	select {
	case r.woken <- struct{}{}:
	default: // it is awake
	}
}
