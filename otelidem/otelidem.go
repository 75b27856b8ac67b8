package otelidem

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// scope is the name of the instrumentation.
const scope = "github.com/idem-go/idem/otelidem"

// Option is a setting of [New].
type Option func(*config)

type config struct {
	meters      metric.MeterProvider
	tracers     trace.TracerProvider
	prop        propagation.TextMapPropagator
	continues   bool
	messageKeys bool
	problems    []error
}

// MeterProvider sets the provider of the metrics. Defaults to otel.GetMeterProvider().
func MeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.require(p == nil, "MeterProvider"); c.meters = p }
}

// TracerProvider sets the provider of the spans. Defaults to otel.GetTracerProvider(). The provider
// of the API's package noop turns tracing off.
func TracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.require(p == nil, "TracerProvider"); c.tracers = p }
}

// Propagator reads the producer's span from the headers of a record. Defaults to
// otel.GetTextMapPropagator(). That default reads no header unless the program has set a propagator
// before [New], because New reads the list of headers once.
func Propagator(p propagation.TextMapPropagator) Option {
	return func(c *config) { c.require(p == nil, "Propagator"); c.prop = p }
}

// ContinueTraces makes the processing of one event a child of the producer's span, if that span was
// sampled. One trace then shows the whole way of the event. This holds for a claim group of one
// event, and for a relay that sends one event. Within a larger group it holds for each call of a
// handler of single events, which then has a separate span. Larger groups and sends, and batch
// handlers, have links. Baggage that the propagator reads is passed on. By default there are only
// links, because the traces of producers would grow with every rewind.
func ContinueTraces() Option { return func(c *config) { c.continues = true } }

// MessageKeys adds the Kafka key of a record to the span of its event, as
// messaging.kafka.message.key. By default the key is left out, because it is often a customer
// number.
func MessageKeys() Option { return func(c *config) { c.messageKeys = true } }

func (c *config) require(missing bool, what string) {
	if missing {
		c.problems = append(c.problems, fmt.Errorf("%s must not be nil", what))
	}
}

// Observer passes the events of Idem's parts to OpenTelemetry. Create one with [New] and give the
// same one to all parts of the process: groups, topics and stores are kept apart. An Observer
// starts no goroutine. All methods are safe for concurrent use.
type Observer struct {
	tracer      trace.Tracer
	mayTrace    bool // false: the provider makes no spans
	prop        propagation.TextMapPropagator
	fields      []string // headers that prop reads
	onlyW3C     bool     // fields are the W3C headers
	continues   bool
	messageKeys bool

	engine enginePart
	runner runnerPart
	spans  spanPart
	outbox outboxPart
	http   httpPart
	do     doPart

	mu      sync.Mutex
	watches []metric.Registration
}

// New returns an Observer and creates the instruments. The error reports invalid options, or an
// instrument that the meter provider refused.
func New(opts ...Option) (*Observer, error) {
	c := config{}
	for _, o := range opts {
		if o == nil {
			c.problems = append(c.problems, errors.New("nil option"))
			continue
		}
		o(&c)
	}
	if err := errors.Join(c.problems...); err != nil {
		return nil, fmt.Errorf("otelidem: %w", err)
	}
	c.setDefaults()
	o := &Observer{
		tracer:   c.tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)),
		mayTrace: !isNoop(c.tracers),
		prop:     c.prop, fields: c.prop.Fields(), continues: c.continues,
		messageKeys: c.messageKeys,
	}
	o.onlyW3C = isOnlyW3C(o.fields)
	b := &builder{meter: c.meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))}
	o.engine.init(b)
	o.runner.init(b)
	o.spans.init()
	o.outbox.init(b)
	o.http.init(b)
	o.do.init(b)
	o.watches = b.watches
	if err := errors.Join(b.errs...); err != nil {
		return nil, errors.Join(fmt.Errorf("otelidem: %w", err), o.Close())
	}
	return o, nil
}

func (c *config) setDefaults() {
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
	if c.tracers == nil {
		c.tracers = otel.GetTracerProvider()
	}
	if c.prop == nil {
		c.prop = otel.GetTextMapPropagator()
	}
}

func isNoop(p trace.TracerProvider) bool {
	switch p.(type) {
	case tracenoop.TracerProvider, *tracenoop.TracerProvider:
		return true
	}
	return false
}

// Close unregisters the metrics that are read at collection: the gauges, idem.handlers.in_flight
// and idem.duplicates. Call Close in a program that continues without this observer. Other programs
// need no Close, and must not call it before Shutdown of the meter provider. The last collection
// would lack these metrics. The other metrics count on after Close. Further calls of Close have no
// effect.
func (o *Observer) Close() error {
	o.mu.Lock()
	watches := slices.Clone(o.watches)
	o.watches = nil
	o.mu.Unlock()
	var errs []error
	for _, w := range watches {
		errs = append(errs, w.Unregister())
	}
	return errors.Join(errs...)
}
