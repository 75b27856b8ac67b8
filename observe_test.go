package idem_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// watcher keeps the events of observers.
type watcher struct {
	handled     []observe.HandledEvent
	duplicates  []observe.DuplicateEvent
	retries     []observe.RetryEvent
	deadLetters []observe.DeadLetterEvent
	claims      []dedup.Verdict
	store       []bool
}

func (w *watcher) ObserveHandled(_ context.Context, e observe.HandledEvent) {
	w.handled = append(w.handled, e)
}
func (w *watcher) ObserveDuplicate(_ context.Context, e observe.DuplicateEvent) {
	w.duplicates = append(w.duplicates, e)
}
func (w *watcher) ObserveRetry(_ context.Context, e observe.RetryEvent) {
	w.retries = append(w.retries, e)
}
func (w *watcher) ObserveDeadLetter(_ context.Context, e observe.DeadLetterEvent) {
	w.deadLetters = append(w.deadLetters, e)
}
func (w *watcher) ObserveClaim(_ context.Context, e observe.ClaimEvent) {
	w.claims = append(w.claims, e.Verdict)
}
func (w *watcher) ObserveStore(_ context.Context, e observe.StoreEvent) {
	w.store = append(w.store, e.Down)
}

func TestObservers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		w := &watcher{}
		b.cfg.Observers = []observe.Observer{w}
		b.store.claimErr = times(3, dedup.ErrUnavailable)
		b.on(failing(1, errBoom))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 5)))
		require.Len(t, w.handled, 2)
		require.ErrorIs(t, w.handled[0].Err, errBoom)
		require.Equal(t, 2, w.handled[1].Attempt)
		require.NoError(t, w.handled[1].Err)
		require.Len(t, w.retries, 1)
		require.Equal(t, []bool{true, false}, w.store)
		require.Equal(t, []dedup.Verdict{0, 0, 0, dedup.Fresh, dedup.Fresh}, w.claims)

		// Two causes of duplicates can be told apart, and no more (rule 40).
		again, copied := message("e1", 5), message("e1", 9)
		copied.Time = copied.Time.Add(time.Minute)
		require.NoError(t, p.Handle(t.Context(), again))
		require.NoError(t, p.Handle(t.Context(), copied))
		require.Len(t, w.duplicates, 2)
		require.True(t, w.duplicates[0].SameRecord)
		require.Zero(t, w.duplicates[0].Age)
		require.False(t, w.duplicates[1].SameRecord)
		require.Equal(t, time.Minute, w.duplicates[1].Age)
	})
}

// T-07: workers that failed together must not come back together.
func TestRetriesAreSpreadOut(t *testing.T) {
	delays := map[time.Duration]bool{}
	for range 20 {
		inBubble(t, func(t *testing.T, b *bench) {
			w := &watcher{}
			b.cfg.Observers = []observe.Observer{w}
			b.on(failing(1, errBoom), idem.Retry(idem.RetryPolicy{MinBackoff: time.Second}))
			require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
			require.LessOrEqual(t, w.retries[0].Delay, time.Second)
			delays[w.retries[0].Delay] = true
		})
	}
	require.Greater(t, len(delays), 15, "full jitter")
}

// outages keeps the events of a StoreObserver.
type outages struct {
	mu     sync.Mutex
	events []observe.StoreEvent
}

func (o *outages) ObserveStore(_ context.Context, e observe.StoreEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// The end of an outage is reported, once, when the processor is closed during the outage. Otherwise
// a count of outages would show it for ever.
func TestObserveStore_ClosedWhileAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		o := &outages{}
		b.cfg.Observers, b.cfg.BusyWait = []observe.Observer{o}, 3*time.Second
		b.store.claimErr = func() error { return dedup.ErrUnavailable }
		b.on(succeed)
		p := b.start()
		require.Error(t, p.Handle(t.Context(), message("e1", 0)))
		require.Len(t, o.events, 1)
		require.True(t, o.events[0].Down)
		require.NoError(t, p.Close())
		require.NoError(t, p.Close())
		require.Len(t, o.events, 2)
		require.Equal(t, o.events[0].Name, o.events[1].Name)
		require.False(t, o.events[1].Down)
		require.True(t, o.events[1].Ended)
		require.Positive(t, o.events[1].For)
	})
}
