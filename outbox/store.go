package outbox

import (
	"context"
	"time"

	"github.com/idem-go/idem"
)

// Shards is the number of parts of an outbox. All events of an aggregate lie in one part, and at
// most one relay at a time holds the lease of a part. More relays than Shards are of no use.
const Shards = 64

// Row is an entry of a committed transaction.
type Row struct {
	// Seq ascends in the order of commits among the rows of one aggregate. Between aggregates the
	// order of Seq has no meaning.
	Seq int64
	// Shard is the part of the outbox, from 0 to [Shards]-1.
	Shard int
	// Entry has Topic, Key, Type, ID, Payload and Headers. Parent and Name are empty.
	Entry Entry
	// Added is when the row was written, by the database's clock.
	Added time.Time
	// Blocked means that the row must wait until a person has decided about an earlier row of the
	// aggregate, which is parked. See [Fetch].Halt.
	Blocked bool
}

// Message returns the record to publish. The producer sets the timestamp. With the time of adding,
// a row that waited for long could exceed the topic's retention.
func (r *Row) Message() *idem.Message {
	m := &idem.Message{
		Topic: r.Entry.Topic, Value: r.Entry.Payload, Headers: r.Entry.allHeaders(),
	}
	if r.Entry.Key != "" {
		m.Key = []byte(r.Entry.Key)
	}
	return m
}

// RowID identifies r in a [Settlement], and for an [Operator].
func (r *Row) RowID() RowID { return RowID{Seq: r.Seq, EventID: r.Entry.ID} }

// RowID identifies a row. Seq alone does not: after a fail-over that loses commits, or a restore,
// the database may give the Seq of a lost row to another event.
type RowID struct {
	// Seq is [Row].Seq.
	Seq int64
	// EventID is the ID of the row's [Entry].
	EventID string
}

// Lease is the right to publish the rows of a shard.
type Lease struct {
	Shard int
	// Epoch grows each time another relay takes the shard.
	Epoch int64
	// Left is the rest of the lease, by the database's clock, in an answer of [Store.Hold]. Zero:
	// the whole lease. In a request Left has no meaning.
	Left time.Duration
}

// Aggregate is a topic and key.
type Aggregate struct{ Topic, Key string }

// Fetch is a request for rows.
type Fetch struct {
	// Shards are the shards to read.
	Shards []Lease
	// Limit is the greatest number of rows. Of each shard, at most Limit divided by the number of
	// shards is returned, rounded up.
	Limit int
	// Bytes bounds the sum of [Entry.Size]. A row above Bytes is returned alone.
	Bytes int
	// Skip are aggregates to leave out, because a row of theirs failed a moment ago. A table may
	// read their rows all the same, which takes time in proportion to their number.
	Skip []Aggregate
	// SkipRows are the Seq of rows without a key to leave out for the same reason.
	SkipRows []int64
	// Halt sets Blocked in rows behind a parked row of their aggregate. False: Blocked is set only
	// in rows behind both a parked and a blocked row. So no row overtakes a blocked one after a
	// change of the policy.
	Halt bool
}

// Settlement is the results of rows. A row is meant only if both Seq and event ID are equal. Other
// rows stay as they are.
type Settlement struct {
	// Sent are the rows that the broker has acknowledged.
	Sent []RowID
	// Keep marks the sent rows, which stay until [Store.Purge]. False: they are deleted.
	Keep bool
	// Parked are the rows to give up, each with the reason: at most 1 KiB.
	Parked map[RowID]string
	// Blocked are rows behind a parked row. If the parked row is gone meanwhile, they stay as they
	// are.
	Blocked []RowID
}

