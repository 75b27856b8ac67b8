package consumer

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// Config of a [Consumer] or a [GroupHandler]. The zero value of a field is its default.
type Config struct {
	// Brokers are the addresses to begin with. Required, not used by NewGroupHandler.
	Brokers []string
	// Group is the consumer group. Required.
	Group string
	// Topics to consume. Required, not used by NewGroupHandler. The group's own retry topics are consumed beside them and
	// must not be named.
	Topics []string

	// Store is the store of handlers without the option [idem.Store].
	Store dedup.Store
	// Scope names who remembers. Defaults to Group. A group that is renamed keeps the old name here, else all of its events
	// are new again (rule 14).
	Scope string
	// NewScope lets a group that has committed nothing begin although a store knows one of its topics under other scopes
	// only. Without it Run refuses with [dedup.ErrOtherScope], since that is how a renamed group handles a week of events
	// again (rule 14). Say it for a consumer that is really another one, and remove it when that has begun.
	NewScope bool
	// AcceptNewIdentity lets the recipe by which events are told apart ([idem.ID], [idem.Type], [idem.Tenant]) differ from
	// the one that a store has on record, and records it. Without it Run refuses with [dedup.ErrIdentityChanged], since
	// every event that is delivered again would be new (rule 7). Remove it after the deployment.
	AcceptNewIdentity bool
	// Lease is how long a claim lasts without renewal. Defaults to 30 s.
	Lease time.Duration
	// StoreTimeout is how long the store may take to answer a claim before it is asked again on another connection; see
	// [idem.Config].StoreTimeout. Defaults to 2 s.
	StoreTimeout time.Duration

	// InstanceID makes the membership static (KIP-345): a restart within the session time-out moves no partition, and the
	// partitions rest meanwhile. It must be the same at every start and of one process only, such as the name of a pod of a
	// StatefulSet; it is never made up. Default: none.
	InstanceID string
	// ClientID shows in the brokers' logs and quotas. Defaults to "idem".
	ClientID string
	// Start is where a group without committed offsets begins. Defaults to [Oldest].
	Start StartPosition
	// OnGap is what happens when the committed offset is no longer in the log. Defaults to [Fail]. NewGroupHandler does not see
	// the log: with the settings of [DefaultSaramaConfig] sarama then ends the session, with an error in Errors.
	OnGap GapPolicy
	// OnLostOffsets is what happens when nothing is committed although the store knows that the scope has consumed. Defaults
	// to [RefuseLost]. Not used by NewGroupHandler.
	OnLostOffsets LostOffsetsPolicy
	// Cooperative lets a rebalance leave alone the partitions that do not move. All members of the group must support it. A group
	// that runs with another strategy is switched in two rolling deployments: first without Cooperative, which offers both ways
	// and uses the old one, then with it (K-26).
	Cooperative bool

	// Lanes is how many events of one partition may be handled at a time, 1 to 256. Defaults to 1: the partition is handled
	// in order, one event after the other. With more, only events with the same record key stay in order, and events without
	// a key are in no order but for copies of one event (rule 25). Use it where handlers wait for others, such as an HTTP
	// service; handlers run in as many goroutines as there are lanes in all assigned partitions, which after the loss of
	// other members is all partitions. An event that does not get on holds up only its key, and what its lane has taken with
	// it, until 256 events for each lane are ahead of it (at least 1,024, at most 16,384): nothing behind it is committed.
	Lanes int

	// Grace is how long work that was begun may go on at a stop or a rebalance, see [idem.Config].Grace. Defaults to 30 s, at
	// most two thirds of sarama's Consumer.Group.Rebalance.Timeout (60 s), as recording and committing come after it.
	Grace time.Duration
	// CommitInterval is how often offsets are committed. Defaults to 1 s. What a crash leaves uncommitted is delivered again
	// and found in the store.
	CommitInterval time.Duration
	// StallTimeout is how long a partition may rest, with something to do, before it is reported and [Consumer.Ready] turns
	// red (K-13). Defaults to 5 minutes.
	StallTimeout time.Duration
	// WhenStalled is what happens then beside. Defaults to [ReportStall].
	WhenStalled StallPolicy
	// SilenceTimeout is how long no records of a partition may arrive although the brokers have some, before the group is
	// joined anew with new connections (K-15). Defaults to 60 s; negative: never. Not used by NewGroupHandler.
	SilenceTimeout time.Duration

	// Producer sends dead letters. Defaults to one of our own on the same brokers, idempotent and waiting for all in-sync
	// replicas. For NewGroupHandler the default is none: the partition stops at what would be dead-lettered, and so does the
	// session, with [idem.ErrNoProducer].
	Producer idem.Producer
	// DeadLetterTopic names the topic for dead letters of a topic. Defaults to "<topic>.<group>.dlq".
	DeadLetterTopic func(topic string) string
	// CreateDeadLetterTopics creates missing dead-letter topics at start, and the group's retry topics: one for each delay that
	// a handler declares and one for replayed dead letters, see [idem.RetryTopic]. If nil they must exist, and a missing one
	// is a [*TopicError]. Without the last, or the right to read it, dead letters cannot be replayed, which is a warning. Not
	// used by NewGroupHandler, nor, for dead-letter topics, with a Producer, whose cluster may be another. (With delays it must
	// not be: retry topics are read from these Brokers.)
	//
	// Give a dead-letter topic that you create yourself a retention far longer than the source's, or
	// message.timestamp.type=LogAppendTime: dead letters keep the time of their record, and old ones would be deleted at once.
	// Copies in retry topics have the time of their making, so the broker's default is good for them if it is well beyond
	// the delay, with cleanup.policy=delete.
	CreateDeadLetterTopics *TopicSpec

	// Shadow keeps the store and obeys it in nothing: what it would have skipped is counted and run, see [idem.Config].Shadow. For
	// moving over a consumer that exists already.
	Shadow bool
	// TLS, if not nil, encrypts. MinVersion is raised to TLS 1.2 if unset.
	TLS *tls.Config
	// SASL, if not nil, authenticates.
	SASL *SASL
	// AllowInsecure permits what is refused otherwise (G-07): SASL with a password or token (PLAIN, SCRAM, OAUTHBEARER) without
	// TLS, a certificate that is not verified, TLS below 1.2.
	AllowInsecure bool
	// Sarama has the last word on the settings of sarama, for all connections. What would lose events is refused
	// afterwards, see [DefaultSaramaConfig].
	Sarama func(*sarama.Config)

	// Observers implement interfaces of this package, of package idem, or of both.
	Observers []idem.Observer
	// Logger defaults to slog.Default(). A log line is a change of state; what happens to each event is for observers.
	Logger *slog.Logger
	// ErrorText makes the text of an error for log lines, dead letters, the store and the answers of probes, see [idem.Config].
	// Defaults to [idem.ErrorText], which quotes no data. Errors that are returned, and those for observers, are as they are.
	ErrorText func(error) string
}

