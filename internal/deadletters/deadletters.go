// Package deadletters lists the dead letters of a consumer group, finds the state of their events
// in the stores, and replays them. The package prints no output and asks no person; the command and
// the ops page do.
//
// Kafka has no index, so each function reads a dead-letter topic from begin to end (rule 34). The
// stores have the state of the events: a replayed dead letter stays in the topic.
package deadletters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/kafkalog"
)

// NamedStore is a store that may know the events of dead letters, with its name.
type NamedStore struct {
	// Name is for people, and holds no credentials.
	Name string
	// Store must be a [dedup.Operator]. If Store is also a [dedup.Deferrer], its deferred events
	// are found.
	Store dedup.Store
}

// Operator returns the store as a [dedup.Operator].
func (l *NamedStore) Operator() dedup.Operator { return l.Store.(dedup.Operator) }

// Config names a dead-letter topic. Client and Topic are required. Functions that need the state of
// events also require Group, Scope and Stores: Plan, Replay, Survey, Judge and EachJudged.
type Config struct {
	// Client must live as long as the [Queue].
	Client sarama.Client
	// Topic is the dead-letter topic, by default [deadletter.Topic](group)(source).
	Topic string
	// Source is the topic of the original records. Dead letters of other topics are never replayed
	// (G-03). Empty: any topic.
	Source string
	// Group is the group of the dead letters. Copies go to its retry topics.
	Group string
	// Scope is that of the events. It has no default: the scope of most groups is their name.
	Scope string
	// Stores are asked in order. The first one remembers replayed dead letters without identity.
	Stores []NamedStore
	// Surveyed, if not nil, is called for each record that [Queue.Survey] has read, one after the
	// other.
	Surveyed func()
}

// Queue is a dead-letter topic up to the end at the time of Open. Later records are not read. A
// Queue needs no Close. Open a new one for each operation.
type Queue struct {
	Config
	spans []kafkalog.Span
}

// The errors of this package.
var (
	// ErrNoTopic is that there is no dead-letter topic of the name.
	ErrNoTopic = errors.New("there is no topic")
	// ErrNoRecord means that a place has no record, or no longer one.
	ErrNoRecord = errors.New("there is no record")
	// ErrNoOperator is that a store cannot be looked into.
	ErrNoOperator = errors.New("cannot be looked into")
	// ErrNoRetryTopic means that the retry topic for a copy does not exist.
	ErrNoRetryTopic = errors.New("there is no topic")
	// ErrCopyTooLarge means that a copy is too large for the retry topic.
	ErrCopyTooLarge = errors.New("the copy is too large")
)

// Open reads the end of the topic. The error matches [ErrNoTopic] if the topic does not exist, and
// [ErrNoOperator] if a store has no operator. Open does not try to reach the stores.
func Open(cfg Config) (*Queue, error) {
	for _, l := range cfg.Stores {
		if _, ok := l.Store.(dedup.Operator); !ok {
			return nil, fmt.Errorf("%s %w", l.Name, ErrNoOperator)
		}
	}
	spans, err := kafkalog.Spans(cfg.Client, cfg.Topic)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return nil, fmt.Errorf("%w %s", ErrNoTopic, cfg.Topic)
	}
	if err != nil {
		return nil, err
	}
	return &Queue{Config: cfg, spans: spans}, nil
}

// TopicsOf returns the existing dead-letter topics of a group with default names, sorted.
func TopicsOf(client sarama.Client, group string) ([]string, error) {
	all, err := kafkalog.Topics(client)
	if err != nil {
		return nil, err
	}
	return topicsOf(all, group), nil
}

// topicsOf returns the dead-letter topics of the group among all topics. "orders.eu.billing.dlq"
// can belong to billing for the topic orders.eu, or to eu.billing for the topic orders. The
// existing source topic decides; without one, the topic belongs to the group.
func topicsOf(all []string, group string) (ours []string) {
	exists := func(source string) bool { return slices.Contains(all, source) }
	for _, t := range all {
		source, ok := strings.CutSuffix(t, deadletter.Topic(group)(""))
		if !ok {
			continue
		}
		another := false
		for i := range source {
			another = another || source[i] == '.' && exists(source[:i])
		}
		if exists(source) || !another {
			ours = append(ours, t)
		}
	}
	return ours
}

// Spans returns the partitions of the topic, as far as they reach.
func (q *Queue) Spans() []kafkalog.Span { return slices.Clone(q.spans) }

// Only returns the queue of some of those spans.
func (q *Queue) Only(spans ...kafkalog.Span) *Queue {
	return &Queue{Config: q.Config, spans: spans}
}

// Size is how many records there may be: some of them may be gone, or no records.
func (q *Queue) Size() (n int64) {
	for _, s := range q.spans {
		n += s.End - s.Begin
	}
	return n
}

// List calls yield with the records that f chooses, partition after partition, until yield returns
// false. scanned is the number of records that were read. The end of ctx is an error; earlier calls
// of yield remain valid.
func (q *Queue) List(
	ctx context.Context, f Filter, yield func(*Found) (bool, error),
) (scanned int, err error) {
	return scan(ctx, q.Client, f.narrow(q.spans), chosenBy(f, yield))
}

// Get returns the record at a place, which need not be a dead letter. The error matches
// [ErrNoRecord] without a record.
func (q *Queue) Get(ctx context.Context, at Place) (*Found, error) {
	f := Filter{At: []Place{at}}
	var l *Found
	if _, err := q.List(ctx, f, func(found *Found) (bool, error) {
		l = found
		return false, nil
	}); err != nil {
		return nil, err
	}
	if l == nil {
		return nil, fmt.Errorf("%w %s in %s", ErrNoRecord, at, q.Topic)
	}
	return l, nil
}

// Scan reads dead-letter topics from begin to end, partition after partition, because Kafka has no
// index (rule 34). It calls yield with the records that f chooses until yield returns false.
// scanned is the number of records that were read. The error matches
// [sarama.ErrUnknownTopicOrPartition] for a missing topic.
func Scan(
	ctx context.Context, client sarama.Client, topics []string, f Filter,
	yield func(*Found) (bool, error),
) (scanned int, err error) {
	spans, err := kafkalog.Spans(client, topics...)
	if err != nil {
		return 0, err
	}
	return scan(ctx, client, f.narrow(spans), chosenBy(f, yield))
}
