package kgoidem

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	sessionTimeout    = 20 * time.Second
	heartbeatInterval = 3 * time.Second
	rebalanceTimeout  = 60 * time.Second

	fetchBytes          = 4 << 20   // of all partitions of a broker, in one answer
	fetchPartitionBytes = 128 << 10 // of each partition
	maxDecompressed     = 64 << 20  // of one batch (G-01)

	// freshMetadata is how old the knowledge of topics may be: a topic may just have been created.
	freshMetadata = 250 * time.Millisecond
)

// connection returns the options of every client of a runner, without Config.Options.
func (s settings) connection() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(s.client.Brokers...), kgo.ClientID(s.client.ClientID),
		kgo.DialTimeout(10 * time.Second), kgo.MetadataMaxAge(time.Minute),
		kgo.WithLogger(clientLog{s.Logger}),
	}
	if c := s.client.TLS; c != nil {
		c = c.Clone()
		if c.MinVersion == 0 {
			c.MinVersion = tls.VersionTLS12
		}
		opts = append(opts, kgo.DialTLSConfig(c))
	}
	if len(s.client.SASL) > 0 {
		opts = append(opts, kgo.SASL(s.client.SASL...))
	}
	return opts
}

// plain returns the options of the client that publishes and administrates.
func (s settings) plain() []kgo.Opt {
	return append(append(s.connection(), producing()...), kgo.MetadataMinAge(freshMetadata))
}

// consuming returns the options of a member of the group, without its callbacks.
func (s settings) consuming(topics []string) []kgo.Opt {
	opts := append(s.connection(),
		kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(topics...),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // K-30
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // K-17
		// The markers of transactions show where the log ends (K-17).
		kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.FetchMaxWait(500*time.Millisecond), kgo.MaxDecompressBatchBytes(maxDecompressed),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(heartbeatInterval),
		kgo.RebalanceTimeout(rebalanceTimeout),
	)
	switch s.client.Protocol {
	case Eager:
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	case NextGeneration:
		// The assignor range gives each member a share of each topic. The other one, uniform,
		// counts all partitions the same: a member may get a topic, and another only its retry
		// topics.
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	case Cooperative:
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if s.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(s.InstanceID))
	}
	return opts
}

// protected has the options that [Config].Options must not change, with the reason.
var protected = map[string]string{
	"ConsumerGroup": "use Group", "ConsumeTopics": "use Topics", "InstanceID": "use InstanceID",
	"Balancers": "use Protocol", "ServerSideBalancer": "use Protocol", "GroupProtocol": "use Protocol",
	"ConsumeRegex": "topics must be known", "ConsumeExcludeTopics": "topics must be known",
	"ConsumePartitions": "the group assigns partitions", "ShareGroup": "a share group has no offsets",
	"ConsumeStartOffset":        "use Start",
	"ConsumeResetOffset":        "it skips deleted records without a report: use OnGap",
	"AdjustFetchOffsetsFn":      "the runner uses it",
	"OnOffsetsFetched":          "the runner decides where partitions begin",
	"OnPartitionsAssigned":      "use an observe.RebalanceObserver",
	"OnPartitionsRevoked":       "use an observe.RebalanceObserver",
	"OnPartitionsLost":          "use an observe.RebalanceObserver",
	"BlockRebalanceOnPoll":      "it would block rebalances for ever",
	"DisableAutoCommit":         "automatic commits would commit events that are not settled",
	"AutoCommitMarks":           "automatic commits would commit events that are not settled",
	"GreedyAutoCommit":          "automatic commits would commit events that are not settled",
	"FetchIsolationLevel":       "aborted records must not be read",
	"KeepControlRecords":        "without markers the end of a log is not known",
	"DisableFetchCRCValidation": "damaged records must not be handled",
	"RebalanceTimeout":          "Grace is bounded by it",
	"AllowAutoTopicCreation":    "a misspelt topic must be an error",
	"TransactionalID":           "the runner uses no transactions of producers",
	"RequiredAcks":              "a record without all replicas can be lost",
	"DisableIdempotentWrite":    "retries would double records and change their order",
}

// callbacks have the options that a client of a group wraps. There an option of the user cannot be
// distinguished.
var callbacks = []string{"OnPartitionsAssigned", "OnPartitionsRevoked", "OnPartitionsLost"}

// checkOptions refuses options that lose events, or that the runner needs itself. It compares the
// settings with and without them, in clients that never connect.
func checkOptions(base, own []kgo.Opt) error {
	if len(own) == 0 {
		return nil
	}
	before, err := settingsOf(base)
	if err != nil {
		return err
	}
	after, err := settingsOf(append(slices.Clone(base), own...))
	if err != nil {
		return fmt.Errorf("Config.Options: %w", err)
	}
	alone, err := settingsOf(own) // without a group
	if err != nil {
		return fmt.Errorf("Config.Options: %w", err)
	}
	for _, name := range callbacks {
		before[name], after[name] = nil, nil
		if f := reflect.ValueOf(alone[name]); f.IsValid() && !f.IsNil() {
			after[name] = name
		}
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(protected)) {
		if !reflect.DeepEqual(before[name], after[name]) {
			problems = append(problems,
				fmt.Errorf("Config.Options: kgo.%s is refused: %s", name, protected[name]))
		}
	}
	return errors.Join(problems...)
}

// settingsOf returns the protected settings of a client with these options.
func settingsOf(opts []kgo.Opt) (map[string]any, error) {
	ended, end := context.WithCancel(context.Background())
	end()
	cl, err := kgo.NewClient(append(slices.Clone(opts), kgo.WithContext(ended))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	values := make(map[string]any, len(protected))
	for name := range protected {
		values[name] = cl.OptValue(name)
	}
	return values, nil
}

// clientLog passes franz-go's lines of warnings and errors on, as details.
type clientLog struct{ log *slog.Logger }

// Level implements kgo.Logger.
func (l clientLog) Level() kgo.LogLevel { return kgo.LogLevelWarn }

// Log implements kgo.Logger.
func (l clientLog) Log(_ kgo.LogLevel, text string, attrs ...any) {
	l.log.Debug("franz-go: "+text, attrs...)
}

// describe lists the effective settings for the log line at the start.
func (s settings) describe() []any {
	return []any{
		"group", s.Group, "topics", s.Topics, "scope", s.Scope, "instance", s.InstanceID,
		"protocol", s.client.Protocol.String(), "start", s.Start.String(), "on_gap", s.OnGap.String(),
		"on_lost_offsets", s.OnLostOffsets.String(), "when_stalled", s.WhenStalled.String(),
		"isolation", "read committed", "lanes", s.Lanes,
		slog.Group("time", "lease", s.Lease, "grace", s.Grace, "commit", s.CommitInterval,
			"stall", s.StallTimeout, "silence", s.SilenceTimeout),
		"acks", "all", "idempotent", true,
		"tls", s.client.TLS != nil, "sasl", len(s.client.SASL) > 0,
	}
}
