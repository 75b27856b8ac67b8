package auth

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// wires are the connections of a client: wires counts them, and can cut them.
type wires struct {
	mu    sync.Mutex
	dials int
	open  []net.Conn
}

// Dial implements the dialer of sarama.
func (w *wires) Dial(network, address string) (net.Conn, error) {
	return w.dial(context.Background(), network, address)
}

// dial is the dialer of kafka-go.
func (w *wires) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.add(conn)
	return conn, nil
}

// OnBrokerConnect implements [kgo.HookBrokerConnect]: franz-go dials by itself.
func (w *wires) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	if err == nil {
		w.add(conn)
	}
}

func (w *wires) add(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials++
	w.open = append(w.open, conn)
}

// count returns the number of connections so far.
func (w *wires) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials
}

// cut closes all connections.
func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.open {
		_ = conn.Close()
	}
	w.open = nil
}
