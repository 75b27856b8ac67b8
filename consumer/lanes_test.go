package consumer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
)

func TestConfig_Lanes(t *testing.T) {
	for lanes, valid := range map[int]bool{-1: false, 0: true, 1: true, 256: true, 257: false} {
		cfg := good()
		cfg.Lanes = lanes
		_, err := New(cfg, routed(nothing))
		if valid {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "Config.Lanes is")
		}
	}
	require.Equal(t, 1, good().withDefaults().Lanes)
}

// byKey notes the running and the finished events of each key.
type byKey struct {
	mu      sync.Mutex
	running map[string]int
	most    int // keys at a time
	offsets map[string][]int64
	overlap string // of two events of one key
}

func (b *byKey) handle(ctx context.Context, m *idem.Message) error {
	key := string(m.Key)
	b.mu.Lock()
	if b.running[key]++; b.running[key] > 1 {
		b.overlap = key
	}
	b.most = max(b.most, len(b.running))
	b.offsets[key] = append(b.offsets[key], m.Offset)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.running[key]--; b.running[key] == 0 {
			delete(b.running, key)
		}
	}()
	return pause(ctx, 20*time.Millisecond)
}

// TestKafka_Lanes_Rule25: events of one key come in order and never beside each other, and those of
// other keys beside each other. Exactly the handled events are committed, also after a stop in the
// middle.
func TestKafka_Lanes_Rule25(t *testing.T) {
	t.Parallel()
	const events, keys, lanes = 1200, 40, 16
	brokers, topic, cfg := onKafka(t, 1)
	cfg.Lanes, cfg.Store = lanes, forever()
	again := new(duplicates)
	cfg.Observers = []observe.Observer{again}
	var records []*sarama.ProducerMessage
	for i := range events {
		r := record(topic, i)
		r.Key = sarama.StringEncoder(fmt.Sprint("key-", i*i*7919%104729%keys))
		records = append(records, r)
	}
	produce(t, brokers, records...)

	seen := &byKey{running: map[string]int{}, offsets: map[string][]int64{}}
	total := func() (n int) {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		for _, offsets := range seen.offsets {
			n += len(offsets)
		}
		return n
	}
	for _, until := range []int{events / 2, events} {
		m := start(t, cfg, routed(seen.handle))
		require.Eventually(t, func() bool { return total() >= until }, soon, poll)
		require.NoError(t, m.Ready())
		require.NoError(t, m.end())
	}
	require.EqualValues(t, events, committed(t, brokers, cfg.Group, topic, 0)[0])
	require.Equal(t, events, total(), "each once: what was handled beyond the committed offset is known")
	t.Logf("%d keys at a time, %d known again", seen.most, again.total())
	require.Empty(t, seen.overlap, "two events of one key at a time")
	require.GreaterOrEqual(t, seen.most, lanes/2)
	require.LessOrEqual(t, seen.most, lanes)
	for key, offsets := range seen.offsets {
		require.IsIncreasing(t, offsets, key)
	}
}

// TestHandler_LanesStallAndStop_K13_Rule13: one event that hangs does not stop the others of its
// partition, shows as a stall, and holds the offset; a stop waits for it.
func TestHandler_LanesStallAndStop_K13_Rule13(t *testing.T) {
	gate := make(chan struct{})
	var got tally
	h := newHandler(t, Config{Lanes: 4, CommitInterval: 10 * time.Millisecond, StallTimeout: 50 * time.Millisecond},
		func(_ context.Context, m *idem.Message) error {
			if m.Offset == 1 {
				<-gate
			}
			got.add(eventID(m))
			return nil
		})
	ctx, stop := context.WithCancelCause(t.Context())
	sess := newFakeSession(ctx, map[string][]int32{"t": {0}})
	require.NoError(t, h.Setup(sess))
	claim := newFakeClaim("t", 0, 100)
	r := consume(h, sess, claim)
	for i := range int64(100) {
		m := claim.record(i)
		m.Key = fmt.Append(nil, i)
		claim.messages <- m
	}
	require.Eventually(t, func() bool { return got.events() == 99 }, soon, poll)
	require.Eventually(t, func() bool { return h.Ready() != nil && sess.offset("t", 0) == 1 }, soon, poll)
	require.ErrorContains(t, h.Ready(), "t/0 has not moved")
	stop(idem.ErrStopping)
	close(gate)
	<-r.done
	require.NoError(t, r.err)
	require.EqualValues(t, 100, sess.offset("t", 0))
	require.NoError(t, h.Cleanup(sess))
	require.NoError(t, h.Close())
}