// Store is the table of an outbox, for a [Relay]. Errors are those of the database; after any of
// them the relay calls again. Safe for concurrent use.
type Store interface {
	// Hold keeps relay alive for one lease, by the database's clock. It renews the leases that the
	// relay still has, and returns them by shard. While a person retries or skips a row of a shard,
	// the lease of that shard cannot be renewed. Hold then returns the shard with the rest of its
	// lease.
	//
	// With share, Hold first gives up shards above the relay's fair share among the relays that are
	// alive. Then Hold takes shards that are free or expired, up to the fair share. Fair shares
	// differ by one at most, and add up to [Shards]. A shard that is taken gets a higher epoch than
	// ever before.
	Hold(ctx context.Context, relay string, lease time.Duration, share bool) ([]Lease, error)
	// Leave gives up all shards of relay.
	Leave(ctx context.Context, relay string) error
	// Fetch returns rows that are neither sent nor parked nor blocked, those of one shard in
	// ascending order. No transaction stays open, and no row is marked.
	Fetch(ctx context.Context, f Fetch) ([]Row, error)
	// Settle records the results of rows in one transaction. lost are the shards of held that relay
	// does not hold in that epoch any more. Rows of these stay as they are.
	Settle(ctx context.Context, relay string, held []Lease, s Settlement) (lost []int, err error)
	// Purge deletes at most limit rows that were sent longer than keep ago, and returns their
	// number.
	Purge(ctx context.Context, keep time.Duration, limit int) (int64, error)
	// Backlog counts the rows that wait. Each count stops at limit.
	Backlog(ctx context.Context, limit int) (Backlog, error)
}

// Backlog counts the rows of an outbox that are not sent.
type Backlog struct {
	// Outbox is [RelayConfig].Name, for observers. A [Store] leaves the field empty.
	Outbox string
	// Waiting counts the rows to be published, up to the limit of the call.
	Waiting int64
	// Oldest is the age of the oldest waiting row. Zero: no row waits.
	Oldest time.Duration
	// Parked counts the rows that were given up, and Blocked the rows that wait behind those. A
	// person must act. Both stop at the limit of the call.
	Parked, Blocked int64
}

// Waker is an optional ability of a [Store]: to announce new rows before the next poll. A relay
// finds every row without a Waker too.
type Waker interface {
	// Wake calls wake whenever new rows may have come, until ctx ends or an error occurs. Calls
	// without new rows and missed rows are both allowed.
	Wake(ctx context.Context, wake func()) error
}

// Producer publishes messages. [consumer.Producer] is one.
//
// [consumer.Producer]: https://pkg.go.dev/github.com/idem-go/idem/consumer#Producer
type Producer interface {
	// ProduceEach publishes msgs, in any order, and returns one error for each. The error is nil
	// if, and only if, all in-sync replicas have acknowledged the message.
	//
	// An error that matches [idem.ErrTooLarge], [idem.ErrRefused] or [idem.ErrNoTopic] means that
	// this message is to blame. Any other error means a fault of the broker: the message may or may
	// not be in the log.
	//
	// ProduceEach returns when all results are known, or when ctx ends. A relay ends ctx only when
	// the relay stops, so the producer needs a timeout of its own.
	ProduceEach(ctx context.Context, msgs []*idem.Message) []error
}

// TopicChecker is an optional ability of a [Producer]: to look for the topics of
// [RelayConfig].Topics. [consumer.Producer] has it.
//
// [consumer.Producer]: https://pkg.go.dev/github.com/idem-go/idem/consumer#Producer
type TopicChecker interface {
	// CheckTopics returns nil if all topics exist and this client may write to each. An error that
	// matches [idem.ErrNoTopic] names the topics that are missing or that this client may not write
	// to, and the commands that create the topics or grant the right. After any other error the
	// state of the topics is unknown.
	CheckTopics(ctx context.Context, topics []string) error
}

// OrderedProducer is an optional ability of a [Producer]: to have several rows of an aggregate
// under way. Without it, a row waits for the acknowledgement of the row before.
// [consumer.Producer] has it.
//
// [consumer.Producer]: https://pkg.go.dev/github.com/idem-go/idem/consumer#Producer
type OrderedProducer interface {
	// ProduceInOrder publishes msgs and returns one error for each, as ProduceEach does. A message
	// is in the log only behind all earlier messages of msgs with its topic and key. That holds at
	// any time, also after an error, and for requests that arrive after ProduceInOrder has
	// returned.
	//
	// Errors need no class: the relay gives the rows with an error to ProduceEach.
	ProduceInOrder(ctx context.Context, msgs []*idem.Message) []error
}
