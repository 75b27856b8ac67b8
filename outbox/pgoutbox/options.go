package pgoutbox

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/propagation"

	"github.com/idem-go/idem/internal/outboxrow"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/outbox"
)

// DefaultMaxBytes is the default of [MaxBytes], in bytes. It fits the default max.message.bytes of
// a topic.
const DefaultMaxBytes = 1_000_000

// Outbox is the table of an outbox. Create one for each table, with [New], and keep it: the queue
// of a transaction belongs to one Outbox. Safe for concurrent use.
type Outbox struct {
	pool   *pgxpool.Pool
	schema string // "": found through the search path
	rows   outboxrow.Adder
	notify *notifier // nil: no transaction notifies
	wrong  error     // an invalid option; every method returns this error
	sql    atomic.Pointer[statements]
}

// The abilities of an Outbox.
var (
	_ outbox.Store    = (*Outbox)(nil)
	_ outbox.Operator = (*Outbox)(nil)
	_ outbox.Waker    = (*Outbox)(nil)
)

// Option is a setting of [New] and [Migrate].
type Option func(*Outbox)

// InSchema sets the schema of the tables. name must match ^[a-z_][a-z0-9_]{0,62}$, otherwise every
// method fails.
//
// Default: the first schema of the session's search path that has the tables, looked up at the
// first call and kept. If no schema has the tables, [Migrate] takes the first one of the search
// path.
func InSchema(name string) Option {
	return func(o *Outbox) {
		if err := pgschema.CheckName(name); err != nil {
			o.wrong = fmt.Errorf("pgoutbox: option InSchema: %w", err)
		}
		o.schema = name
	}
}

// MaxBytes bounds [outbox.Entry.Size], in bytes. [Outbox.Add] refuses a larger entry, which the
// broker would refuse later. Default: [DefaultMaxBytes]. n must be positive, otherwise every method
// fails.
func MaxBytes(n int) Option {
	return func(o *Outbox) {
		if n <= 0 {
			o.wrong = fmt.Errorf("pgoutbox: option MaxBytes: %d is not positive", n)
		}
		o.rows.Max = n
	}
}

// Notify has transactions that add entries wake the relays that listen ([Outbox.Wake]). Without
// Notify, relays find the rows at their next poll. Default: off.
//
// Of all transactions that notify, the server commits one at a time, in the whole database.
// Therefore at most one transaction in 10 ms notifies, for each Outbox. Relays look again for the
// rows of the others, until 150 ms after the notification. A row that commits still later waits for
// the next poll at most. So does a row if the transaction that was to notify was rolled back.
func Notify() Option {
	return func(o *Outbox) { o.notify = &notifier{began: time.Now()} }
}

// Propagator sets how the trace of the context is written into headers, so that the handler of the
// event continues the trace. Default: W3C Trace Context (headers traceparent and tracestate). Nil
// writes no trace. An entry that already has one of the propagator's headers is left unchanged.
func Propagator(p propagation.TextMapPropagator) Option {
	return func(o *Outbox) { o.rows.Propagator = p }
}

// Observers adds observers of the entries. Each implements [outbox.AddObserver], which can also
// change the trace that an entry carries, or [outbox.WriteObserver], or both. With an observer that
// implements neither, every method fails. The option may be given more than once. Default: no
// observer.
func Observers(observers ...outbox.Observer) Option {
	return func(o *Outbox) {
		if err := o.rows.Observe(observers...); err != nil {
			o.wrong = fmt.Errorf("pgoutbox: %w", err)
		}
	}
}

// New returns an outbox, without a call to the server. The methods for relays and operators use
// pool, which stays the caller's to close. For adding entries only, pool may be nil. An invalid
// option makes every method return its error.
func New(pool *pgxpool.Pool, opts ...Option) *Outbox {
	o := &Outbox{pool: pool, rows: outboxrow.Adder{
		Max: DefaultMaxBytes, Propagator: propagation.TraceContext{},
	}}
	for _, opt := range opts {
		opt(o)
	}
	return o
}
