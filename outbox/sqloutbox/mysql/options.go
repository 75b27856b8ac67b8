package mysql

import (
	"database/sql"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/propagation"

	"github.com/idem-go/idem/internal/outboxrow"
	"github.com/idem-go/idem/outbox"
)

// DefaultMaxBytes is the default of [MaxBytes], in bytes. It fits the default max.message.bytes of
// a topic.
const DefaultMaxBytes = 1_000_000

// Outbox is the table of an outbox. Create one with [New]. Safe for concurrent use.
type Outbox struct {
	db    *sql.DB
	rows  outboxrow.Adder
	wrong error // an invalid option; every method returns this error
}

// The abilities of an Outbox.
var (
	_ outbox.Store    = (*Outbox)(nil)
	_ outbox.Operator = (*Outbox)(nil)
)

// Option is a setting of [New].
type Option func(*Outbox)

// MaxBytes bounds [outbox.Entry.Size], in bytes. [Outbox.Add] refuses a larger entry, which the
// broker would refuse later. Default: [DefaultMaxBytes]. n must be positive, otherwise every method
// fails. Keep n below max_allowed_packet of the server and of the driver.
func MaxBytes(n int) Option {
	return func(o *Outbox) {
		if n <= 0 {
			o.wrong = fmt.Errorf("mysql: option MaxBytes: %d is not positive", n)
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
// implements neither, every method fails. The option may be given more than once. Default: no
// observer.
func Observers(observers ...outbox.Observer) Option {
	return func(o *Outbox) {
		if err := o.rows.Observe(observers...); err != nil {
			o.wrong = fmt.Errorf("mysql: %w", err)
		}
	}
}

// New returns an outbox for the tables in the database of db, without a call to the server. The
// methods for relays and operators use db, which stays the caller's to close. For adding entries
// only, db may be nil. An invalid option makes every method return its error.
func New(db *sql.DB, opts ...Option) *Outbox {
	o := &Outbox{db: db, rows: outboxrow.Adder{
		Max: DefaultMaxBytes, Propagator: propagation.TraceContext{},
	}}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

var (
	errNoTx = fmt.Errorf("mysql: %w", outboxrow.ErrNoTx)
	errNoDB = errors.New("mysql: New was given no pool")
)

// usable returns an error if the pool cannot be used.
func (o *Outbox) usable() error {
	if o.wrong == nil && o.db == nil {
		return errNoDB
	}
	return o.wrong
}
