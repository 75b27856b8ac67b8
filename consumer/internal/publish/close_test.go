package publish

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestOpenProducer_CloseBrokerSilent_O15: the broker has stopped answering while requests of any
// kind are under way. Close returns soon after it has cut the connections, although sarama holds
// its locks until its read time-out, which is later.
func TestOpenProducer_CloseBrokerSilent_O15(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context, p *Producer){
		"messages":         func(ctx context.Context, p *Producer) { p.ProduceEach(ctx, messages("orders", 0, 1)) },
		"more messages":    func(ctx context.Context, p *Producer) { p.ProduceEach(ctx, messages("orders", 0, 40)) },
		"an unknown topic": func(ctx context.Context, p *Producer) { p.ProduceEach(ctx, messages("elsewhere", 0, 1)) },
		"topics of the two": func(ctx context.Context, p *Producer) {
			p.ProduceEach(ctx, append(messages("elsewhere", 0, 1), messages("orders", 0, 40)...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, brokers := fakeCluster(t, 3, []string{"orders"})
			p, err := Open(t.Context(), brokers, settings())
			require.NoError(t, err)
			noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 40)))
			awake := make(chan struct{})
			asleep := make(chan struct{}, 100)
			for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Metadata} {
				cluster.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
					cluster.KeepControl()
					asleep <- struct{}{}
					cluster.SleepControl(func() { <-awake })
					return nil, nil, false
				})
			}
			defer close(awake)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				ask(ctx, p)
			}()
			<-asleep
			began := time.Now()
			p.Close()
			took := time.Since(began)
			t.Logf("Close took %s", took)
			require.Less(t, took, closeWait+3*time.Second)
			<-ended
			cancel()
		})
	}
}

// TestOpenProducer_CloseWhileSending_O15: sarama takes no more messages, because the leader of their
// partition is gone and no broker names another. Close ends the sending at once.
func TestOpenProducer_CloseWhileSending_O15(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	p, err := Open(t.Context(), brokers, settings())
	require.NoError(t, err)
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 40)))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1})
	awake := make(chan struct{})
	defer close(awake)
	asleep := make(chan struct{}, 100)
	cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asleep <- struct{}{}
		cluster.SleepControl(func() { <-awake })
		return nil, nil, false
	})
	ended := make(chan []error, 1)
	go func() { ended <- p.ProduceEach(t.Context(), messages("orders", 0, 5000)) }()
	<-asleep
	full, used := 0, 0
	require.Eventually(t, func() bool {
		full++
		if n := p.budget.Used(); n != used || len(p.async.Input()) < cap(p.async.Input()) {
			used, full = n, 0
		}
		return full == 20
	}, soon, poll)
	began := time.Now()
	p.Close()
	t.Logf("Close took %s", time.Since(began))
	require.Less(t, time.Since(began), closeWait+3*time.Second)
	closed := 0
	for _, err := range <-ended {
		require.Error(t, err)
		if errors.Is(err, errClosed) {
			closed++
		}
	}
	require.Positive(t, closed)
}
