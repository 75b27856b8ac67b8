package dashboards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/otelidem"
)

// series are the contents of a scrape: by the name of a metric, its labels and their values.
type series map[string]map[string]map[string]bool

// scraped gathers the measurements of fill with the exporter that programs have.
func scraped(t *testing.T, fill func(metric.MeterProvider)) series {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter, err := promexporter.New(promexporter.WithRegisterer(registry))
	require.NoError(t, err)
	fill(sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)))
	families, err := registry.Gather()
	require.NoError(t, err)
	all := make(series)
	for _, f := range families {
		if f.GetName() == "target_info" {
			continue
		}
		names := []string{f.GetName()}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = []string{f.GetName() + "_bucket", f.GetName() + "_count", f.GetName() + "_sum"}
		}
		for _, name := range names {
			all[name] = make(map[string]map[string]bool)
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					all.add(name, l.GetName(), l.GetValue())
				}
			}
			if strings.HasSuffix(name, "_bucket") {
				all.add(name, "le", "1")
			}
		}
	}
	return all
}

func (s series) has(name string) bool { return s[name] != nil }

func (s series) label(name, label string) bool { return s[name][label] != nil }

func (s series) add(name, label, value string) {
	if strings.HasPrefix(label, "otel_scope_") {
		return
	}
	if s[name][label] == nil {
		s[name][label] = make(map[string]bool)
	}
	s[name][label][value] = true
}

// listed has the metrics of otelidem.Metrics() in Prometheus: one series of each with all its
// attributes.
func listed(t *testing.T) series {
	t.Helper()
	return scraped(t, func(p metric.MeterProvider) {
		meter, ctx := p.Meter("listed"), t.Context()
		for _, m := range otelidem.Metrics() {
			var kvs []attribute.KeyValue
			for _, a := range m.Attributes {
				kvs = append(kvs, attribute.String(a, "any"))
			}
			with := metric.WithAttributes(kvs...)
			var err error
			switch m.Kind {
			case otelidem.Counter:
				var i metric.Int64Counter
				i, err = meter.Int64Counter(m.Name, metric.WithUnit(m.Unit))
				i.Add(ctx, 1, with)
			case otelidem.UpDownCounter:
				var i metric.Int64UpDownCounter
				i, err = meter.Int64UpDownCounter(m.Name, metric.WithUnit(m.Unit))
				i.Add(ctx, 1, with)
			case otelidem.Histogram:
				var i metric.Float64Histogram
				i, err = meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit))
				i.Record(ctx, 1, with)
			case otelidem.Gauge:
				var i metric.Float64Gauge
				i, err = meter.Float64Gauge(m.Name, metric.WithUnit(m.Unit))
				i.Record(ctx, 1, with)
			default:
				t.Errorf("%s is a %s", m.Name, m.Kind)
			}
			require.NoError(t, err, m.Name)
		}
	})
}

// observed has the metrics of an observer after one call of each kind.
func observed(t *testing.T) series {
	t.Helper()
	return scraped(t, func(p metric.MeterProvider) {
		o, err := otelidem.New(otelidem.MeterProvider(p))
		require.NoError(t, err)
		handleAll(t, o)
		tellAll(t.Context(), o)
		publishAll(t, o)
		tellDoors(t.Context(), o)
	})
}

// The metrics of an observer are those of its list, with no other label, and each of them can be
// measured.
func TestMeasured_IsListed(t *testing.T) {
	list, seen := listed(t), observed(t)
	for name, labels := range seen {
		if !assert.True(t, list.has(name), "%s: measured and not listed", name) {
			continue
		}
		for label := range labels {
			assert.True(t, list.label(name, label), "%s{%s}: measured and not listed", name, label)
		}
	}
	for name, labels := range list {
		if !assert.True(t, seen.has(name), "%s: listed and not measured here", name) {
			continue
		}
		for label := range labels {
			assert.True(t, seen.label(name, label), "%s{%s}: listed and not measured here", name, label)
		}
	}
}

var errAny = errors.New("any")

// flaky is a store that is away from some time on, when away is called.
type flaky struct {
	*memstore.Store
	away func()
}

func (f *flaky) Claim(ctx context.Context, t dedup.Token, lease time.Duration, claims []dedup.Request, into []dedup.Answer) error {
	if f.away != nil {
		f.away()
		return errAny
	}
	return f.Store.Claim(ctx, t, lease, claims, into)
}

type deadLetters struct{}

func (deadLetters) Produce(context.Context, ...*idem.Message) error { return nil }

type paid struct{}

func message(typ, id string, offset int64) *idem.Message {
	return &idem.Message{
		Topic: "payments", Offset: offset, Time: time.Unix(offset, 0), Value: fmt.Appendf(nil, `{"event_id":%q,"type":%q}`, id, typ),
	}
}

