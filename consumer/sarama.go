package consumer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer/internal/publish"
	"github.com/idem-go/idem/kafkaauth"
)

// DefaultSaramaConfig returns the settings of sarama that a [Consumer] with this Config uses: safe
// defaults, then the changes of [Config].Sarama. The settings also fit a sarama.ConsumerGroup of
// your own with [NewGroupHandler].
//
// The error names every setting that would lose or hide events, or reveal a secret:
//   - commits by sarama itself
//   - errors that are not returned
//   - jumps over gaps
//   - a producer that does not wait for all replicas
//   - credentials without TLS
func DefaultSaramaConfig(cfg Config) (*sarama.Config, error) {
	cfg = cfg.withDefaults()
	sc := sarama.NewConfig()
	sc.ClientID = cfg.ClientID
	sc.ChannelBufferSize = 64 // the lanes have a queue of their own
	setNet(sc, cfg)
	setConsumer(sc, cfg)
	publish.Configure(sc)
	if cfg.Sarama != nil {
		cfg.Sarama(sc)
	}
	problems := append(checkSarama(sc, cfg), checkSecurity(sc, cfg.AllowInsecure)...)
	if err := sc.Validate(); err != nil {
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return sc, nil
}

// producerConfig returns the settings of OpenProducer.
func producerConfig(cfg Config) (*sarama.Config, error) {
	cfg = cfg.withDefaults()
	sc := sarama.NewConfig()
	sc.ClientID = cfg.ClientID
	setNet(sc, cfg)
	publish.Configure(sc)
	publish.ConfigureAlone(sc)
	if cfg.Sarama != nil {
		cfg.Sarama(sc)
	}
	problems := append(publish.Check(sc), checkSecurity(sc, cfg.AllowInsecure)...)
	refuse := func(bad bool, text string) {
		if bad {
			problems = append(problems, errors.New(text))
		}
	}
	refuse(len(cfg.Brokers) == 0, "Config.Brokers is empty")
	refuse(!sc.Producer.Idempotent,
		"sarama: Producer.Idempotent must be true: "+
			"otherwise retries double events and change their order")
	refuse(sc.ClientID == "sarama", "ClientID must not be sarama's default")
	if err := sc.Validate(); err != nil {
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return sc, nil
}

func setNet(sc *sarama.Config, cfg Config) {
	sc.Net.DialTimeout = 10 * time.Second
	// A joining member waits, in one request, until all others have given back partitions. That
	// lasts for the grace, and for recording afterwards.
	sc.Net.ReadTimeout = max(30*time.Second, cfg.Grace+15*time.Second)
	// the idempotent producer needs it; a broker answers a connection in order anyway
	sc.Net.MaxOpenRequests = 1
	sc.Metadata.RefreshFrequency = time.Minute
	// heartbeats use it: the restart of a broker must not end the session (K-24)
	sc.Metadata.Retry.Max = 10
	sc.Metadata.Timeout = 15 * time.Second
	sc.Metadata.AllowAutoTopicCreation = false // K-36
	if cfg.TLS != nil {
		sc.Net.TLS.Enable = true
		sc.Net.TLS.Config = cfg.TLS.Clone()
		if sc.Net.TLS.Config.MinVersion == 0 {
			sc.Net.TLS.Config.MinVersion = tls.VersionTLS12
		}
	}
	if cfg.SASL != nil {
		cfg.SASL.apply(sc)
	}
}

func setConsumer(sc *sarama.Config, cfg Config) {
	sc.Consumer.Return.Errors = true
	// Messages share the bytes of the answer, which stays in memory until the last one is settled.
	sc.Consumer.Fetch.Default = 128 << 10             // for each partition
	sc.Consumer.Fetch.MaxBytes = 4 << 20              // for all partitions of a broker
	sc.Consumer.IsolationLevel = sarama.ReadCommitted // K-30
	sc.Consumer.MaxProcessingTime = 10 * time.Second  // the pump never blocks for long (K-14)
	// A broker answers one connection in order: heartbeats and commits wait behind an idle fetch.
	sc.Consumer.MaxWaitTime = 250 * time.Millisecond
	sc.Consumer.Retry.Max = 20 // then the session ends and begins again, instead of silence (K-15)
	sc.Consumer.Retry.Backoff = time.Second
	sc.Consumer.Offsets.AutoCommit.Enable = false
	sc.Consumer.Offsets.Initial = initialOffset(cfg)
	g := &sc.Consumer.Group
	g.ResetInvalidOffsets = false // K-17
	g.InstanceId = cfg.InstanceID
	g.Session.Timeout = 20 * time.Second
	g.Heartbeat.Interval = 3 * time.Second
	g.Rebalance.Timeout = 60 * time.Second
	g.Rebalance.GroupStrategies = []sarama.BalanceStrategy{newSticky(cfg.Group)}
	if !cfg.Cooperative {
		g.Rebalance.GroupStrategies = append(g.Rebalance.GroupStrategies,
			sarama.NewBalanceStrategyRange())
	}
}

func initialOffset(cfg Config) int64 {
	if cfg.Start == Newest {
		return sarama.OffsetNewest
	}
	return sarama.OffsetOldest
}

// checkSarama finds the settings that Config.Sarama must not change.
func checkSarama(sc *sarama.Config, cfg Config) (problems []error) {
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("Config.Sarama: "+format, args...))
		}
	}
	g := &sc.Consumer.Group
	refuse(sc.Consumer.Offsets.AutoCommit.Enable,
		"Consumer.Offsets.AutoCommit.Enable would commit events that are not settled")
	refuse(!sc.Consumer.Return.Errors,
		"Consumer.Return.Errors must be true: otherwise errors of commits are lost")
	refuse(g.ResetInvalidOffsets,
		"Consumer.Group.ResetInvalidOffsets skips deleted records without a report: use OnGap")
	refuse(sc.Consumer.Offsets.Initial != initialOffset(cfg),
		"Consumer.Offsets.Initial differs from Start: use Start")
	refuse(g.InstanceId != cfg.InstanceID,
		"Consumer.Group.InstanceId differs from InstanceID: use InstanceID")
	refuse(sc.ClientID == "sarama", "ClientID must not be sarama's default")
	refuse(cfg.Grace > g.Rebalance.Timeout/3*2,
		"Grace %s is more than two thirds of Consumer.Group.Rebalance.Timeout %s: "+
			"recording and committing follow the grace",
		cfg.Grace, g.Rebalance.Timeout)
	refuse(sc.Net.ReadTimeout <= cfg.Grace,
		"Net.ReadTimeout %s must exceed Grace %s: "+
			"a member that joins waits, in one request, for the grace of the others",
		sc.Net.ReadTimeout, cfg.Grace)
	return append(problems, publish.Check(sc)...)
}

