// Package deadletters works on the dead letters of a consumer group: it finds them, says what became of their events, and lets
// those events run again. It prints nothing and asks nobody: the operator's command and the ops page do.
//
// Kafka has no index, so everything reads a dead-letter topic from one end to the other (rule 34). What became of an event is
// what the stores say: dead letters stay in their topic when they are replayed.
//
// The functions may be called concurrently with each other, also on one [Queue].
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

// Store is a store that may know the events of dead letters.
type NamedStore struct {
	// Name is for people, and holds no credentials.
	Name string
	// Store must be a [dedup.Operator]. Events that are deferred in it are found if it is a [dedup.Deferrer].
	Store dedup.Store
}

// Operator is what every store here can do.
func (l *NamedStore) Operator() dedup.Operator { return l.Store.(dedup.Operator) }

// Config says whose dead letters are meant. Client and Topic are needed; Group, Scope and Stores too for all that asks what
// became of events: Plan, Replay, Survey, Judge and EachJudged.
type Config struct {
	// Client must live as long as the [Queue].
	Client sarama.Client
	// Topic is the dead-letter topic, [deadletter.Topic](group)(source) unless the group gave it another name.
	Topic string
	// Source is the topic that the records of the dead letters must come from. Empty: any. Others are never replayed (G-03).
	Source string
	// Group is whose dead letters they must be; its retry topics take the copies.
	Group string
	// Scope is that of the events. It has no default: the scope of most groups is their name.
	Scope string
	// Stores are asked in their order. The first one remembers what was replayed without identity.
	Stores []NamedStore
}

// Queue is a dead-letter topic as far as it reached when it was opened: what is written later is not seen. It holds nothing
// that must be closed. Open a new one for each thing to be done.
type Queue struct {
	Config
	spans []kafkalog.Span
}

// The errors of this package.
var (
	// ErrNoTopic is that there is no dead-letter topic of the name.
	ErrNoTopic = errors.New("there is no topic")
	// ErrNoRecord is that there is no record at a place, or none any more.
	ErrNoRecord = errors.New("there is no record")
	// ErrNoOperator is that a store cannot be looked into.
	ErrNoOperator = errors.New("cannot be looked into")
	// ErrNoRetryTopic is that a copy has nowhere to go, since the retry topic of its source topic does not exist.
	ErrNoRetryTopic = errors.New("there is no topic")
	// ErrTooMany is that dead letters are of more than [MaxEvents] events.
	ErrTooMany = fmt.Errorf("more than %d events", MaxEvents)
)

// Open looks how far the topic reaches. The error matches [ErrNoTopic] if it does not exist, and [ErrNoOperator] if a store
// is of no use here. Whether the stores can be reached is not tried.
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

// TopicsOf returns the dead-letter topics of a group that there are now and that have their default names, sorted.
func TopicsOf(client sarama.Client, group string) ([]string, error) {
	all, err := kafkalog.Topics(client)
	if err != nil {
		return nil, err
	}
	return topicsOf(all, group), nil
}

// topicsOf returns the names among all that are of the group's dead-letter topics. "orders.eu.billing.dlq" may be billing's for the topic
// orders.eu, or eu.billing's for the topic orders: it is the one whose source there is, and ours if there is neither.
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
func (q *Queue) Only(spans ...kafkalog.Span) *Queue { return &Queue{Config: q.Config, spans: spans} }

// Size is how many records there may be: some of them may be gone, or no records.
func (q *Queue) Size() (n int64) {
	for _, s := range q.spans {
		n += s.End - s.Begin
	}
	return n
}

// List calls yield with what f chooses, partition after partition, until it returns false. scanned counts the records that
// were read, chosen or not. The end of ctx ends it with an error; what yield was given stands.
func (q *Queue) List(ctx context.Context, f Filter, yield func(*Found) (bool, error)) (scanned int, err error) {
	return scan(ctx, q.Client, f.narrow(q.spans), chosenBy(f, yield))
}

// Get returns the record at a place, which need not be a dead letter. The error matches [ErrNoRecord] if there is none.
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
