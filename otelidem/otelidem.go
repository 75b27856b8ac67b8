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

// scope names the instrumentation.
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

// MeterProvider is where the metrics go. Defaults to otel.GetMeterProvider().
func MeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.require(p == nil, "MeterProvider"); c.meters = p }
}

// TracerProvider is where the spans go. Defaults to otel.GetTracerProvider(). That of the API's package noop turns tracing off
// altogether.
func TracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.require(p == nil, "TracerProvider"); c.tracers = p }
}

// Propagator reads the span of its producer from a record's headers. Defaults to otel.GetTextMapPropagator(), which reads
// nothing unless the program has set one before [New]: which headers it reads is asked for once.
func Propagator(p propagation.TextMapPropagator) Option {
	return func(c *config) { c.require(p == nil, "Propagator"); c.prop = p }
}

// ContinueTraces makes what is done with one event a child of its producer's span, if that was sampled, so that one trace shows the
// event's whole way: the run of an event by itself, and the call of a handler of single events in a run of many, which then has a span of its own.
// What a relay sends of an outbox is one, too, if it sends one event alone. Runs and sends of many, and batch handlers, have links as ever. Baggage that the propagator reads comes along. By default there are
// only links, since the traces of producers would grow with every rewind.
func ContinueTraces() Option { return func(c *config) { c.continues = true } }

// MessageKeys puts the Kafka key of a record on the span of its run, as messaging.kafka.message.key. By default it is left out: it
// is often the number of a customer.
func MessageKeys() Option { return func(c *config) { c.messageKeys = true } }

func (c *config) require(missing bool, what string) {
	if missing {
		c.problems = append(c.problems, fmt.Errorf("%s must not be nil", what))
	}
}

// Observer tells OpenTelemetry what the parts of Idem tell it. Make one with [New] and give it to all of them: events of
// several groups, topics and stores do not mix. It starts no goroutine. All methods are safe for concurrent use.
type Observer struct {
	tracer      trace.Tracer
	mayTrace    bool // false: the provider makes no spans at all
	prop        propagation.TextMapPropagator
	fields      []string // headers that prop reads
	onlyW3C     bool     // and that those are
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

// New makes the instruments. Its error is a mistake in the options, or one of the meter provider about an instrument.
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
		tracer: c.tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)), mayTrace: !isNoop(c.tracers),
		prop: c.prop, fields: c.prop.Fields(), continues: c.continues, messageKeys: c.messageKeys,
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

// Close takes off the meter provider what is told when metrics are collected: the gauges, idem.handlers.in_flight and
// idem.duplicates. It is for programs that go on without this observer; others have no need of it, and should not call it before the
// meter provider's Shutdown, whose last collection would lack them. What is told afterwards is still counted by the
// others. It may be called more than once.
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
