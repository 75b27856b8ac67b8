package outbox_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// journal is a log that tests read.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) count(text string) int { return strings.Count(j.String(), text) }

// bench is a table, a broker, and relays that work with them in a bubble.
type bench struct {
	t      *testing.T
	broker *broker
	table  *table
	log    *journal
	fate   func(m *idem.Message) fate // of producers that are made afterwards
	relays []*running
}

type running struct {
	*outbox.Relay
	store    *faults
	producer *producer
	cancel   context.CancelFunc
	ended    chan struct{}
}

func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, broker: newBroker(), log: &journal{}}
		b.table = newTable(b.broker)
		test(t, b)
		b.stop()
		require.Empty(t, b.table.problems)
		require.NotContains(t, b.log.String(), "secret", "a payload was logged")
	})
}

// stop ends all relays, and reports violations of the contract.
func (b *bench) stop() {
	for _, r := range b.relays {
		r.stop()
		r.producer.late.Wait()
		require.Empty(b.t, append(r.producer.problems, r.store.problems...))
	}
}

func (r *running) stop() {
	r.cancel()
	<-r.ended
}

// start runs a relay. change may be nil.
func (b *bench) start(change func(*outbox.RelayConfig, *faults)) *running {
	b.t.Helper()
	r := &running{producer: newProducer(b.broker, b.fate), ended: make(chan struct{})}
	r.store = &faults{Store: b.table, held: r.producer.held}
	cfg := outbox.RelayConfig{
		Store: r.store, Producer: r.producer,
		Logger: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg, r.store)
	}
	var err error
	r.Relay, err = outbox.NewRelay(cfg)
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(b.t.Context())
	r.cancel = cancel
	b.relays = append(b.relays, r)
	b.t.Cleanup(r.stop) // if the test fails before its end
	go func() {
		defer close(r.ended)
		if err := r.Run(ctx); err != nil {
			b.t.Errorf("Run: %v", err)
		}
	}()
	return r
}

// sleep lets time pass, and waits until all goroutines have done their work.
func (b *bench) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// within waits until ok, for at most limit.
func (b *bench) within(limit time.Duration, ok func() bool, what string) {
	b.t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(max(time.Millisecond, limit/5000)) {
		if time.Now().After(end) {
			require.Fail(b.t, "not within "+limit.String()+": "+what, "log: %s", b.log)
		}
	}
}

// drained waits until no row is left to publish.
func (b *bench) drained(limit time.Duration) {
	b.t.Helper()
	b.within(limit, func() bool { return b.table.count(waiting) == 0 }, "all settled")
}

// notes are the values that an observer has seen.
type notes[T any] struct {
	mu   sync.Mutex
	list []T
}

func (n *notes[T]) add(v T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, v)
}

func (n *notes[T]) all() []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}
