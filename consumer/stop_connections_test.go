package consumer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
)

// foreign is a user's dialer without a context.
type foreign struct{ dials, closed atomic.Int64 }

type foreignConn struct {
	net.Conn
	of   *foreign
	once sync.Once
}

func (d *foreign) Dial(network, addr string) (net.Conn, error) {
	d.dials.Add(1)
	conn, err := net.Dial(network, addr)
	return &foreignConn{Conn: conn, of: d}, err
}

func (c *foreignConn) Close() error {
	c.once.Do(func() { c.of.closed.Add(1) })
	return c.Conn.Close()
}

// K-03: a member that joins through TLS, SASL and a user's dialer is stopped at once as well, and
// one that is in the group commits and leaves.
func TestKfake_StopWithTLSAndSASL_K03(t *testing.T) {
	certificate, roots := selfSigned(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "orders.g.dlq"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "app", "secret"), kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	of := new(foreign)
	cfg := Config{
		Brokers: cluster.ListenAddrs(), Group: "g", Topics: []string{"orders"}, Grace: 20 * time.Second,
		TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, SASL: &SASL{Mechanism: "SCRAM-SHA-256", User: "app", Password: "secret"},
		Sarama: func(sc *sarama.Config) {
			quick(sc)
			sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, of
		},
	}
	m := start(t, cfg, routed(nothing))
	require.Eventually(t, func() bool { return claimsOf(m) == 1 }, soon, poll)
	require.NoError(t, m.end())

	h := hold(t, cluster, kmsg.JoinGroup)
	m = start(t, cfg, routed(nothing))
	require.Eventually(t, func() bool { return h.held.Load() > 0 }, soon, poll)
	began := time.Now()
	require.NoError(t, m.end())
	require.Less(t, time.Since(began), 5*time.Second)
	require.Positive(t, of.dials.Load())
	require.Eventually(t, func() bool { return of.dials.Load() == of.closed.Load() }, soon, poll, "connections left open")
}

func selfSigned(t *testing.T) (certificate tls.Certificate, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots = x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, roots
}

// K-03: a producer that connects when the stop comes does not hold it up either.
func TestOwnProducer_CloseWhileConnecting_K03(t *testing.T) {
	sc, err := DefaultSaramaConfig(Config{Group: "g"})
	require.NoError(t, err)
	o := newOwnProducer([]string{testenv.SilentAddr(t), testenv.SilentAddr(t)}, sc)
	ctx, stop := context.WithCancel(t.Context())
	warmed := make(chan struct{})
	go func() {
		defer close(warmed)
		o.warm(ctx)
	}()
	require.Eventually(t, func() bool {
		return o.conns.Len() > 0
	}, soon, poll)
	began := time.Now()
	stop()
	<-warmed
	o.close()
	require.Less(t, time.Since(began), 2*time.Second)
}

// TestOwnProducer_SilentBrokers_K35: a call of Produce ends with its context while the producer
// connects to brokers that do not answer. Other calls wait no longer either.
func TestOwnProducer_SilentBrokers_K35(t *testing.T) {
	sc, err := DefaultSaramaConfig(Config{Group: "g"})
	require.NoError(t, err)
	o := newOwnProducer([]string{testenv.SilentAddr(t), testenv.SilentAddr(t)}, sc)
	defer o.close()
	began := time.Now()
	errs := make(chan error, 3)
	for range cap(errs) {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			errs <- o.Produce(ctx, &idem.Message{Topic: "t"})
		}()
	}
	for range cap(errs) {
		require.ErrorIs(t, <-errs, context.DeadlineExceeded)
	}
	require.Less(t, time.Since(began), flushWait)
}

// Calls that wait for the same connect share its producer.
func TestOwnProducer_OneConnect(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	defer cluster.Close()
	sc, err := DefaultSaramaConfig(Config{Group: "g"})
	require.NoError(t, err)
	o := newOwnProducer(cluster.ListenAddrs(), sc)
	producers := make(chan *Producer, 8)
	for range cap(producers) {
		go func() {
			p, err := o.connected(t.Context())
			assert.NoError(t, err)
			producers <- p
		}()
	}
	first := <-producers
	require.NotNil(t, first)
	for range cap(producers) - 1 {
		require.Same(t, first, <-producers)
	}
	o.close()
	_, err = o.connected(t.Context())
	require.ErrorContains(t, err, "closed")
}
