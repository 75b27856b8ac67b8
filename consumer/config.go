package consumer

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// Config of a [Consumer] or a [GroupHandler]. The zero value of a field is its default.
type Config struct {
	// Brokers are the addresses to begin with. Required, not used by NewGroupHandler.
	Brokers []string
	// Group is the consumer group. Required.
	Group string
	// Topics are the topics to consume. Required, not used by NewGroupHandler. The group's own
	// retry topics are consumed too and must not be listed.
	Topics []string

	// Store is the store of handlers without the option [idem.Store].
	Store dedup.Store
	// Scope is the namespace of event keys in the store. Defaults to Group. A group that is renamed
	// keeps the old name here; otherwise all events are new again.
	Scope string
	// NewScope lets a group without committed offsets begin although a store knows a topic of the
	// group under other scopes only. Without it Run fails with [dedup.ErrOtherScope], because a
	// renamed group would handle the backlog again. Set NewScope for a new consumer, and remove the
	// setting after the first start. Or run the command idem scope create from the error once.
	NewScope bool
	// AcceptNewIdentity lets the identity functions ([idem.ID], [idem.Type], [idem.Tenant]) differ
	// from the ones that a store has on record, and records the new ones. Without it Run fails with
	// [dedup.ErrIdentityChanged], because every event that is delivered again would be new. Remove
	// the setting after the deployment. Or run the command idem scope accept from the error once.
	AcceptNewIdentity bool
	// Lease is how long a claim lasts without renewal. Defaults to 30 s.
	Lease time.Duration
	// StoreTimeout is how long the store may take to answer a claim before the consumer asks again
	// on another connection; see [idem.Config].StoreTimeout. Defaults to 2 s.
	StoreTimeout time.Duration

	// InstanceID makes the membership static (KIP-345). A restart within the session time-out moves
	// no partition; the partitions rest meanwhile. The ID must be the same at every start and
	// belong to one process only, such as the name of a pod of a StatefulSet. By default the
	// membership is dynamic.
	InstanceID string
	// ClientID appears in the brokers' logs and quotas. Defaults to "idem".
	ClientID string
	// Start is where a group without committed offsets begins. Defaults to [Oldest].
	Start StartPosition
	// OnGap decides about partitions with a committed offset that is not in the log any more.
	// Defaults to [FailOnGap]. NewGroupHandler does not see the log: with the settings of
	// [DefaultSaramaConfig], sarama then ends the session with an error in Errors.
	OnGap GapPolicy
	// OnLostOffsets decides about partitions without committed offsets that, according to the
	// store, the scope has consumed. Defaults to [RefuseLost]. Not used by NewGroupHandler.
	OnLostOffsets LostOffsetsPolicy
	// Cooperative keeps partitions that do not move running during a rebalance. All members of the
	// group must support this. Switch a group that runs with another strategy in two rolling
	// deployments. The first is without Cooperative: it offers both strategies and uses the old
	// one. The second is with Cooperative.
	Cooperative bool

	// Lanes is how many events of one partition may be handled at a time, 1 to 256. Defaults to 1:
	// the partition is handled in order.
	//
	// With more lanes, only events with the same record key keep an order. Events without a key
	// have no order, except copies of one event. Use more lanes for handlers that wait, for example
	// for an HTTP service. Handlers run in as many goroutines as there are lanes in all assigned
	// partitions. After the loss of other members these are all partitions.
	//
	// An event that makes no progress delays the events with the same key and those already in the
	// same lane. Other events continue until the lead is 256 events per lane (at least 1,024, at
	// most 16,384). No offset behind the delayed event is committed.
	Lanes int

	// QueueBytes bounds the memory of the events that wait or are being handled, in all assigned
	// partitions together. An event counts with the bytes of its key, value and headers, and about
	// 500 more. Each partition has an equal share, at least 64 KiB, and takes one larger event when
	// the share is empty. A partition with a full share is not fetched. Defaults to 16 MiB. Raise
	// the bound if many lanes handle events of some 100 kB. Besides, sarama keeps up to two answers
	// of each broker. An answer has at most Consumer.Fetch.MaxBytes, here 4 MiB.
	QueueBytes int

	// Grace is how long running handlers may continue at a stop or a rebalance, see
	// [idem.Config].Grace. Defaults to 30 s, at most two thirds of sarama's
	// Consumer.Group.Rebalance.Timeout (60 s), because recording and committing follow.
	Grace time.Duration
	// CommitInterval is how often offsets are committed. Defaults to 1 s. Events that a crash
	// leaves uncommitted are delivered again, and the store recognises them.
	CommitInterval time.Duration
	// StallTimeout is how long a partition with unfinished events may rest before a report, and
	// before [Consumer.Ready] fails. Defaults to 5 minutes.
	StallTimeout time.Duration
	// WhenStalled decides about further actions. Defaults to [ReportStall].
	WhenStalled StallPolicy
	// SilenceTimeout is how long no record of a partition may arrive although the brokers have
	// some. Then the consumer joins the group again with new connections. Defaults to 60 s;
	// negative: never. Not used by NewGroupHandler.
	SilenceTimeout time.Duration

	// Producer sends dead letters. Defaults to a producer of the consumer's own on the same
	// brokers, which is idempotent and waits for all in-sync replicas. NewGroupHandler has no
	// default: at the first dead letter the partition stops and the session ends, with
	// [idem.ErrNoProducer].
	Producer idem.Producer
	// DeadLetterTopic returns the name of the dead-letter topic of a topic. Defaults to
	// "<topic>.<group>.dlq".
	DeadLetterTopic func(topic string) string
	// CreateDeadLetterTopics creates missing dead-letter topics and retry topics of the group at
	// the start. There is one retry topic for each delay that a handler declares, and one for
	// replays, see [deadletter.RetryTopic]. If nil, the topics must exist, and a missing topic is a
	// [*TopicError]. Only the topic for replays is optional: if it is missing or must not be read,
	// a warning is logged and dead letters cannot be replayed.
	//
	// Not used by NewGroupHandler. With a Producer no dead-letter topics are created, because the
	// Producer may write to another cluster. If handlers declare delays, the Producer must write to
	// the cluster of these Brokers, where the retry topics are read.
	//
	// Give dead-letter topics that you create yourself a retention far above the source's, or
	// message.timestamp.type=LogAppendTime. Dead letters keep the time of the record, so Kafka
	// would delete old ones at once. Copies in retry topics have the time at which they were
	// published. Give retry topics cleanup.policy=delete and a retention well above the delay.
	CreateDeadLetterTopics *TopicSpec

	// SetupWait is how long Run waits at the start for tables, topics or rights that are missing.
	// Within 5 s a log line names them, and the command that creates or grants them. After
	// SetupWait Run ends with an error: a [dedup.SetupError], or a [*TopicError], or one that
	// matches [ErrUnauthorized]. Defaults to 3 s; [idem.Forever]: no limit.
	SetupWait time.Duration

	// Shadow turns shadow mode on: events are recorded as usual, every delivery runs, and
	// duplicates are only counted; see [idem.Config].Shadow. Use shadow mode to move an existing
	// consumer to Idem.
	Shadow bool
	// TLS, if not nil, encrypts. MinVersion is raised to TLS 1.2 if unset. For certificates in
	// files that change, see TLSFiles of package kafkaauth.
	TLS *tls.Config
	// SASL, if not nil, authenticates.
	SASL *SASL
	// AllowInsecure permits settings that are refused otherwise. These are SASL with a password or
	// token (PLAIN, SCRAM, OAUTHBEARER) without TLS, a certificate that is not verified, and TLS
	// below 1.2.
	AllowInsecure bool
	// Sarama changes the settings of sarama last, for all connections. Settings that would lose
	// events are refused afterwards, see [DefaultSaramaConfig].
	Sarama func(*sarama.Config)

	// Observers implement one or more observer interfaces of package observe.
	Observers []observe.Observer
	// Logger defaults to slog.Default(). Log lines report changes of state; observers get each
	// event.
	Logger *slog.Logger
	// ErrorText makes the text of an error for log lines, dead letters, the store and the answers
	// of probes, see [idem.Config]. Defaults to [idem.ErrorText], which quotes no data. Errors that
	// are returned, or passed to observers, are unchanged.
	ErrorText func(error) string
}

