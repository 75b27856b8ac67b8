package publish

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
			p, err := Open(brokers, settings())
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
