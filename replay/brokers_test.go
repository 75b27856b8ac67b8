package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/kafkaauth"
)

// barrier lets connections through once it is open.
type barrier struct {
	open    atomic.Bool
	refused atomic.Int64
}

func (b *barrier) Dial(network, address string) (net.Conn, error) {
	if !b.open.Load() {
		b.refused.Add(1)
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("refused")}
	}
	return new(net.Dialer).DialContext(context.Background(), network, address)
}

func (b *barrier) sarama(c *sarama.Config) {
	c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, b
	c.Metadata.Retry.Max = 0
}

// lines keeps a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// behind returns a world with a plan, and a replay that cannot reach its brokers.
func behind(t *testing.T, cfg Config) (*Replay, Plan, *barrier, *lines) {
	t.Helper()
	w, b, log := newWorld(t), new(barrier), new(lines)
	w.write(10, kgo.TryCommit)
	plan := w.plan(w.replay(new(runs).router(), cfg))
	w.live.Sarama, w.live.Logger = b.sarama, slog.New(slog.NewTextHandler(log, nil))
	return w.replay(new(runs).router(), cfg), plan, b, log
}

const waiting = "brokers do not answer, waiting for them"

// A run that begins while brokers are away waits for them, and logs the begin and the end of the
// wait once.
func TestRun_WaitsForBrokersAtTheStart(t *testing.T) {
	r, plan, b, log := behind(t, Config{Window: all, Scope: OwnScope("late")})
	_, err := r.Plan(t.Context())
	require.ErrorIs(t, err, sarama.ErrOutOfBrokers, "a plan does not wait")
	var run sync.WaitGroup
	var result Result
	run.Go(func() { result, err = r.Run(t.Context(), plan, nil) })
	require.Eventually(t, func() bool { return b.refused.Load() >= 3 && log.count(waiting) == 1 },
		30*time.Second, 10*time.Millisecond)
	b.open.Store(true)
	run.Wait()
	require.NoError(t, err)
	require.True(t, result.Complete)
	require.Equal(t, Counts{Handled: 10}, result.Counts)
	require.Equal(t, 1, log.count(waiting))
	require.Equal(t, 1, log.count("brokers answer again"))
}

// The wait at the start ends after Config.BrokerWait, and with the context. The result has the
// position to continue from.
func TestRun_WaitAtTheStartEnds(t *testing.T) {
	cfg := Config{Window: all, Scope: OwnScope("away"), BrokerWait: time.Millisecond}
	r, plan, _, log := behind(t, cfg)
	result, err := r.Run(t.Context(), plan, nil)
	require.ErrorIs(t, err, sarama.ErrOutOfBrokers)
	require.Equal(t, Position{"orders": {0: 0, 1: 0}}, result.Position)
	require.False(t, result.Complete)
	require.LessOrEqual(t, log.count(waiting), 1)

	cfg.BrokerWait = time.Hour
	r, plan, b, log := behind(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { result, err = r.Run(ctx, plan, nil) })
	require.Eventually(t, func() bool { return b.refused.Load() >= 1 && log.count(waiting) == 1 },
		30*time.Second, 10*time.Millisecond)
	began := time.Now()
	cancel()
	run.Wait()
	require.Less(t, time.Since(began), 5*time.Second)
	require.ErrorIs(t, err, idem.ErrStopping)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, Position{"orders": {0: 0, 1: 0}}, result.Position)
}

// TestAway is the table of errors that a wait may mend.
func TestAway(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for err, want := range map[error]bool{
		sarama.ErrOutOfBrokers:                    true,
		fmt.Errorf("connect: %w", dial):           true,
		io.EOF:                                    true,
		sarama.ErrLeaderNotAvailable:              true,
		sarama.Wrap(sarama.ErrOutOfBrokers, dial): true,
		sarama.Wrap(sarama.ErrOutOfBrokers, kafkaauth.ErrRefused):     false,
		sarama.Wrap(sarama.ErrOutOfBrokers, consumer.ErrUnauthorized): false,
		sarama.ErrSASLAuthenticationFailed:                            false,
		sarama.ErrInvalidTopic:                                        false,
		sarama.ErrUnsupportedVersion:                                  false,
		sarama.ErrClusterAuthorizationFailed:                          false,
		sarama.ErrTopicAuthorizationFailed:                            false,
		sarama.ErrUnknownTopicOrPartition:                             false,
		sarama.ConfigurationError("a mistake"):                        false,
		ErrClosed:                                                     false,
	} {
		require.Equal(t, want, away(err), err)
	}
}