// neutral returns the settings that do not depend on sarama.
func (c Config) neutral() runner.Config {
	return runner.Config{
		Group: c.Group, Topics: c.Topics,
		Store: c.Store, Scope: c.Scope, NewScope: c.NewScope, AcceptNewIdentity: c.AcceptNewIdentity,
		Lease: c.Lease, StoreTimeout: c.StoreTimeout,
		InstanceID: c.InstanceID, Start: c.Start, OnGap: c.OnGap, OnLostOffsets: c.OnLostOffsets,
		Lanes: c.Lanes, QueueBytes: c.QueueBytes,
		Grace: c.Grace, CommitInterval: c.CommitInterval,
		StallTimeout: c.StallTimeout, WhenStalled: c.WhenStalled, SilenceTimeout: c.SilenceTimeout,
		Producer: c.Producer, DeadLetterTopic: c.DeadLetterTopic,
		CreateDeadLetterTopics: c.CreateDeadLetterTopics, SetupWait: c.SetupWait, Shadow: c.Shadow,
		Observers: c.Observers, Logger: c.Logger, ErrorText: c.ErrorText,
	}
}

func (c Config) withDefaults() Config {
	r := c.neutral().WithDefaults()
	c.ClientID = cmp.Or(c.ClientID, "idem")
	c.Scope, c.Lease, c.Lanes, c.QueueBytes = r.Scope, r.Lease, r.Lanes, r.QueueBytes
	c.Grace, c.CommitInterval = r.Grace, r.CommitInterval
	c.StallTimeout, c.SilenceTimeout, c.SetupWait = r.StallTimeout, r.SilenceTimeout, r.SetupWait
	c.DeadLetterTopic, c.Logger, c.ErrorText = r.DeadLetterTopic, r.Logger, r.ErrorText
	return c
}

func (c Config) errorText(err error) string { return c.neutral().Text(err) }

// commands returns the commands that create missing topics and grant missing rights of this
// consumer.
func (c Config) commands() runner.Commands {
	commands := runner.Commands{Brokers: c.Brokers, Group: c.Group}
	if c.SASL != nil {
		commands.User = c.SASL.User
	}
	return commands
}

// validate finds the mistakes that need no network. forRun also checks the fields that only a
// Consumer needs.
func (c Config) validate(forRun bool) []error {
	problems := c.neutral().Validate(forRun)
	if forRun && len(c.Brokers) == 0 {
		problems = append(problems, errors.New("Config.Brokers is empty"))
	}
	return problems
}

// LogValue shows the fields that identify a consumer, and no secret.
func (c Config) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.Any("brokers", c.Brokers), slog.String("group", c.Group), slog.Any("topics", c.Topics),
		slog.String("scope", c.Scope), slog.Bool("tls", c.TLS != nil),
	}
	if c.SASL != nil {
		attrs = append(attrs, slog.Any("sasl", *c.SASL))
	}
	return slog.GroupValue(attrs...)
}

// String shows the fields of [Config.LogValue].
func (c Config) String() string { return "consumer.Config" + c.LogValue().String() }

// GoString shows the fields of [Config.LogValue].
func (c Config) GoString() string { return c.String() }
