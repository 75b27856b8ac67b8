package outbox

import (
	"context"
	"time"
)

// Observer watches a relay ([RelayConfig].Observers), or what is added (pgoutbox.Observers): any value that implements one or more of the
// small interfaces below. Methods are called on the path of the work, those of a relay by the relay itself: they must be quick. An
// observer that implements none of the interfaces of its place is a wiring mistake.
type Observer any

// RoundObserver is told of every batch.
type RoundObserver interface {
	ObserveRound(context.Context, Round)
}

// Round is one batch: what was fetched, and what became of it. One without rows tells of a database that is away.
type Round struct {
	// Outbox is [RelayConfig].Name.
	Outbox string
	// Rows that were fetched; Sent, which the broker has acknowledged; Failed, which are tried again; Parked; Blocked, as they are behind a
	// parked one. The rest was left for the next round.
	Rows, Sent, Failed, Parked, Blocked int
	// Shards is how many the relay holds.
	Shards int
	Took   time.Duration
	// Delay is the age of the oldest row that was sent, when it was acknowledged, by the clocks of this host and the database's.
	Delay time.Duration
	// Err is the last error of the broker or the database: rows are published again, or their state will be recorded later.
	Err error
}

// ParkedObserver is told of every row that was parked.
type ParkedObserver interface {
	ObserveParked(context.Context, Row, error)
}

// BacklogObserver is told what waits, about every ten seconds.
type BacklogObserver interface {
	ObserveBacklog(context.Context, Backlog)
}

// ShareObserver is told when a relay holds another number of shards than before, and when it ends.
type ShareObserver interface {
	ObserveShare(context.Context, Share)
}

// Share is what a relay holds.
type Share struct {
	// Outbox is [RelayConfig].Name.
	Outbox string
	// Relay is another one for each relay: no metric label.
	Relay string
	// Shards is how many it holds.
	Shards int
	// Ended says that nothing more will be told of this relay.
	Ended bool
}

// PublishObserver is told when rows are given to the producer and when their fates are known, and gives that its context.
//
// Begin and end are told one after the other, by the relay. A relay gives rows to the producer in waves, one wave after the other: see
// the documentation of the package.
type PublishObserver interface {
	// BeginPublish returns the context of [Producer].ProduceEach. It must be derived from ctx.
	BeginPublish(ctx context.Context, p *Publish) context.Context
	// EndPublish gets the context that BeginPublish returned.
	EndPublish(ctx context.Context, p *Publish)
}

// Publish is the rows of one call of [Producer].ProduceEach; at most one of an aggregate, of any number of topics. It must not be kept
// beyond EndPublish, nor may what it leads to be changed.
type Publish struct {
	// Outbox is [RelayConfig].Name.
	Outbox string
	// Began is when.
	Began time.Time
	// Took is how long, once it has ended.
	Took time.Duration

	rows []Row
	at   []int // which of them
	errs []error
}

// Len is how many rows there are; at least one.
func (p *Publish) Len() int { return len(p.at) }

// Row returns row i. The trace of whoever added it is in the headers of its entry.
func (p *Publish) Row(i int) *Row { return &p.rows[p.at[i]] }

// Err returns what the producer said of row i, once it has ended. Nil is the broker's acknowledgement.
func (p *Publish) Err(i int) error {
	if i < len(p.errs) {
		return p.errs[i]
	}
	return nil
}

// AddObserver is told of every entry that is added, one by one, and gives the context whose trace it carries.
//
// Begin and end are told on the goroutine that adds. Whether an entry leaves is not known at its end: its transaction may still be
// rolled back, and run again. [WriteObserver] is nearer to that.
type AddObserver interface {
	// BeginAdd is told of an entry that has its ID, before it is checked. e has the headers that its caller gave it, none of the trace:
	// that of the context that is returned is added to them, unless they have one already. It must be derived from ctx. e must not
	// be changed, nor kept beyond EndAdd.
	BeginAdd(ctx context.Context, e *Entry) context.Context
	// EndAdd gets the context that BeginAdd returned, when the call has ended that e was added by. After an error none of its entries
	// is added.
	EndAdd(ctx context.Context, e *Entry, err error)
}

// WriteObserver is told of entries when they are written: in the transaction that they belong to, and as a rule just before its commit.
// One that is run again writes again.
type WriteObserver interface {
	ObserveWrite(context.Context, Write)
}

// Write is entries that were written together, of any number of topics. It must not be kept.
type Write struct {
	// Entries must not be changed. At least one.
	Entries []Entry
	Took    time.Duration // with the time that other writers of the same aggregates were waited for
	Err     error
}

func watchesRelay(o Observer) bool {
	switch o.(type) {
	case RoundObserver, PublishObserver, ParkedObserver, BacklogObserver, ShareObserver:
		return true
	}
	return false
}

// publishing tells observers of rows that are given to a producer.
type publishing struct {
	watch []PublishObserver
	ctxs  []context.Context // what each of watch has returned
	told  Publish
}

// beginPublish tells that those rows are given to the producer. It returns nil, and ctx as it is, if nobody wants to know.
func (r *Relay) beginPublish(ctx context.Context, rows []Row, at []int) (context.Context, *publishing) {
	if len(r.publishers) == 0 {
		return ctx, nil
	}
	p := &publishing{watch: r.publishers, told: Publish{Outbox: r.cfg.Name, Began: time.Now(), rows: rows, at: at}}
	for _, o := range p.watch {
		ctx = o.BeginPublish(ctx, &p.told) //nolint:fatcontext // one for each observer
		p.ctxs = append(p.ctxs, ctx)
	}
	return ctx, p
}

// end tells what became of them, those first who were told last.
func (p *publishing) end(errs []error) {
	if p == nil {
		return
	}
	p.told.Took, p.told.errs = time.Since(p.told.Began), errs
	for i := len(p.watch) - 1; i >= 0; i-- {
		p.watch[i].EndPublish(p.ctxs[i], &p.told)
	}
}

// tellShare tells what is held, if that is news.
func (r *Relay) tellShare(ctx context.Context, ended bool) {
	if len(r.sharers) == 0 {
		return
	}
	n := len(r.share.held())
	if n == r.toldShards && !ended {
		return
	}
	r.toldShards = n
	for _, o := range r.sharers {
		o.ObserveShare(ctx, Share{Outbox: r.cfg.Name, Relay: r.id, Shards: n, Ended: ended})
	}
}
