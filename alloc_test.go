package idem_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// rareOnly implements only interfaces for rare events, and so none on the path of an event.
type rareOnly struct{}

func (rareOnly) ObserveStore(context.Context, observe.StoreEvent) {}
func (rareOnly) ObserveStall(context.Context, observe.StallEvent) {}

// Without an observer of a kind, no value is allocated for that kind: no claim group, no call and
// no event.
func TestAllocations_UnusedObserversCostNothing(t *testing.T) {
	for name, c := range map[string]struct {
		verdict  dedup.Verdict
		register func(*idem.Router)
	}{
		"onbatchtx": {dedup.Fresh, func(r *idem.Router) {
			idem.OnBatchTx(r, "paid", func(context.Context, struct{}, []idem.Event[payload]) error { return nil })
		}},
		"onbatch": {dedup.Fresh, func(r *idem.Router) {
			idem.OnBatch(r, "paid", func(context.Context, []idem.Event[payload]) error { return nil })
		}},
		"duplicates": {dedup.Done, func(r *idem.Router) { idem.On(r, "paid", succeed) }},
	} {
		t.Run(name, func(t *testing.T) {
			none := allocations(t, c.verdict, c.register)
			require.InDelta(t, none, allocations(t, c.verdict, c.register, rareOnly{}), 1, "with an observer of what is rare")
			require.Greater(t, allocations(t, c.verdict, c.register, &runs{}), none, "this test sees what one allocates")
		})
	}
}

// runs is told of every run.
type runs struct{ kept []byte }

func (o *runs) BeginClaimGroup(ctx context.Context, _ *observe.ClaimGroup) context.Context {
	for range 8 {
		o.kept = make([]byte, 1<<10)
	}
	return ctx
}
func (*runs) EndClaimGroup(context.Context, *observe.ClaimGroup) {}

// allocations is how many a batch of 64 events makes, at the least of some tries: the runtime makes
// some of its own.
func allocations(t *testing.T, verdict dedup.Verdict, register func(*idem.Router), obs ...observe.Observer) float64 {
	r := idem.NewRouter()
	register(r)
	p, err := idem.NewProcessor(r, idem.Config{Store: &noStore{verdict}, Scope: "g", Logger: slog.New(slog.DiscardHandler), Observers: obs})
	require.NoError(t, err)
	defer p.Close()
	batch := make([]*idem.Message, 64)
	for i := range batch {
		batch[i] = benchMessage(i)
	}
	tries := make([]float64, 3)
	for i := range tries {
		tries[i] = testing.AllocsPerRun(10, func() {
			if _, err := p.HandleBatch(t.Context(), batch); err != nil {
				t.Error(err)
			}
		})
	}
	return slices.Min(tries)
}
