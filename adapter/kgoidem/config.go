package kgoidem

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/kafkaauth"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// Protocol is how the members of a group share the partitions.
type Protocol uint8

const (
	// Cooperative keeps partitions that do not move running during a rebalance. All members of the
	// group must offer the strategy cooperative-sticky.
	Cooperative Protocol = iota
	// Eager gives back all partitions at each rebalance. The strategy is range, which every client
	// knows.
	Eager
	// NextGeneration is the protocol of KIP-848: the brokers assign the partitions, without a
	// barrier for all members. It needs Kafka 4.0 with the feature group.version; Run fails with
	// other brokers, and with those that refuse the protocol at the join. Kafka 4 moves a group from
	// Cooperative or Eager online, one member after the other. The session time-out is a setting of
	// the brokers then. A member waits while another process with its InstanceID is in the group.
	NextGeneration
)

// String names the protocol.
func (p Protocol) String() string {
	switch p {
	case Cooperative:
		return "cooperative"
	case Eager:
		return "eager"
	case NextGeneration:
		return "next generation"
	}
	return fmt.Sprintf("unknown(%d)", uint8(p))
}

// Config of a [Runner]. The zero value of a field is its default. [runner.Config] describes the
// fields without a comment; the names, defaults and meanings are those of consumer.Config.
type Config struct {
	// Brokers are the addresses to begin with. Required.
	Brokers []string
	// Group is the consumer group. Required.
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

	InstanceID string
	// ClientID appears in the brokers' logs and quotas. Defaults to "idem".
	ClientID string
	// Protocol is how the members share the partitions. Defaults to [Cooperative].
	Protocol Protocol

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

	// Producer sends dead letters and copies for retries. Defaults to a producer of the runner's
	// own on the same brokers, which is idempotent and waits for all in-sync replicas.
	Producer               idem.Producer
	DeadLetterTopic        func(topic string) string
	CreateDeadLetterTopics *runner.TopicSpec

	SetupWait time.Duration
	Shadow    bool

	// TLS, if not nil, encrypts. MinVersion is raised to TLS 1.2 if unset.
	TLS *tls.Config
	// SASL has the mechanisms to authenticate with, in the order of preference, such as
	// scram.Auth{User: user, Pass: password}.AsSha512Mechanism() of franz-go. If empty, the member
	// does not authenticate by SASL.
	SASL []sasl.Mechanism
	// AllowInsecure permits settings that are refused otherwise. These are SASL without TLS, except
	// for mechanisms that reveal no secret (GSSAPI), a certificate that is not verified, and TLS
	// below 1.2.
	AllowInsecure bool
	// Options change the settings of franz-go last, for all connections. Options that would lose
	// events, or that belong to the runner, are refused.
	Options []kgo.Opt

	Observers []observe.Observer
	Logger    *slog.Logger
	ErrorText func(error) string
}

// neutral returns the settings that no Kafka client needs to know.
func (c Config) neutral() runner.Config {
	return runner.Config{
		Group: c.Group, Topics: c.Topics, Store: c.Store, Scope: c.Scope, NewScope: c.NewScope,
		AcceptNewIdentity: c.AcceptNewIdentity, Lease: c.Lease, StoreTimeout: c.StoreTimeout,
		InstanceID: c.InstanceID, Start: c.Start, OnGap: c.OnGap, OnLostOffsets: c.OnLostOffsets,
		Lanes: c.Lanes, QueueBytes: c.QueueBytes, Grace: c.Grace, CommitInterval: c.CommitInterval,
		StallTimeout: c.StallTimeout, WhenStalled: c.WhenStalled, SilenceTimeout: c.SilenceTimeout,
		Producer: c.Producer, DeadLetterTopic: c.DeadLetterTopic,
		CreateDeadLetterTopics: c.CreateDeadLetterTopics, SetupWait: c.SetupWait, Shadow: c.Shadow, Observers: c.Observers,
		Logger: c.Logger, ErrorText: c.ErrorText,
	}
}

// settings are the neutral settings, with defaults, and those of the client.
type settings struct {
	runner.Config
	client Config // of which only the fields about connections and the protocol are used
}

func newSettings(c Config) settings {
	c.ClientID = cmp.Or(c.ClientID, "idem")
	return settings{c.neutral().WithDefaults(), c}
}

// validate finds the mistakes that need no network.
func (s settings) validate() (problems []error) {
	problems = s.Validate(true)
	if len(s.client.Brokers) == 0 {
		problems = append(problems, errors.New("Config.Brokers is empty"))
	}
	if s.client.Protocol > NextGeneration {
		problems = append(problems, fmt.Errorf("Config.Protocol is %s", s.client.Protocol))
	}
	if s.Grace > rebalanceTimeout/3*2 {
		problems = append(problems, fmt.Errorf("Config.Grace %s is more than two thirds of the "+
			"rebalance time-out %s: recording and committing follow the grace", s.Grace, rebalanceTimeout))
	}
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
	if c.AllowInsecure {
		return nil
	}
	if c.TLS == nil {
		for _, m := range c.SASL {
			if name := m.Name(); name != "GSSAPI" {
				problems = append(problems, fmt.Errorf("SASL/%s without TLS reveals the secret, or "+
					"lets listeners guess it: set TLS, or AllowInsecure", name))
			}
		}
		return problems
	}
	if !kafkaauth.VerifiesServer(c.TLS) {
		problems = append(problems, errors.New(
			"TLS.InsecureSkipVerify trusts any server: set RootCAs, or AllowInsecure"))
	}
	if c.TLS.MinVersion != 0 && c.TLS.MinVersion < tls.VersionTLS12 {
		problems = append(problems, errors.New(
			"TLS.MinVersion below 1.2: raise it, or set AllowInsecure"))
	}
	return problems
}

// String shows the fields that identify a runner, and no secret.
func (c Config) String() string {
	return fmt.Sprintf("kgoidem.Config[group=%s topics=%v brokers=%v tls=%t sasl=%t]",
		c.Group, c.Topics, c.Brokers, c.TLS != nil, len(c.SASL) > 0)
}

// GoString shows the fields of [Config.String].
func (c Config) GoString() string { return c.String() }

// LogValue shows the fields of [Config.String].
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
