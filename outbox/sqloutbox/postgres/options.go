package postgres

import (
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/propagation"

	"github.com/idem-go/idem/internal/outboxrow"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/outbox"
)

// DefaultMaxBytes is the default of [MaxBytes], in bytes. It fits the default max.message.bytes of
// a topic.
const DefaultMaxBytes = 1_000_000

// Outbox adds to the table of an outbox. Create one for each table, with [New]. Safe for concurrent
// use.
type Outbox struct {
	schema string // "": found through the search path
	rows   outboxrow.Adder
	wrong  error // an invalid option; Add returns this error
	found  atomic.Pointer[string]
}

// Option is a setting of [New].
type Option func(*Outbox)

// InSchema sets the schema of the tables. name must match ^[a-z_][a-z0-9_]{0,62}$, otherwise
// [Outbox.Add] fails.
//
// Default: the first schema of the session's search path that has the tables, looked up at the
// first call and kept.
func InSchema(name string) Option {
	return func(o *Outbox) {
		if err := pgschema.CheckName(name); err != nil {
			o.wrong = fmt.Errorf("postgres: option InSchema: %w", err)
		}
		o.schema = name
	}
}

// MaxBytes bounds [outbox.Entry.Size], in bytes. [Outbox.Add] refuses a larger entry, which the
// broker would refuse later. Default: [DefaultMaxBytes]. n must be positive, otherwise Add fails.
func MaxBytes(n int) Option {
	return func(o *Outbox) {
		if n <= 0 {
			o.wrong = fmt.Errorf("postgres: option MaxBytes: %d is not positive", n)
		}
		o.rows.Max = n
	}
}

// Propagator sets how the trace of the context is written into headers, so that the handler of the
// event continues the trace. Default: W3C Trace Context (headers traceparent and tracestate). Nil
// writes no trace. An entry that already has one of the propagator's headers is left unchanged.
func Propagator(p propagation.TextMapPropagator) Option {
	return func(o *Outbox) { o.rows.Propagator = p }
}

// Observers adds observers of the entries. Each implements [outbox.AddObserver], which can also
// change the trace that an entry carries, or [outbox.WriteObserver], or both. With an observer that
// implements neither, Add fails. The option may be given more than once. Default: no observer.
func Observers(observers ...outbox.Observer) Option {
	return func(o *Outbox) {
		if err := o.rows.Observe(observers...); err != nil {
			o.wrong = fmt.Errorf("postgres: %w", err)
		}
	}
}

// New returns an outbox, without a call to the server. An invalid option makes Add return its
// error.
func New(opts ...Option) *Outbox {
	o := &Outbox{rows: outboxrow.Adder{
		Max: DefaultMaxBytes, Propagator: propagation.TraceContext{},
	}}
	for _, opt := range opts {
		opt(o)
	}
	return o
}
