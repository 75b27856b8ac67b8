package otelidem_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/otelidem"
)

// Every listed metric is created as described, once, and no other.
func TestInstrumentsAreThoseOfTheList(t *testing.T) {
	made := map[string]sdkmetric.Instrument{}
	view := func(i sdkmetric.Instrument) (sdkmetric.Stream, bool) {
		made[i.Name] = i
		return sdkmetric.Stream{}, false
	}
	o, err := otelidem.New(
		otelidem.MeterProvider(
			sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()),
				sdkmetric.WithView(view)),
		),
	)
	require.NoError(t, err)
	defer o.Close()
	names := map[string]bool{}
	for _, m := range otelidem.Metrics() {
		require.False(t, names[m.Name], m.Name)
		names[m.Name] = true
		i, ok := made[m.Name]
		require.True(t, ok, m.Name)
		require.Equal(t, m.Unit, i.Unit)
		require.Equal(t, m.Description, i.Description)
		require.Contains(t, strings.ToLower(i.Kind.String()), m.Kind.String(), m.Name)
		require.Equal(t, instrumentation.Scope{
			Name: "github.com/idem-go/idem/otelidem", SchemaURL: i.Scope.SchemaURL,
			Attributes: i.Scope.Attributes,
		}, i.Scope)
		require.NotEmpty(t, m.Attributes)
		if m.Kind == otelidem.Histogram {
			require.True(t, slices.IsSorted(m.Buckets))
			require.NotEmpty(t, m.Buckets)
		}
	}
	require.Len(t, made, len(names))
	require.Equal(t, "none", otelidem.Kind(0).String())
	require.Equal(t, "none", otelidem.Kind(99).String())
}

// No metric has an attribute that the list does not name.
func (tm *telemetry) requireListed() {
	tm.t.Helper()
	listed := map[string][]string{}
	for _, m := range otelidem.Metrics() {
		listed[m.Name] = m.Attributes
	}
	for name, ps := range tm.series() {
		for _, p := range ps {
			for _, kv := range p.attrs.ToSlice() {
				require.Contains(tm.t, listed[name], string(kv.Key), "%s has %v", name, kv)
			}
		}
	}
}

func TestAttributesAreThoseOfTheList(t *testing.T) {
	tm := newTelemetry(t)
	m, k, ctx := message("e1", 1), dedup.Key{Scope: "billing", Type: "paid", ID: "e1"}, t.Context()
	tm.ObserveStall(ctx, observe.StallEvent{Group: "billing", Message: m, Key: k})
	tm.ObserveLost(ctx, observe.LostEvent{Group: "billing", Message: m, Key: k})
	tm.ObserveRetry(ctx, observe.RetryEvent{Group: "billing", Message: m, Key: k, Err: errBoom})
	tm.ObserveDuplicate(ctx, observe.DuplicateEvent{
		Group: "billing", Message: m, Key: k, Verdict: dedup.Done, Shadow: true, Age: time.Hour,
	})
	tm.ObserveDeadLetter(ctx, observe.DeadLetterEvent{
		Group: "billing", Message: m, Key: k, Class: idem.ClassFailed, Err: errBoom,
	})
	tm.ObserveConflict(ctx,
		observe.ConflictEvent{Group: "billing", Message: m, Key: k, Known: dedup.Done})
	tm.ObserveSkipped(ctx, observe.SkippedEvent{Group: "billing", Message: m, Type: "x"})
	tm.ObserveStore(ctx,
		observe.StoreEvent{Group: "billing", Name: "producer", Down: true, Err: errBoom})
	call := observe.StoreCallEvent{
		Group: "billing", Store: "l", Verb: observe.VerbClaim, Keys: 1, Takeovers: 1,
	}
	call.Verdicts[dedup.Fresh] = 1
	tm.ObserveStoreCall(ctx, call)
	call.Err = errBoom
	tm.ObserveStoreCall(ctx, call)
	for _, deferred := range []bool{true, false} {
		e := observe.SettledEvent{Group: "billing", Topic: "orders", Deferred: deferred}
		e.Counts[observe.SettledRescheduled] = 1
		tm.ObserveSettled(ctx, e)
	}
	tm.ObserveCommit(ctx, observe.CommitEvent{Group: "billing", Err: errBoom})
	tm.ObserveGap(ctx, observe.GapEvent{Group: "billing", Topic: "orders", Policy: "fail"})
	tm.ObserveTopic(ctx, observe.TopicEvent{Group: "billing", Topic: "orders", Missing: true})
	tm.ObserveSilence(ctx, observe.SilenceEvent{Group: "billing", Topic: "orders"})
	tm.rebalance("billing", observe.Assigned, 1)
	tm.progress("billing", 1, 7, false)
	tm.stall("billing", 1, false)
	r := idem.NewRouter()
	idem.OnBatch(r, "paid", func(_ context.Context, es []idem.Event[paid]) error {
		if es[0].ID == "bad" {
			return idem.Permanent(errBoom)
		}
		return nil
	})
	handle(t, tm.processor(r), message("e1", 1), message("bad", 2))
	require.NotEmpty(t, tm.series())
	tm.requireListed()
}

