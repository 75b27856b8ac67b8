package outbox

import (
	"context"
	"time"

	"github.com/idem-go/idem"
)

// Shards is how many parts an outbox has. All events of an aggregate are in one part, and one relay at a time has it, so that their order
// holds (O-04). More relays than parts are of no use.
const Shards = 64

// Row is an entry that was committed.
type Row struct {
	// Seq ascends in the order of commits among the rows of one aggregate, and says nothing about others (rule 22).
	Seq int64
	// Shard is the part it lies in, from 0 to [Shards]-1.
	Shard int
	// Entry has Topic, Key, Type, ID, Payload and Headers.
	Entry Entry
	// Added is when it was added, by the database's clock.
	Added time.Time
	// Blocked says that an earlier row of its aggregate is parked.
	Blocked bool
}

// Message is the record to publish. Its time is left to the producer: a row that waited for long would be too old for the topic's
// retention otherwise.
func (r *Row) Message() *idem.Message {
	m := &idem.Message{Topic: r.Entry.Topic, Value: r.Entry.Payload, Headers: r.Entry.allHeaders()}
	if r.Entry.Key != "" {
		m.Key = []byte(r.Entry.Key)
	}
	return m
}

// Lease is the right to publish the rows of a shard. Epoch grows with every change of hands (O-13).
type Lease struct {
	Shard int
	Epoch int64
}

// Aggregate is a topic and key whose rows are to stay where they are for a while.
type Aggregate struct{ Topic, Key string }

// Fetch says which rows are wanted.
type Fetch struct {
	// Shards to look in.
	Shards []Lease
	// Limit is how many rows are wanted at most, from each shard no more than Limit divided by the number of shards, rounded up. Bytes
	// bounds the sum of [Entry.Size]; one row is returned whatever its size.
	Limit, Bytes int
	// Skip are aggregates, and SkipRows rows without a key, that failed a moment ago.
	Skip     []Aggregate
	SkipRows []int64
	// Halt: rows behind a parked one of their aggregate are returned with Blocked, else like others.
	Halt bool
}

// Settlement is what became of rows.
type Settlement struct {
	// Sent are the rows that the broker has acknowledged (O-08).
	Sent []int64
	// Keep: they stay, marked, until [Store.Purge]; else they are deleted.
	Keep bool
	// Parked are rows that will never be taken as they are, with the reason, at most 1 KiB of it.
	Parked map[int64]string
	// Blocked are rows behind a parked one. Rows that are not behind one any longer stay as they are.
	Blocked []int64
}

// Store is the table of an outbox, as a [Relay] sees it. Errors are those of the database; whatever they are, the relay asks again. Safe for
// concurrent use.
type Store interface {
	// Hold says that relay is alive for the next lease, by the database's clock, renews what it holds, and returns it, by shard. With
	// share it first gives up what is more than its fair share among the relays that are alive, and takes what is free or expired up to
	// that; without, it neither takes nor gives. A shard that is taken has a higher epoch than ever before.
	Hold(ctx context.Context, relay string, lease time.Duration, share bool) ([]Lease, error)
	// Leave gives up all that relay holds.
	Leave(ctx context.Context, relay string) error
	// Fetch returns rows that were neither sent nor parked nor blocked, those of one shard in ascending order. No transaction is left open, and
	// nothing is marked (O-11).
	Fetch(ctx context.Context, f Fetch) ([]Row, error)
	// Settle records what became of rows, in one transaction. Rows of a shard that relay does not hold with this epoch are left as they are
	// (O-13): lost are the shards this happened to.
	Settle(ctx context.Context, relay string, held []Lease, s Settlement) (lost []int, err error)
	// Purge deletes at most limit rows that were sent and kept for longer than keep, and returns how many it deleted.
	Purge(ctx context.Context, keep time.Duration, limit int) (int64, error)
	// Backlog says what waits. Counts stop at limit.
	Backlog(ctx context.Context, limit int) (Backlog, error)
}

// Backlog is what an outbox holds.
type Backlog struct {
	// Outbox is [RelayConfig].Name, in what a relay tells. A [Store] leaves it empty.
	Outbox string
	// Waiting rows are to be published, up to the limit of the call.
	Waiting int64
	// Oldest is for how long the oldest of them has waited. Zero if there is none.
	Oldest time.Duration
	// Parked rows will never be published as they are, and Blocked ones wait behind them: a person must act.
	Parked, Blocked int64
}

// Waker is an ability of a [Store]: to say that rows may have come, before the next poll. Nothing depends on it (O-12).
type Waker interface {
	// Wake calls wake whenever rows may have come, until ctx ends or an error makes it stop. It may call it for nothing, and miss some.
	Wake(ctx context.Context, wake func()) error
}

// Producer publishes. [consumer.Producer] is one.
//
// [consumer.Producer]: https://pkg.go.dev/github.com/idem-go/idem/consumer#Producer
type Producer interface {
	// ProduceEach publishes msgs and returns an error for each, nil for those that all in-sync replicas have acknowledged: not earlier,
	// and for no other (O-08). The order among them does not matter. It returns when the fate of all is known, or
	// when ctx ends, which a relay lets happen at its own end only: a producer gives up by itself on a broker that is silent.
	//
	// An error that matches [idem.ErrTooLarge], [idem.ErrRefused] or [idem.ErrNoTopic] says that this message is to blame; any other that
	// the broker is, and nothing is known of whether the message is in the log.
	ProduceEach(ctx context.Context, msgs []*idem.Message) []error
}
