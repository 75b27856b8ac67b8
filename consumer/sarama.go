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
)

// DefaultSaramaConfig returns the settings of sarama that a [Consumer] with this Config uses: safe defaults, then what
// [Config].Sarama makes of them. They are as good for a sarama.ConsumerGroup of your own with [NewGroupHandler].
//
// The error names all that would lose or hide events, or give away a secret: commits by sarama itself, errors
// that are not returned, jumps over gaps, a producer that does not wait for all replicas, credentials without TLS.
func DefaultSaramaConfig(cfg Config) (*sarama.Config, error) {
	cfg = cfg.withDefaults()
	sc := sarama.NewConfig()
	sc.ClientID = cfg.ClientID
	sc.ChannelBufferSize = 64 // our own queue is behind it
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
		"sarama: Producer.Idempotent must be true: otherwise retries double events and change their order")
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
	// A member that joins waits, in one request, until all others have given back what they had: their grace, and what
	// recording takes after it.
	sc.Net.ReadTimeout = max(30*time.Second, cfg.Grace+15*time.Second)
	sc.Net.MaxOpenRequests = 1 // wanted by the idempotent producer; a broker answers a connection in order anyway
	sc.Metadata.RefreshFrequency = time.Minute
	sc.Metadata.Retry.Max = 10 // heartbeats use it too: a broker's restart should not end the session (K-24)
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
	sc.Consumer.IsolationLevel = sarama.ReadCommitted // K-30
	sc.Consumer.MaxProcessingTime = 10 * time.Second  // the pump never blocks for long (K-14)
	// A broker answers one connection in order: heartbeats, commits and the end of a claim wait behind an idle fetch.
	sc.Consumer.MaxWaitTime = 250 * time.Millisecond
	sc.Consumer.Retry.Max = 20 // then the session ends and begins anew, instead of silence for ever (K-15)
	sc.Consumer.Retry.Backoff = time.Second
	sc.Consumer.Offsets.AutoCommit.Enable = false
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	if cfg.Start == Newest {
		sc.Consumer.Offsets.Initial = sarama.OffsetNewest
	}
	g := &sc.Consumer.Group
	g.ResetInvalidOffsets = false // K-17
	g.InstanceId = cfg.InstanceID
	g.Session.Timeout = 20 * time.Second
	g.Heartbeat.Interval = 3 * time.Second
	g.Rebalance.Timeout = 60 * time.Second
	g.Rebalance.GroupStrategies = []sarama.BalanceStrategy{newSticky(cfg.Group)}
	if !cfg.Cooperative {
		g.Rebalance.GroupStrategies = append(g.Rebalance.GroupStrategies, sarama.NewBalanceStrategyRange())
	}
}

// checkSarama finds what Config.Sarama must not have changed.
func checkSarama(sc *sarama.Config, cfg Config) (problems []error) {
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("Config.Sarama: "+format, args...))
		}
	}
	g := &sc.Consumer.Group
	refuse(sc.Consumer.Offsets.AutoCommit.Enable, "Consumer.Offsets.AutoCommit.Enable would commit events that are not settled (K-04)")
	refuse(!sc.Consumer.Return.Errors, "Consumer.Return.Errors must be true: errors of commits are lost otherwise (K-05)")
	refuse(g.ResetInvalidOffsets, "Consumer.Group.ResetInvalidOffsets skips deleted records in silence (K-17): use OnGap")
	want := sarama.OffsetOldest
	if cfg.Start == Newest {
		want = sarama.OffsetNewest
	}
	refuse(sc.Consumer.Offsets.Initial != want, "Consumer.Offsets.Initial is not what Start says: use Start")
	refuse(g.InstanceId != cfg.InstanceID, "Consumer.Group.InstanceId is not what InstanceID says: use InstanceID")
	refuse(sc.ClientID == "sarama", "ClientID must not be sarama's default")
	refuse(cfg.Grace > g.Rebalance.Timeout/3*2,
		"Grace %s is more than two thirds of Consumer.Group.Rebalance.Timeout %s: recording and committing come after it", cfg.Grace, g.Rebalance.Timeout)
	refuse(sc.Net.ReadTimeout <= cfg.Grace, "Net.ReadTimeout %s must exceed Grace %s: joining waits, in one request, for the others' grace",
		sc.Net.ReadTimeout, cfg.Grace)
	return append(problems, publish.Check(sc)...)
}

// maxDecompressed bounds what one batch may become when it is decompressed (G-01).
const maxDecompressed = 64 << 20

// sarama keeps this limit in a variable of its package, without one by default. It can only be set without a race before
// anything runs. A program that wants another one sets it at the start of main; one that was set before is kept.
func init() {
	if sarama.MaxDecompressedBatchSize == 0 {
		sarama.MaxDecompressedBatchSize = maxDecompressed
	}
}

// describe lists the settings that matter, for the log line at start.
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
		"start", cfg.Start.String(), "on_gap", cfg.OnGap.String(), "on_lost_offsets", cfg.OnLostOffsets.String(), "when_stalled", cfg.WhenStalled.String(), "isolation", isolation,
		"strategies", strings.Join(strategies, ","), "cooperative", cfg.Cooperative, "lanes", cfg.Lanes,
		slog.Group("time", "lease", cfg.Lease, "grace", cfg.Grace, "commit", cfg.CommitInterval, "stall", cfg.StallTimeout, "silence", cfg.SilenceTimeout,
			"session", g.Session.Timeout, "heartbeat", g.Heartbeat.Interval, "rebalance", g.Rebalance.Timeout),
		"acks", "all", "idempotent", sc.Producer.Idempotent, "kafka_version", sc.Version.String(),
		"tls", sc.Net.TLS.Enable, "sasl", string(sc.Net.SASL.Mechanism),
	}
}