type sqlError string

func (e sqlError) Error() string    { return "canary" }
func (e sqlError) SQLState() string { return string(e) }

type timeout struct{}

func (timeout) Error() string { return "canary" }
func (timeout) Timeout() bool { return true }

// error.type comes from a fixed list.
func TestErrorTypes(t *testing.T) {
	for want, err := range map[string]error{
		"":                nil,
		"panic":           &idem.PanicError{Value: context.Canceled},
		"timeout":         timeout{},
		"canceled":        fmt.Errorf("x: %w", context.Canceled),
		"permanent":       fmt.Errorf("x: %w", idem.Permanent(errBoom)),
		"not_applied":     idem.NotApplied(errBoom),
		"retry_after":     idem.RetryAfter(time.Second, errBoom),
		"unavailable":     idem.Unavailable(errBoom),
		"partition_lost":  fmt.Errorf("%w: %w", idem.ErrPartitionLost, context.Canceled),
		"busy":            &idem.WaitError{Err: idem.ErrBusy},
		"contended":       fmt.Errorf("%w: %w", dedup.ErrContended, sqlError("55P03")),
		"sql_constraint":  sqlError("23505"),
		"sql":             sqlError("ZZ999"),
		"partial":         idem.BatchError{3: errBoom},
		"abandoned":       idem.ErrAbandoned,
		"unknown_outcome": dedup.ErrUnknownOutcome,
		"_OTHER":          errors.New("canary"),
	} {
		tm := newTelemetry(t)
		tm.ObserveCommit(t.Context(), observe.CommitEvent{Group: "billing", Err: err})
		ps := tm.series()["messaging.client.operation.duration"]
		require.Len(t, ps, 1)
		have, ok := ps[0].attrs.Value(attribute.Key("error.type"))
		require.Equal(t, want != "", ok)
		if ok {
			require.Equal(t, want, have.AsString())
		}
	}
	require.Empty(t, idem.ErrorMark(nil))
	require.Equal(t, "permanent", idem.ErrorMark(idem.Permanent(idem.NotApplied(errBoom))),
		"the outermost")
}

// Every method accepts zero values.
func TestZeroEvents(t *testing.T) {
	tm := newTelemetry(t)
	v := reflect.ValueOf(tm.Observer)
	n := 0
	for i := range v.NumMethod() {
		name := v.Type().Method(i).Name
		if !strings.HasPrefix(name, "Observe") || v.Method(i).Type().NumIn() != 2 {
			continue
		}
		e := reflect.New(v.Method(i).Type().In(1)).Elem()
		if f := e.FieldByName("Message"); f.IsValid() &&
			f.Type() == reflect.TypeFor[*idem.Message]() {
			f.Set(reflect.ValueOf(&idem.Message{}))
		}
		v.Method(i).Call([]reflect.Value{reflect.ValueOf(t.Context()), e})
		n++
	}
	require.GreaterOrEqual(t, n, 16)
	tm.requireListed()
}
