package otelidem

import (
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// builder creates the instruments of the listed metrics, and collects the errors.
type builder struct {
	meter   metric.Meter
	made    []*Metric
	watches []metric.Registration
	errs    []error
}

// note records an error. An instrument of another kind than in the list is an error as well.
func (b *builder) note(m *Metric, kind Kind, err error) {
	b.made = append(b.made, m)
	if err == nil && m.Kind != kind {
		err = fmt.Errorf("is a %s, not a %s", m.Kind, kind)
	}
	if err != nil {
		b.errs = append(b.errs, fmt.Errorf("metric %s: %w", m.Name, err))
	}
}

func (b *builder) counter(m *Metric) metric.Int64Counter {
	i, err := b.meter.Int64Counter(m.Name, metric.WithUnit(m.Unit),
		metric.WithDescription(m.Description))
	b.note(m, Counter, err)
	return i
}

func (b *builder) upDown(m *Metric) metric.Int64UpDownCounter {
	i, err := b.meter.Int64UpDownCounter(m.Name, metric.WithUnit(m.Unit),
		metric.WithDescription(m.Description))
	b.note(m, UpDownCounter, err)
	return i
}

// counted returns a counter that is read at collection, see sets.collect.
func (b *builder) counted(m *Metric) metric.Int64ObservableCounter {
	i, err := b.meter.Int64ObservableCounter(m.Name, metric.WithUnit(m.Unit),
		metric.WithDescription(m.Description))
	b.note(m, Counter, err)
	return i
}

// countedUpDown is counted for a value that also decreases.
func (b *builder) countedUpDown(m *Metric) metric.Int64ObservableUpDownCounter {
	i, err := b.meter.Int64ObservableUpDownCounter(m.Name, metric.WithUnit(m.Unit),
		metric.WithDescription(m.Description))
	b.note(m, UpDownCounter, err)
	return i
}

// seconds returns a histogram of durations.
func (b *builder) seconds(m *Metric) metric.Float64Histogram {
	i, err := b.meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit),
		metric.WithDescription(m.Description),
		metric.WithExplicitBucketBoundaries(m.Buckets...))
	b.note(m, Histogram, err)
	return i
}

// sizes returns a histogram of whole numbers.
func (b *builder) sizes(m *Metric) metric.Int64Histogram {
	i, err := b.meter.Int64Histogram(m.Name, metric.WithUnit(m.Unit),
		metric.WithDescription(m.Description),
		metric.WithExplicitBucketBoundaries(m.Buckets...))
	b.note(m, Histogram, err)
	return i
}

func (b *builder) gauge(m *Metric) metric.Int64ObservableGauge {
	i, err := b.meter.Int64ObservableGauge(m.Name, metric.WithUnit(m.Unit),
		metric.WithDescription(m.Description))
	b.note(m, Gauge, err)
	return i
}

func (b *builder) gaugeFloat(m *Metric) metric.Float64ObservableGauge {
	i, err := b.meter.Float64ObservableGauge(m.Name, metric.WithUnit(m.Unit),
		metric.WithDescription(m.Description))
	b.note(m, Gauge, err)
	return i
}

// watch registers a callback that reports gauges at collection, until the observer is closed.
func (b *builder) watch(report metric.Callback, gauges ...metric.Observable) {
	if len(b.errs) > 0 { // a gauge may be missing
		return
	}
	w, err := b.meter.RegisterCallback(report, gauges...)
	if err != nil {
		b.errs = append(b.errs, err)
		return
	}
	b.watches = append(b.watches, w)
}
