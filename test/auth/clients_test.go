package auth

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/IBM/sarama"
	kafkasasl "github.com/segmentio/kafka-go/sasl"
	kafkaplain "github.com/segmentio/kafka-go/sasl/plain"
	kafkascram "github.com/segmentio/kafka-go/sasl/scram"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	kgosasl "github.com/twmb/franz-go/pkg/sasl"
	kgoplain "github.com/twmb/franz-go/pkg/sasl/plain"
	kgoscram "github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/kafkagoidem"
	"github.com/idem-go/idem/adapter/kgoidem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
)

const (
	grace     = time.Second
	commit    = 100 * time.Millisecond
	session   = 6 * time.Second
	heartbeat = 300 * time.Millisecond
)

// job has the settings of a runner that are not about access.
type job struct {
	group, topic string
	store        dedup.Store
	log          *slog.Logger
	wires        *wires // has the runner's connections
}

// client is a Kafka client with a runner.
type client struct {
	name string
	// reauthenticates means that a connection stays when its token ends (KIP-368).
	reauthenticates bool
	open            func(t *testing.T, a access, j job, r *idem.Router) (run func(context.Context) error)
}

// clients are all clients with a runner.
var clients = []client{
	{"sarama", true, onSarama}, {"franz-go", true, onFranz}, {"kafka-go", false, onKafkaGo},
}

// onEach runs a test with each client.
func onEach(t *testing.T, test func(t *testing.T, c client)) {
	t.Helper()
	t.Parallel() // all tests wait most of the time
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

func onSarama(t *testing.T, a access, j job, r *idem.Router) func(context.Context) error {
	t.Helper()
	cfg := a.sarama()
	cfg.Group, cfg.Topics, cfg.Store, cfg.Logger = j.group, []string{j.topic}, j.store, j.log
	cfg.CommitInterval, cfg.Grace = commit, grace
	cfg.Sarama = func(sc *sarama.Config) {
		sc.Consumer.Group.Session.Timeout, sc.Consumer.Group.Heartbeat.Interval = session, heartbeat
		sc.Metadata.Retry.Max = 2 // a refusal is repeated less often
		sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, j.wires
	}
	c, err := consumer.New(cfg, r)
	require.NoError(t, err)
	return c.Run
}

func onFranz(t *testing.T, a access, j job, r *idem.Router) func(context.Context) error {
	t.Helper()
	cfg := kgoidem.Config{
		Brokers: a.brokers, TLS: a.tls, Group: j.group, Topics: []string{j.topic}, Store: j.store,
		Logger: j.log, CommitInterval: commit, Grace: grace,
		Options: []kgo.Opt{
			kgo.SessionTimeout(session), kgo.HeartbeatInterval(heartbeat), kgo.WithHooks(j.wires),
		},
	}
	switch scram := (kgoscram.Auth{User: a.user, Pass: a.password}); a.mechanism {
	case plain:
		cfg.SASL = []kgosasl.Mechanism{kgoplain.Auth{User: a.user, Pass: a.password}.AsMechanism()}
	case scram256:
		cfg.SASL = []kgosasl.Mechanism{scram.AsSha256Mechanism()}
	case scram512:
		cfg.SASL = []kgosasl.Mechanism{scram.AsSha512Mechanism()}
	case bearer:
		cfg.SASL = []kgosasl.Mechanism{kgoidem.OAuth(a.token)}
	}
	k, err := kgoidem.New(cfg, r)
	require.NoError(t, err)
	return k.Run
}

func onKafkaGo(t *testing.T, a access, j job, r *idem.Router) func(context.Context) error {
	t.Helper()
	cfg := kafkagoidem.Config{
		Brokers: a.brokers, TLS: a.tls, Group: j.group, Topics: []string{j.topic}, Store: j.store,
		Logger: j.log, CommitInterval: commit, Grace: grace,
		SessionTimeout: session, Heartbeat: heartbeat,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return j.wires.dial(ctx, network, address)
		},
	}
	switch a.mechanism {
	case plain:
		cfg.SASL = kafkaplain.Mechanism{Username: a.user, Password: a.password}
	case scram256:
		cfg.SASL = kafkaSCRAM(t, kafkascram.SHA256, a)
	case scram512:
		cfg.SASL = kafkaSCRAM(t, kafkascram.SHA512, a)
	case bearer:
		cfg.SASL = kafkagoidem.OAuth(a.token)
	}
	k, err := kafkagoidem.New(cfg, r)
	require.NoError(t, err)
	return k.Run
}

func kafkaSCRAM(t *testing.T, algorithm kafkascram.Algorithm, a access) kafkasasl.Mechanism {
	t.Helper()
	m, err := kafkascram.Mechanism(algorithm, a.user, a.password)
	require.NoError(t, err)
	return m
}
