package dashboards

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/otelidem"
	"github.com/idem-go/idem/outbox"
)

// table is an outbox with two rows.
type table struct{ fetched bool }

func (*table) Hold(context.Context, string, time.Duration, bool) ([]outbox.Lease, error) {
	return []outbox.Lease{{Shard: 1, Epoch: 1}}, nil
}

func (*table) Leave(context.Context, string) error { return nil }

func (b *table) Fetch(context.Context, outbox.Fetch) ([]outbox.Row, error) {
	if b.fetched {
		return nil, nil
	}
	b.fetched = true
	entry := outbox.Entry{Topic: "payments", Type: "paid", ID: "one"}
	return []outbox.Row{{Seq: 1, Shard: 1, Entry: entry, Added: time.Now()}, {Seq: 2, Shard: 1, Entry: entry, Added: time.Now()}}, nil
}

func (*table) Settle(context.Context, string, []outbox.Lease, outbox.Settlement) ([]int, error) {
	return nil, nil
}

func (*table) Purge(context.Context, time.Duration, int) (int64, error) { return 0, nil }

func (*table) Backlog(context.Context, int) (outbox.Backlog, error) { return outbox.Backlog{}, nil }

// broker takes every message but the first, and then the relay may stop.
type broker struct{ stop func() }

func (b broker) ProduceEach(_ context.Context, msgs []*idem.Message) []error {
	errs := make([]error, len(msgs))
	errs[0] = idem.ErrNoTopic
	b.stop()
	return errs
}

// publishAll has a relay publish, since only a relay reports publications.
func publishAll(t *testing.T, o *otelidem.Observer) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	r, err := outbox.NewRelay(outbox.RelayConfig{
		Name: "orders", Store: &table{}, Producer: broker{stop}, Observers: []outbox.Observer{o}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, r.Run(ctx))
}

// tellDoors tells of an outbox, of requests, and of functions.
func tellDoors(ctx context.Context, o *otelidem.Observer) {
	const name = "orders"
	o.ObserveShare(ctx, outbox.Share{Outbox: name, Relay: "one", Shards: 64})
	o.ObserveBacklog(ctx, outbox.Backlog{Outbox: name, Waiting: 1, Oldest: time.Second})
	o.ObserveRound(ctx, outbox.Round{Outbox: name, Rows: 4, Sent: 1, Failed: 1, Parked: 1, Blocked: 1, Err: errAny})
	o.ObserveWrite(ctx, outbox.Write{Entries: []outbox.Entry{{Topic: "payments", Type: "paid", ID: "one"}}})
	for _, result := range []httpidem.Result{
		httpidem.Executed, httpidem.Forgotten, httpidem.Unstored, httpidem.Unguarded, httpidem.Replayed, httpidem.NotReplayable, httpidem.InFlight,
		httpidem.UnknownOutcome, httpidem.GivenUp, httpidem.Mismatch, httpidem.Refused, httpidem.Unavailable, httpidem.Panicked,
	} {
		o.ObserveRequest(ctx, httpidem.Observation{Result: result})
		o.ObserveRequest(ctx, httpidem.Observation{Result: result, Err: errAny})
	}
	o.ObserveSending(ctx, httpidem.Sending{Attempts: 2})
	o.ObserveSending(ctx, httpidem.Sending{Attempts: 2, Replayed: true})
	o.ObserveSending(ctx, httpidem.Sending{Attempts: 2, Err: errAny})
	for _, outcome := range []dedup.DoOutcome{
		dedup.DoRan, dedup.DoFailed, dedup.DoPanicked, dedup.DoReplayed, dedup.DoInFlight, dedup.DoConflict, dedup.DoGivenUp, dedup.DoNoResult,
		dedup.DoUnknown, dedup.DoLost, dedup.DoError,
	} {
		o.ObserveDo(ctx, dedup.DoEvent{Outcome: outcome})
		o.ObserveDo(ctx, dedup.DoEvent{Outcome: outcome, Tx: true})
	}
}
