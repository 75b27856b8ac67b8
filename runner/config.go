package runner

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/setupwait"
	"github.com/idem-go/idem/observe"
)

// Config has the settings of a runner that no Kafka client needs to know. The zero value of a field
// is its default.
type Config struct {
	// Group is the consumer group. Required.
	Group string
	// Topics are the topics to consume. Required, unless the caller subscribes. The group's own
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
	// Start is where a group without committed offsets begins. Defaults to [Oldest].
	Start StartPosition
	// OnGap decides about partitions with a committed offset that is not in the log any more.
	// Defaults to [FailOnGap].
	OnGap GapPolicy
	// OnLostOffsets decides about partitions without committed offsets that, according to the
	// store, the scope has consumed. Defaults to [RefuseLost].
	OnLostOffsets LostOffsetsPolicy

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
	// the bound if many lanes handle events of some 100 kB. The Kafka client keeps fetched records
	// besides.
	QueueBytes int

	// Grace is how long running handlers may continue at a stop or a rebalance, see
	// [idem.Config].Grace. Defaults to 30 s, at most two thirds of the
	// client's rebalance time-out, because recording and committing follow.
	Grace time.Duration
	// CommitInterval is how often offsets are committed. Defaults to 1 s. Events that a crash
	// leaves uncommitted are delivered again, and the store recognises them.
	CommitInterval time.Duration
	// StallTimeout is how long a partition with unfinished events may rest before a report, and
	// before the consumer is not ready. Defaults to 5 minutes.
	StallTimeout time.Duration
	// WhenStalled decides about further actions. Defaults to [ReportStall].
	WhenStalled StallPolicy
	// SilenceTimeout is how long no record of a partition may arrive although the brokers have
	// some. Then the consumer joins the group again with new connections. Defaults to 60 s;
	// negative: never.
	SilenceTimeout time.Duration

	// Producer sends dead letters. It must be idempotent and wait for all in-sync replicas. Without
	// a Producer the partition stops at the first dead letter and the session ends, with
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
	// With a Producer of the user's no dead-letter topics are created, because that Producer may
	// write to another cluster. If handlers declare delays, the Producer must write to the cluster
	// where the retry topics are read.
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

// TopicSpec has the settings of dead-letter and retry topics to create.
type TopicSpec struct {
	// Partitions defaults to the number of the source topic.
	Partitions int32
	// ReplicationFactor defaults to that of the source topic.
	ReplicationFactor int16
	// Config has topic settings, such as "retention.ms".
	//
	// For dead-letter topics "retention.ms" defaults to -1, no limit. Kafka deletes by the time of
	// the record, which a dead letter keeps, so a week-old record would be deleted within minutes.
	//
	// For retry topics "retention.ms" and "cleanup.policy" are not taken from here. Retry topics
	// keep copies for the broker's default time, and at least for the delay and a day. All other
	// settings default to the broker's.
	Config map[string]string
}

// maxErrorText bounds the text of an error, in bytes.
const maxErrorText = 1 << 10

// Text returns the text of an error for log lines and answers of probes, of at most 1 KiB. The text
// of nil is empty. Text needs the defaults of [Config.WithDefaults].
func (c Config) Text(err error) string {
	if err == nil {
		return ""
	}
	text := c.ErrorText(err)
	return strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "")
}

// WithDefaults returns c with the default of each field that is zero.
func (c Config) WithDefaults() Config {
	c.Scope = cmp.Or(c.Scope, c.Group)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Lanes = cmp.Or(c.Lanes, 1)
	c.QueueBytes = cmp.Or(c.QueueBytes, 16<<20)
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	c.CommitInterval = cmp.Or(c.CommitInterval, time.Second)
	c.StallTimeout = cmp.Or(c.StallTimeout, 5*time.Minute)
	c.SilenceTimeout = cmp.Or(c.SilenceTimeout, time.Minute)
	c.SetupWait = cmp.Or(c.SetupWait, setupwait.Default)
	if c.DeadLetterTopic == nil {
		c.DeadLetterTopic = deadletter.Topic(c.Group)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.ErrorText == nil {
		c.ErrorText = idem.ErrorText
	}
	return c
}

// GapPolicyOf returns the policy that is applied to a gap in a topic: OnGap, but [EarliestOnGap]
// instead of [LatestOnGap] in the group's retry topics. A gap there means that some copies are lost,
// deleted before the due time or with the topic. All other copies must run, and the store knows
// which have run.
func (c Config) GapPolicyOf(topic string) GapPolicy {
	if c.OnGap == LatestOnGap && IsRetry(topic, c.Group) {
		return EarliestOnGap
	}
	return c.OnGap
}

// EndWait bounds how long an assigned partition takes to end: handlers are left behind after the
// grace, and completions are still recorded. EndWait needs the defaults of [Config.WithDefaults].
func (c Config) EndWait() time.Duration {
	return c.Grace + min(c.Grace/3, 10*time.Second) + 100*time.Millisecond
}

// maxLanes is far above the number of a store's connections. A larger number is a mistake.
const maxLanes = 256

// Validate finds the mistakes that need no network. subscribes also checks Topics, for a runner
// that subscribes itself. Validate needs the defaults of [Config.WithDefaults].
func (c Config) Validate(subscribes bool) (problems []error) {
	add := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("Config."+format, args...))
		}
	}
	add(c.Group == "", "Group is empty")
	add(c.CommitInterval < 0, "CommitInterval is negative")
	add(c.StallTimeout < 0, "StallTimeout is negative")
	add(c.Grace < 0, "Grace is negative")
	add(c.SetupWait < 0, "SetupWait is negative")
	add(c.Lanes < 1 || c.Lanes > maxLanes, "Lanes is %d, not between 1 and %d", c.Lanes, maxLanes)
	add(c.QueueBytes < 0, "QueueBytes is negative")
	add(c.Start > Newest, "Start is %s", c.Start)
	add(c.OnGap > LatestOnGap, "OnGap is %s", c.OnGap)
	add(c.OnLostOffsets > StartLost, "OnLostOffsets is %s", c.OnLostOffsets)
	add(c.WhenStalled > ExitOnStall, "WhenStalled is %s", c.WhenStalled)
	if c.Group != "" { // without it the names of dead-letter topics are wrong
		for _, t := range c.Topics {
			deadLetters := c.DeadLetterTopic(t)
			add(deadLetters == "", "DeadLetterTopic(%q) is empty", t)
			add(slices.Contains(c.Topics, deadLetters),
				"DeadLetterTopic(%q) is %q, which is consumed as well: "+
					"its dead letters would be consumed again", t, deadLetters)
		}
	}
	if s := c.CreateDeadLetterTopics; s != nil {
		add(s.Partitions < 0 || s.ReplicationFactor < 0,
			"CreateDeadLetterTopics has a negative number")
	}
	if !subscribes {
		return problems
	}
	// Copies of copies would go to topics without a reader.
	for _, t := range c.Topics {
		add(c.Group != "" && IsRetry(t, c.Group),
			"Topics contains %q, a retry topic of this group: list the source topic only, retry "+
				"topics are read too", t)
	}
	add(len(c.Topics) == 0, "Topics is empty")
	sorted := slices.Sorted(slices.Values(c.Topics))
	add(slices.Contains(sorted, ""), "Topics contains an empty name")
	add(len(slices.Compact(sorted)) != len(c.Topics), "Topics contains a name twice")
	return problems
}