// checkSecurity refuses settings that reveal secrets or trust any server (G-07). The final settings
// are checked, from Config and from Config.Sarama.
func checkSecurity(sc *sarama.Config, allowInsecure bool) (problems []error) {
	if sc.Net.SASL.Enable && sc.Net.SASL.Mechanism == "" {
		problems = append(problems, errors.New(
			"SASL: Mechanism is empty: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"))
	}
	if allowInsecure {
		return problems
	}
	if m := sc.Net.SASL.Mechanism; sc.Net.SASL.Enable && !sc.Net.TLS.Enable {
		switch m {
		case sarama.SASLTypePlaintext, sarama.SASLTypeOAuth:
			problems = append(problems, fmt.Errorf(
				"SASL/%s without TLS sends the secret in the clear: "+
					"set TLS, or AllowInsecure", m))
		case sarama.SASLTypeSCRAMSHA256, sarama.SASLTypeSCRAMSHA512:
			problems = append(problems, fmt.Errorf(
				"SASL/%s without TLS lets listeners guess the password offline, "+
					"and read and change all records: set TLS, or AllowInsecure", m))
		}
	}
	if c := sc.Net.TLS.Config; sc.Net.TLS.Enable && c != nil {
		if !kafkaauth.VerifiesServer(c) {
			problems = append(problems, errors.New(
				"TLS.InsecureSkipVerify trusts any server: set RootCAs, or AllowInsecure"))
		}
		if c.MinVersion < tls.VersionTLS12 {
			problems = append(problems, errors.New(
				"TLS.MinVersion below 1.2: raise it, or set AllowInsecure"))
		}
	}
	return problems
}

// maxDecompressed bounds the size of one batch after decompression (G-01).
const maxDecompressed = 64 << 20

// This limit of sarama, by default no limit, is a package variable, which can be set without a race
// only before goroutines run. A program that wants another limit sets the variable at the start of
// main. A limit that is set earlier stays.
func init() {
	if sarama.MaxDecompressedBatchSize == 0 {
		sarama.MaxDecompressedBatchSize = maxDecompressed
	}
}

// describe lists the effective settings for the log line at the start.
func describe(sc *sarama.Config, cfg Config) []any {
	g := &sc.Consumer.Group
	strategies := make([]string, len(g.Rebalance.GroupStrategies))
	for i, s := range g.Rebalance.GroupStrategies {
		strategies[i] = s.Name()
	}
	isolation := "read committed"
	if sc.Consumer.IsolationLevel != sarama.ReadCommitted {
		isolation = "read uncommitted"
	}
	return []any{
		"group", cfg.Group, "topics", cfg.Topics, "scope", cfg.Scope, "instance", g.InstanceId,
		"start", cfg.Start.String(), "on_gap", cfg.OnGap.String(),
		"on_lost_offsets", cfg.OnLostOffsets.String(),
		"when_stalled", cfg.WhenStalled.String(), "isolation", isolation,
		"strategies", strings.Join(strategies, ","), "cooperative", cfg.Cooperative,
		"lanes", cfg.Lanes,
		slog.Group("time", "lease", cfg.Lease, "grace", cfg.Grace, "commit", cfg.CommitInterval,
			"stall", cfg.StallTimeout, "silence", cfg.SilenceTimeout, "session", g.Session.Timeout,
			"heartbeat", g.Heartbeat.Interval, "rebalance", g.Rebalance.Timeout),
		"acks", "all", "idempotent", sc.Producer.Idempotent, "kafka_version", sc.Version.String(),
		"tls", sc.Net.TLS.Enable, "sasl", string(sc.Net.SASL.Mechanism),
	}
}
