package publish

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem/internal/testenv"
)

// flaky ends connections at a write of the broker, now and then: the broker has served a request
// without an answer.
type flaky struct {
	mu   sync.Mutex
	rand *rand.Rand
	cuts int
	on   bool
}

func (f *flaky) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	return &flakyListener{l, f}, err
}

func (f *flaky) cut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on || f.rand.IntN(10) > 0 {
		return false
	}
	f.cuts++
	return true
}

type flakyListener struct {
	net.Listener
	f *flaky
}

func (l *flakyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &flakyConn{c, l.f}, nil
}

type flakyConn struct {
	net.Conn
	f *flaky
}

func (c *flakyConn) Write(b []byte) (int, error) {
	if c.f.cut() {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// TestProduceEach_ConnectionBreaks_O08_K35: connections break in the middle of a call, after the
// broker has appended and before it has answered. No acknowledged message is lost, and no message
// is doubled. An error is allowed: sarama gives up if it cannot ask for the leader either.
func TestProduceEach_ConnectionBreaks_O08_K35(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f := &flaky{rand: rand.New(rand.NewPCG(seed, 8))}
	_, brokers := fakeCluster(t, 6, []string{"orders"}, kfake.ListenFn(f.listen))
	p := openProducer(t, brokers, func(sc *sarama.Config) { sc.Producer.Retry.Max = 100 })
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 50)))
	f.mu.Lock()
	f.on = true
	f.mu.Unlock()
	const calls, size = 20, 50
	var errs [calls][]error
	for c := range calls {
		errs[c] = p.ProduceEach(t.Context(), messages("orders", 50+c*size, 50+(c+1)*size))
	}
	f.mu.Lock()
	f.on = false
	t.Logf("%d connections were cut", f.cuts)
	require.Positive(t, f.cuts)
	f.mu.Unlock()
	there, failed := values(t, brokers, "orders"), 0
	for c := range errs {
		for i, err := range errs[c] {
			n := strconv.Itoa(50 + c*size + i)
			require.LessOrEqual(t, there[n], 1, n)
			if err != nil {
				failed++
				continue
			}
			require.Equal(t, 1, there[n], n)
		}
	}
	t.Logf("%d of %d messages failed", failed, calls*size)
	require.Less(t, failed, calls*size/2)
}

// TestProduceEach_BrokerRestarts_K35: while a broker is away for a moment, no error is reported,
// and no message is lost or doubled.
func TestProduceEach_BrokerRestarts_K35(t *testing.T) {
	_, text, err := net.SplitHostPort(testenv.FreeAddr(t))
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	dir := t.TempDir()
	up := func() *kfake.Cluster {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(dir), kfake.SyncWrites(), kfake.SeedTopics(3, "orders"))
		require.NoError(t, err)
		return cluster
	}
	cluster := up()
	brokers := cluster.ListenAddrs()
	p, err := Open(t.Context(), brokers, settings())
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	done := make(chan []error)
	const calls, size = 60, 50
	go func() {
		defer close(done)
		for c := range calls {
			done <- p.ProduceEach(t.Context(), messages("orders", c*size, (c+1)*size))
		}
	}()
	began := time.Now()
	for c := range calls {
		if c%20 == 10 {
			cluster.Close()
			cluster = up()
		}
		noErrors(t, <-done)
	}
	<-done
	defer func() { cluster.Close() }()
	t.Logf("%s", time.Since(began))
	there := values(t, brokers, "orders")
	require.Len(t, there, calls*size)
	for v, n := range there {
		require.Equal(t, 1, n, v)
	}
}