// handleAll has a processor meet each kind of event, since only a processor reports runs and calls.
func handleAll(t *testing.T, o *otelidem.Observer) {
	t.Helper()
	r := idem.NewRouter()
	failed := false
	idem.On(r, "paid", func(_ context.Context, e idem.Event[paid]) error {
		switch {
		case e.ID == "poison":
			return idem.Permanent(errAny)
		case e.ID == "again" && !failed:
			failed = true
			return errAny
		}
		return nil
	}, idem.Retry(idem.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond}))
	idem.OnBatch(r, "many", func(context.Context, []idem.Event[paid]) error { return nil })
	store := &flaky{Store: memstore.New()}
	p, err := idem.NewProcessor(r, idem.Config{
		Store: store, Scope: "orders", Group: "orders", Producer: deadLetters{}, Observers: []observe.Observer{o}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	tombstone := &idem.Message{Topic: "payments", Offset: 7}
	for _, batch := range [][]*idem.Message{
		{message("paid", "one", 1), message("paid", "poison", 2), message("paid", "again", 3), message("nobody's", "x", 4), message("many", "y", 5), tombstone},
		{message("paid", "one", 1), message("paid", "one", 9)},
	} {
		n, err := p.HandleBatch(t.Context(), batch)
		require.NoError(t, err)
		require.Len(t, batch, n)
	}
	ctx, stop := context.WithCancel(t.Context())
	store.away = stop // and so is the consumer
	_, err = p.HandleBatch(ctx, []*idem.Message{message("paid", "never", 10)})
	require.Error(t, err)
}

// tellAll reports the other kinds of observations, by the interfaces.
func tellAll(ctx context.Context, o *otelidem.Observer) {
	const group, topic = "orders", "payments"
	m, key := message("paid", "one", 1), dedup.Key{Scope: group, Type: "paid", ID: "one"}
	for i := range [...]observe.Settlement{observe.SettledHandled, observe.SettledDuplicate, observe.SettledDeadLetter, observe.SettledRescheduled, observe.SettledSkipped, observe.SettledFallback, observe.SettledUnprotected} {
		for _, deferred := range []bool{false, true} {
			e := observe.SettledEvent{Group: group, Topic: topic, Deferred: deferred}
			e.Counts[i] = 1
			o.ObserveSettled(ctx, e)
		}
	}
	for _, verdict := range []dedup.Verdict{dedup.Done, dedup.Rescheduled, dedup.Dead, dedup.Conflict} {
		o.ObserveDuplicate(ctx, observe.DuplicateEvent{Group: group, Message: m, Key: key, Verdict: verdict, SameRecord: true})
		o.ObserveDuplicate(ctx, observe.DuplicateEvent{Group: group, Message: m, Key: key, Verdict: verdict, Age: time.Second, Shadow: true})
	}
	o.ObserveDeadLetter(ctx, observe.DeadLetterEvent{Group: group, Message: m, Class: idem.ClassFailed, Omitted: true})
	o.ObserveBreaker(ctx, observe.BreakerEvent{Group: group, Handler: "paid", Type: "paid", State: observe.BreakerOpen})
	o.ObserveUnprotected(ctx, observe.UnprotectedEvent{Group: group, Message: m, Key: key, Reason: observe.StoreUnavailable})
	o.ObserveConflict(ctx, observe.ConflictEvent{Group: group, Message: m, Key: key, Known: dedup.Done})
	answered := observe.StoreCallEvent{Group: group, Store: "*pgstore.Store", Verb: observe.VerbTransaction, Took: time.Second, Takeovers: 1}
	for v := range answered.Verdicts {
		answered.Verdicts[v] = 1
	}
	o.ObserveStoreCall(ctx, answered)
	for _, verb := range []observe.StoreVerb{observe.VerbClaim, observe.VerbTransaction, observe.VerbComplete, observe.VerbRelease} {
		o.ObserveStoreCall(ctx, observe.StoreCallEvent{Group: group, Store: "*pgstore.Store", Verb: verb, Keys: 1, Err: errAny})
	}
	o.ObserveStore(ctx, observe.StoreEvent{Group: group, Name: "store *pgstore.Store", Down: true, Err: errAny})
	for _, e := range []observe.RetryEvent{{}, {Topic: "payments.orders.retry.1m"}, {Later: true}, {Deferred: true}} {
		e.Group, e.Message, e.Key, e.Err = group, m, key, errAny
		o.ObserveRetry(ctx, e)
	}
	o.ObserveStall(ctx, observe.StallEvent{Group: group, Message: m, Key: key})
	o.ObserveStall(ctx, observe.StallEvent{Group: group, Message: m, Key: key, Busy: true})
	o.ObserveLost(ctx, observe.LostEvent{Group: group, Message: m, Key: key})
	o.ObserveCommit(ctx, observe.CommitEvent{Group: group, Took: time.Second})
	o.ObserveCommit(ctx, observe.CommitEvent{Group: group, Took: time.Second, Err: errAny})
	for _, kind := range []observe.RebalanceKind{observe.Lost, observe.Revoked, observe.Assigned} {
		o.ObserveRebalance(ctx, observe.RebalanceEvent{Group: group, Kind: kind, Partitions: map[string][]int32{topic: {3}}})
	}
	o.ObserveProgress(ctx, observe.ProgressEvent{Group: group, Topic: topic, Partition: 3, Next: 1, Pending: 2, HighWater: 9})
	o.ObservePartitionStall(ctx, observe.PartitionStallEvent{Group: group, Topic: topic, Partition: 3})
	o.ObserveGap(ctx, observe.GapEvent{Group: group, Topic: topic, Partition: 3, Policy: "fail"})
	o.ObserveTopic(ctx, observe.TopicEvent{Group: group, Topic: topic, Missing: true})
	o.ObserveSilence(ctx, observe.SilenceEvent{Group: group, Topic: topic, Partition: 3})
}
