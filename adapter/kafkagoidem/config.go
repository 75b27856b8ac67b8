package kafkagoidem

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/kafkaauth"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// Config of a [Runner]. The zero value of a field is its default. [runner.Config] describes the
// fields without a comment; the names, defaults and meanings are those of consumer.Config.
type Config struct {
	// Brokers are the addresses to begin with. Required.
	Brokers []string
	// Group is the consumer group. Required. All members must know the strategy range.
	Group string
	// Topics are the topics to consume. Required. The group's own retry topics are consumed too and
	// must not be listed.
	Topics []string

	Store             dedup.Store
	Scope             string
	NewScope          bool
	AcceptNewIdentity bool
	Lease             time.Duration
	StoreTimeout      time.Duration

	// ClientID appears in the brokers' logs and quotas. Defaults to "idem".
	ClientID string

	Start         runner.StartPosition
	OnGap         runner.GapPolicy
	OnLostOffsets runner.LostOffsetsPolicy

	Lanes      int
	QueueBytes int

	Grace          time.Duration
	CommitInterval time.Duration
	StallTimeout   time.Duration
	WhenStalled    runner.StallPolicy
	SilenceTimeout time.Duration

	// SessionTimeout is how long the brokers wait for a heartbeat before they remove the member.
	// Defaults to 20 s.
	SessionTimeout time.Duration
	// Heartbeat is the time between two heartbeats, and so how late a member notices a rebalance.
	// At most a third of SessionTimeout. Defaults to 3 s.
	Heartbeat time.Duration

	// Producer sends dead letters and copies for retries. Defaults to a producer of the runner's
	// own on the same brokers, which waits for all in-sync replicas and is not idempotent. Set an
	// idempotent producer, such as that of package consumer, if readers of dead letters must not
	// get one twice.
	Producer               idem.Producer
	DeadLetterTopic        func(topic string) string
	CreateDeadLetterTopics *runner.TopicSpec

	SetupWait time.Duration
	Shadow    bool

	// TLS, if not nil, encrypts. MinVersion is raised to TLS 1.2 if unset.
	TLS *tls.Config
	// SASL is the mechanism to authenticate with, such as that of scram.Mechanism(scram.SHA512,
	// user, password) of kafka-go. If nil, the member does not authenticate by SASL.
	SASL sasl.Mechanism
	// AllowInsecure permits settings that are refused otherwise: SASL without TLS, a certificate
	// that is not verified, and TLS below 1.2.
	AllowInsecure bool
	// Dial opens the connections. Defaults to that of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Observers []observe.Observer
	Logger    *slog.Logger
	ErrorText func(error) string
}

// neutral returns the settings that no Kafka client needs to know.
func (c Config) neutral() runner.Config {
	return runner.Config{
		Group: c.Group, Topics: c.Topics, Store: c.Store, Scope: c.Scope, NewScope: c.NewScope,
		AcceptNewIdentity: c.AcceptNewIdentity, Lease: c.Lease, StoreTimeout: c.StoreTimeout,
		Start: c.Start, OnGap: c.OnGap, OnLostOffsets: c.OnLostOffsets,
		Lanes: c.Lanes, QueueBytes: c.QueueBytes, Grace: c.Grace, CommitInterval: c.CommitInterval,
		StallTimeout: c.StallTimeout, WhenStalled: c.WhenStalled, SilenceTimeout: c.SilenceTimeout,
		Producer: c.Producer, DeadLetterTopic: c.DeadLetterTopic,
		CreateDeadLetterTopics: c.CreateDeadLetterTopics, SetupWait: c.SetupWait, Shadow: c.Shadow, Observers: c.Observers,
		Logger: c.Logger, ErrorText: c.ErrorText,
	}
}

const (
	rebalanceTimeout = 60 * time.Second
	minSession       = 3 * time.Second
)

// settings are the neutral settings, with defaults, and those of the client.
type settings struct {
	runner.Config
	client Config // of which only the fields about connections and the group are used
}

func newSettings(c Config) settings {
	c.ClientID = cmp.Or(c.ClientID, "idem")
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 20*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, 3*time.Second)
	if c.TLS != nil {
		c.TLS = c.TLS.Clone()
		if c.TLS.MinVersion == 0 {
			c.TLS.MinVersion = tls.VersionTLS12
		}
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	return settings{c.neutral().WithDefaults(), c}
}

// validate finds the mistakes that need no network.
func (s settings) validate() (problems []error) {
	problems = s.Validate(true)
	add := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("Config."+format, args...))
		}
	}
	c := s.client
	add(len(c.Brokers) == 0, "Brokers is empty")
	add(c.SessionTimeout < minSession, "SessionTimeout is %s, less than %s", c.SessionTimeout, minSession)
	add(c.Heartbeat < 0 || c.Heartbeat > c.SessionTimeout/3,
		"Heartbeat is %s, not between 0 and a third of SessionTimeout %s", c.Heartbeat, c.SessionTimeout)
	add(s.Grace > rebalanceTimeout/3*2, "Grace %s is more than two thirds of the rebalance time-out "+
		"%s: recording and committing follow the grace", s.Grace, rebalanceTimeout)
	return append(problems, s.checkSecurity()...)
}

// commands returns the commands that create missing topics and grant missing rights of this
// consumer.
func (s settings) commands() runner.Commands {
	return runner.Commands{Brokers: s.client.Brokers, Group: s.Group}
}

// checkSecurity refuses settings that reveal secrets or trust any server (G-07).
func (s settings) checkSecurity() (problems []error) {
	c := s.client
	switch {
	case c.AllowInsecure:
		return nil
	case c.TLS == nil && c.SASL != nil:
		return []error{fmt.Errorf("SASL/%s without TLS reveals the secret, or "+
			"lets listeners guess it: set TLS, or AllowInsecure", c.SASL.Name())}
	case c.TLS == nil:
		return nil
	}
	if !kafkaauth.VerifiesServer(c.TLS) {
		problems = append(problems, errors.New(
			"TLS.InsecureSkipVerify trusts any server: set RootCAs, or AllowInsecure"))
	}
	if c.TLS.MinVersion < tls.VersionTLS12 {
		problems = append(problems, errors.New(
			"TLS.MinVersion below 1.2: raise it, or set AllowInsecure"))
	}
	return problems
}

// describe lists the effective settings for the log line at the start.
func (s settings) describe() []any {
	return []any{
		"group", s.Group, "topics", s.Topics, "scope", s.Scope,
		"protocol", "eager", "start", s.Start.String(), "on_gap", s.OnGap.String(),
		"on_lost_offsets", s.OnLostOffsets.String(), "when_stalled", s.WhenStalled.String(),
		"isolation", "read committed", "lanes", s.Lanes,
		slog.Group("time", "lease", s.Lease, "grace", s.Grace, "commit", s.CommitInterval,
			"stall", s.StallTimeout, "silence", s.SilenceTimeout, "session", s.client.SessionTimeout),
		"acks", "all", "idempotent", false,
		"tls", s.client.TLS != nil, "sasl", s.client.SASL != nil,
	}
}

// String shows the fields that identify a runner, and no secret.
func (c Config) String() string {
	return fmt.Sprintf("kafkagoidem.Config[group=%s topics=%v brokers=%v tls=%t sasl=%t]",
		c.Group, c.Topics, c.Brokers, c.TLS != nil, c.SASL != nil)
}

// GoString shows the fields of [Config.String].
func (c Config) GoString() string { return c.String() }

// LogValue shows the fields of [Config.String].
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
