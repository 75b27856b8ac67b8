package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idem-go/idem"
)

var errNoResult = errors.New("outbox: the producer returned fewer results than messages")

// publisher fetches, publishes and settles, one batch at a time. Only the goroutine of Run uses it.
type publisher struct {
	cfg       *RelayConfig
	share     *shareKeeper
	health    *health
	observers *observers
	failures  failures
	sweep     sweep
	pending   *settling       // a batch that could not be settled yet; no batch is fetched before that
	ordered   OrderedProducer // nil: the producer lacks the ability
}

func newPublisher(cfg *RelayConfig, s *shareKeeper, h *health, o *observers) *publisher {
	ordered, _ := cfg.Producer.(OrderedProducer)
	return &publisher{
		cfg: cfg, ordered: ordered, share: s, health: h, observers: o, failures: failures{},
		sweep: sweep{interval: cfg.Interval, limit: min(leastBatch, cfg.Batch), busy: map[int]bool{}},
	}
}

// do settles the batch of an earlier round, has the shards shared out if the time has come, and
// does a round. No wave begins after ctx has ended. Calls of the producer live until produce ends.
// The error is the store's.
func (r *publisher) do(ctx, produce context.Context) (*batch, error) {
	b := &batch{}
	// Settle first: after a shard was given up, its rows could not be settled.
	if err := r.settle(produce); err != nil {
		return b, err
	}
	if r.share.shareIn() <= 0 {
		if err := r.share.hold(ctx, true); err != nil {
			return b, err
		}
	}
	err := r.fetch(ctx, b)
	if err == nil && len(b.rows) > 0 {
		r.publish(ctx, produce, b)
	}
	r.sweep.limit = nextLimit(b, r.sweep.limit, r.cfg.Batch, r.sweep.backlog())
	if err != nil || len(b.rows) == 0 {
		return b, err
	}
	return b, r.settle(produce)
}

// fetch gets the rows of a round.
func (r *publisher) fetch(ctx context.Context, b *batch) error {
	b.began = time.Now()
	r.failures.prune(b.began)
	held := r.share.held()
	r.failures.keep(held)
	b.step = r.sweep.next(b.began, held, r.failures.due(b.began))
	if len(b.shards) == 0 { // the share is empty: no call and no answer is missing any more
		r.health.store.clear(ctx, "fetch")
		r.health.answers()
		return nil
	}
	f := Fetch{
		Shards: b.shards, Limit: r.sweep.limit, Bytes: r.cfg.BatchBytes,
		Halt: r.cfg.WhenParked == Halt,
	}
	f.Skip, f.SkipRows = r.failures.skip(b.began, b.fresh)
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	rows, err := r.cfg.Store.Fetch(call, f)
	if err != nil {
		if ctx.Err() == nil {
			r.health.store.set(ctx, "fetch", err)
		}
		return err
	}
	r.health.store.clear(ctx, "fetch")
	r.sweep.fetched(b.shards, rows)
	b.fill(rows)
	if len(rows) == 0 && len(r.failures) == 0 && !b.partial && !r.sweep.unfinished() {
		r.health.answers() // no row waits, so the broker owes no answer
	}
	return nil
}

// publish sends the rows, and leaves their results to settle. If the producer has the ability,
// publish sends all rows in order first. The rest follows in waves. No wave begins after ctx has
// ended. A call of the producer that has begun ends with produce at the latest.
func (r *publisher) publish(ctx, produce context.Context, b *batch) {
	if r.ordered != nil && ctx.Err() == nil && !r.failures.ofBroker() {
		r.publishInOrder(produce, b)
	}
	for wave := range waves(b.rows, b.rest()) {
		if ctx.Err() != nil {
			break
		}
		r.publishWave(ctx, produce, b, wave)
	}
	b.block(r.cfg.WhenParked == Halt)
	b.seen.Took = time.Since(b.began)
	b.out.leases, b.out.what.Keep = b.leases, r.cfg.Keep > 0
	r.pending = &b.out
	if ctx.Err() != nil {
		return
	}
	switch {
	case b.broker > 0:
		r.health.broker.set(ctx, "produce", b.seen.Err)
	case b.seen.Sent > 0 && !r.failures.ofBroker():
		r.health.broker.clear(ctx, "produce")
	}
}

// publishInOrder sends the rows that may be published now. Rows with an error are left for the
// waves, which find out whether the row or the broker is to blame.
func (r *publisher) publishInOrder(produce context.Context, b *batch) {
	rows := b.publishable(b.rest(), r.share.held(), r.failures)
	if len(rows) == 0 {
		return
	}
	r.health.asks()
	answered := false
	for n, err := range r.produce(produce, r.ordered.ProduceInOrder, b.rows, rows) {
		if err == nil {
			r.failures.settled(&b.rows[rows[n]])
			b.sent(rows[n])
			answered = true
		}
	}
	if answered {
		r.health.answers()
	}
}

