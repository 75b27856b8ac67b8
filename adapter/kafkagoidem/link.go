package kafkagoidem

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	// requestTime bounds one request about the cluster.
	requestTime = 15 * time.Second
	// metadataAge is how old the transport's knowledge of leaders may be.
	metadataAge = 2 * time.Second
)

// links opens connections for kafka-go, and cuts those that are open. No context ends a request to
// join the group, which waits for the handlers of all members. Safe for concurrent use.
type links struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	ctx  context.Context // of dialing
	end  context.CancelFunc

	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func newLinks(s settings) *links {
	l := &links{dial: s.client.Dial, open: make(map[net.Conn]struct{})}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

func (l *links) dialer(s settings) *kafka.Dialer {
	return &kafka.Dialer{
		ClientID: s.client.ClientID, DialFunc: l.connect, Timeout: 10 * time.Second,
		TLS: s.client.TLS, SASLMechanism: s.client.SASL,
	}
}

func (l *links) connect(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	c, err := l.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	own := &link{Conn: c, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ctx.Err(); err != nil { // closed meanwhile: a later cut would miss it
		_ = c.Close() // nothing was sent on it
		return nil, err
	}
	l.open[own] = struct{}{}
	return own, nil
}

// cut closes the open connections. Later ones are not affected.
func (l *links) cut() {
	l.mu.Lock()
	open := l.open
	l.open = make(map[net.Conn]struct{})
	l.mu.Unlock()
	for c := range open {
		_ = c.Close() // the error means that it was closed before
	}
}

// close cuts all connections, and lets no new one begin.
func (l *links) close() {
	l.end()
	l.cut()
}

// link is a connection that is known until it is closed.
type link struct {
	net.Conn
	of *links
}

// Close implements net.Conn.
func (l *link) Close() error {
	l.of.mu.Lock()
	delete(l.of.open, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

// transport returns a pool of connections for requests.
func (s settings) transport() *kafka.Transport {
	return &kafka.Transport{
		Dial: s.client.Dial, DialTimeout: 10 * time.Second, MetadataTTL: metadataAge,
		ClientID: s.client.ClientID, TLS: s.client.TLS, SASL: s.client.SASL,
	}
}

// addr is the address of the brokers to begin with.
func (s settings) addr() net.Addr { return kafka.TCP(s.client.Brokers...) }
