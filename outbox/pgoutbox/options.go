package pgoutbox

import (
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/propagation"

	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/outbox"
)

// DefaultMaxBytes is how large a record may be unless [MaxBytes] says otherwise. It fits the default max.message.bytes of a topic.
const DefaultMaxBytes = 1_000_000

// Outbox is the table. Safe for concurrent use. Make one for a table, and keep it: transactions keep their queues by it.
type Outbox struct {
	pool       *pgxpool.Pool
	schema     string // "": found through the search path
	max        int
	notify     bool
	propagator propagation.TextMapPropagator
	adders     []outbox.AddObserver
	writers    []outbox.WriteObserver
	wrong      error // an option that cannot be; every method returns it
	sql        atomic.Pointer[statements]
}

// The abilities of an Outbox.
var (
	_ outbox.Store = (*Outbox)(nil)
	_ outbox.Waker = (*Outbox)(nil)
)

// Option is a setting of [New] and [Migrate].
type Option func(*Outbox)

// InSchema names the schema of the tables. It must match ^[a-z_][a-z0-9_]{0,62}$ (G-05), otherwise every method fails. Default: the first
// one in the search path of the session that has them, looked up at the first call and kept; [Migrate] then takes the first schema of
// the search path.
func InSchema(name string) Option {
	return func(o *Outbox) {
		if err := pgschema.CheckName(name); err != nil {
			o.wrong = fmt.Errorf("pgoutbox: option InSchema: %w", err)
		}
		o.schema = name
	}
}

// MaxBytes bounds [outbox.Entry.Size], so that an event that no broker would take fails where it is made (O-10); default
// [DefaultMaxBytes]. It must be positive.
func MaxBytes(n int) Option {
	return func(o *Outbox) {
		if n <= 0 {
			o.wrong = fmt.Errorf("pgoutbox: option MaxBytes: %d is not positive", n)
		}
		o.max = n
	}
}

// Notify makes transactions that add entries wake relays that listen ([Outbox.Wake]) instead of letting them find the rows at their
// next poll. It has a price that every transaction pays: the server lets only one transaction that notifies commit at a time, in the
// whole database (O-12). Default: off.
func Notify() Option { return func(o *Outbox) { o.notify = true } }

// Propagator says how the trace that the context belongs to travels in headers, so that whoever handles the event continues it. Default:
// W3C Trace Context (headers traceparent and tracestate). Nil: it does not travel. An entry that has one of the propagator's headers
// keeps what it has, and gets none of the others.
func Propagator(p propagation.TextMapPropagator) Option { return func(o *Outbox) { o.propagator = p } }

// Observers watch what is added: see [outbox.AddObserver], which also gives the context whose trace an entry carries, and
// [outbox.WriteObserver]. One that implements neither makes every method fail. Given more than once, all of them watch.
func Observers(observers ...outbox.Observer) Option {
	return func(o *Outbox) {
		for _, w := range observers {
			adder, adds := w.(outbox.AddObserver)
			writer, writes := w.(outbox.WriteObserver)
			if adds {
				o.adders = append(o.adders, adder)
			}
			if writes {
				o.writers = append(o.writers, writer)
			}
			if !adds && !writes {
				o.wrong = fmt.Errorf("pgoutbox: option Observers: %T is neither an outbox.AddObserver nor an outbox.WriteObserver", w)
			}
		}
	}
}

// New returns an outbox. It does not ask the server for anything. pool is what a relay and the operator's methods use, and stays the
// caller's; whoever only adds entries may give nil.
func New(pool *pgxpool.Pool, opts ...Option) *Outbox {
	o := &Outbox{pool: pool, max: DefaultMaxBytes, propagator: propagation.TraceContext{}}
	for _, opt := range opts {
		opt(o)
	}
	return o
}