// publishWave sends the rows of a wave that may be published now.
func (r *publisher) publishWave(ctx, produce context.Context, b *batch, wave []int) {
	rows := b.publishable(wave, r.share.held(), r.failures)
	if len(rows) == 0 {
		return
	}
	r.health.asks()
	answered := false
	for n, err := range r.produce(produce, r.cfg.Producer.ProduceEach, b.rows, rows) {
		answered = r.judge(ctx, b, rows[n], err) || answered
	}
	if answered {
		r.health.answers()
	}
}

// produce publishes the rows with the indexes at by call, and returns an error for each of them.
func (r *publisher) produce(
	ctx context.Context, call func(context.Context, []*idem.Message) []error, rows []Row, at []int,
) []error {
	msgs := make([]*idem.Message, len(at))
	for n, i := range at {
		msgs[n] = rows[i].Message()
	}
	ctx, watched := beginPublish(ctx, r.observers.publishes,
		Publish{Outbox: r.cfg.Name, rows: rows, at: at})
	errs := call(ctx, msgs)
	if len(errs) != len(msgs) {
		errs = slices.Clip(errs[:min(len(errs), len(msgs))])
		for len(errs) < len(msgs) {
			errs = append(errs, errNoResult)
		}
	}
	watched.end(errs)
	return errs
}

// judge notes the result of row i, and reports whether the result is an answer of the broker.
func (r *publisher) judge(ctx context.Context, b *batch, i int, err error) bool {
	row := &b.rows[i]
	switch {
	case err == nil:
		r.failures.settled(row)
		b.sent(i)
		return true
	case errors.Is(err, idem.ErrTooLarge), errors.Is(err, idem.ErrRefused):
		r.failures.settled(row)
		b.park(row, err)
		return true
	case errors.Is(err, idem.ErrNoTopic):
		blamed, ok := r.failures.add(row, false)
		if ok && blamed >= r.cfg.MaxAttempts {
			r.failures.settled(row)
			b.park(row, err)
			return true
		}
		b.fail(row, ok)
		if blamed == 1 {
			r.logRetry(ctx, row, err)
		}
		return true
	default:
		_, ok := false, true
		if ctx.Err() == nil { // otherwise the relay stopped waiting: no failure
			_, ok = r.failures.add(row, true)
		}
		b.fail(row, ok)
		b.broker++
		b.seen.Err = err
		return false
	}
}

// settle records the results of a round. A failed call is repeated before any other work, so that
// an outage of the database makes no duplicates. The store checks that the relay still holds the
// shards (O-13).
func (r *publisher) settle(ctx context.Context) error {
	s := r.pending
	if s == nil || len(s.what.Sent)+len(s.what.Parked)+len(s.what.Blocked) == 0 {
		r.pending = nil
		return nil
	}
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	leases := make([]Lease, 0, len(s.leases))
	for _, l := range s.leases {
		leases = append(leases, l)
	}
	lost, err := r.cfg.Store.Settle(call, r.share.relay, leases, s.what)
	if err != nil {
		if ctx.Err() == nil {
			r.health.store.set(ctx, "settle", err)
		}
		return err
	}
	r.pending = nil
	r.health.store.clear(ctx, "settle")
	if len(lost) > 0 {
		r.share.drop(lost, s.leases)
		r.cfg.Logger.WarnContext(ctx,
			"outbox shards were taken over by another relay, some events may be published twice",
			"relay", r.share.relay, "shards", lost)
	}
	for i := range s.parked {
		if p := &s.parked[i]; !slices.Contains(lost, p.row.Shard) {
			r.logParked(ctx, p)
			r.observers.observeParked(ctx, &p.row, p.err)
		}
	}
	return nil
}

// settleLast tries for a little longer to record the results of the last round. Rows without a
// recorded result are published again (O-07).
func (r *publisher) settleLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	b := backoff{min: minStoreBackoff, max: maxStoreBackoff}
	for ctx.Err() == nil && r.settle(ctx) != nil {
		pause(ctx, nil, b.next())
	}
}

// logParked logs a row that was given up, without its payload.
func (r *publisher) logParked(ctx context.Context, p *parkedRow) {
	r.cfg.Logger.ErrorContext(ctx, "event of the outbox is parked: a person must decide about it",
		append(rowAttrs(&p.row),
			"aggregate", r.cfg.WhenParked.String(), "error", errorText(p.err))...)
}

// logRetry logs the first failure of a row that is to blame and is tried again.
func (r *publisher) logRetry(ctx context.Context, row *Row, err error) {
	r.cfg.Logger.WarnContext(ctx, "event of the outbox was not taken, trying again",
		append(rowAttrs(row), "max_attempts", r.cfg.MaxAttempts, "error", errorText(err))...)
}

func rowAttrs(row *Row) []any {
	e := &row.Entry
	return []any{
		"topic", e.Topic, "key", cleanText(cut(e.Key)), "event_id", e.ID, "type", e.Type,
		"seq", row.Seq,
	}
}