// maxErrorText is how much is said of an error.
const maxErrorText = 1 << 10

func (c Config) errorText(err error) string {
	if err == nil {
		return ""
	}
	text := c.ErrorText(err)
	return strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "")
}

// StartPosition is where a group without committed offsets begins.
type StartPosition uint8

const (
	// Oldest begins with the first record there is. Nothing is missed.
	Oldest StartPosition = iota
	// Newest skips what is there already. It also skips what is written to a new partition before it is first assigned (K-29).
	Newest
)

// GapPolicy says what happens when the committed offset of a partition is not in the log: records that were not consumed are
// gone. It is reported to observers and the log in any case. sarama's own way, to go on somewhere in silence, is not
// offered (K-17).
type GapPolicy uint8

const (
	// FailOnGap ends Run with a [*GapError], for a person to look.
	FailOnGap GapPolicy = iota
	// EarliestOnGap goes on with the first record there is.
	EarliestOnGap
	// LatestOnGap goes on with the next record that will be written.
	LatestOnGap
)

// String names the position.
func (p StartPosition) String() string { return enumName(int(p), "oldest", "newest") }

// String names the policy.
func (p GapPolicy) String() string { return enumName(int(p), "fail", "earliest", "latest") }

func enumName(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

// TopicSpec says how missing dead-letter and retry topics are created.
type TopicSpec struct {
	// Partitions defaults to as many as the source topic has.
	Partitions int32
	// ReplicationFactor defaults to the source topic's.
	ReplicationFactor int16
	// Config are settings such as "retention.ms", which defaults to -1, no limit: a dead letter keeps the time of its record, and
	// Kafka deletes by that time. A dead letter of a record that was a week old would be gone within minutes otherwise. All other
	// settings default to the broker's. Of a retry topic, "retention.ms" and "cleanup.policy" are not taken from here: it is
	// the broker's default for topics, but at least the delay and a day.
	Config map[string]string
}

func (c Config) withDefaults() Config {
	c.Scope = cmp.Or(c.Scope, c.Group)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.ClientID = cmp.Or(c.ClientID, "idem")
	c.Lanes = cmp.Or(c.Lanes, 1)
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	c.CommitInterval = cmp.Or(c.CommitInterval, time.Second)
	c.StallTimeout = cmp.Or(c.StallTimeout, 5*time.Minute)
	c.SilenceTimeout = cmp.Or(c.SilenceTimeout, time.Minute)
	if c.DeadLetterTopic == nil {
		c.DeadLetterTopic = idem.DeadLetterTopic(c.Group)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.ErrorText == nil {
		c.ErrorText = idem.ErrorText
	}
	return c
}

// maxLanes is far beyond what a store's connections serve: a larger number is a mistake.
const maxLanes = 256

// validate finds the mistakes that need no network. forRun also looks at what a whole consumer needs.
func (c Config) validate(forRun bool) (problems []error) {
	add := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("Config."+format, args...))
		}
	}
	add(c.Group == "", "Group is empty")
	add(c.CommitInterval < 0, "CommitInterval is negative")
	add(c.StallTimeout < 0, "StallTimeout is negative")
	add(c.Grace < 0, "Grace is negative")
	add(c.Lanes < 1 || c.Lanes > maxLanes, "Lanes is %d, not between 1 and %d", c.Lanes, maxLanes)
	add(c.Start > Newest, "Start is %s", c.Start)
	add(c.OnGap > LatestOnGap, "OnGap is %s", c.OnGap)
	add(c.OnLostOffsets > StartLost, "OnLostOffsets is %s", c.OnLostOffsets)
	add(c.WhenStalled > ExitOnStall, "WhenStalled is %s", c.WhenStalled)
	if c.Group != "" { // else the names of dead-letter topics mean nothing
		for _, t := range c.Topics {
			letters := c.DeadLetterTopic(t)
			add(letters == "", "DeadLetterTopic(%q) is empty", t)
			add(slices.Contains(c.Topics, letters), "DeadLetterTopic(%q) is %q, which is consumed as well: its dead letters would go round", t, letters)
		}
	}
	if s := c.CreateDeadLetterTopics; s != nil {
		add(s.Partitions < 0 || s.ReplicationFactor < 0, "CreateDeadLetterTopics has a negative number")
	}
	if !forRun {
		return problems
	}
	problems = append(problems, c.checkSources()...)
	add(len(c.Brokers) == 0, "Brokers is empty")
	add(len(c.Topics) == 0, "Topics is empty")
	sorted := slices.Sorted(slices.Values(c.Topics))
	add(slices.Contains(sorted, ""), "Topics contains an empty name")
	add(len(slices.Compact(sorted)) != len(c.Topics), "Topics contains a name twice")
	return problems
}

// checkVolatile refuses stores that forget everything with the process, unless that was declared as wanted: offsets
// are committed, so what such a store forgets is not delivered again, and what is delivered again is new (rule 31).
func checkVolatile(stores []dedup.Store) error {
	var problems []error
	for _, s := range stores {
		if v, ok := s.(dedup.Volatiler); ok {
			if err := v.Volatile(); err != nil {
				problems = append(problems, fmt.Errorf("store %T: %w", s, err))
			}
		}
	}
	return errors.Join(problems...)
}
