package groups

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// Kind is what a topic is to a group.
type Kind string

const (
	// Source is a topic that others write.
	Source Kind = "source"
	// Retry is a topic of the group's own, with later attempts of events of a source.
	Retry Kind = "retry"
	// DeadLetters is a dead-letter topic of the group.
	DeadLetters Kind = "dead-letters"
)

// Query says which group is asked about.
type Query struct {
	// Group is its name.
	Group string
	// Topics are shown whether the group has committed on them or not, and what belongs to them. Optional: those with
	// committed offsets, and those that a member reads, are always shown.
	Topics []string
	// DeadLetterTopic names the dead-letter topic of a topic, as Config.DeadLetterTopic of the consumer. Defaults to
	// [idem.DeadLetterTopic].
	DeadLetterTopic func(topic string) string
}

// State is how far a group is.
type State struct {
	// Group is its name.
	Group string
	// Members are in the group now, sorted.
	Members []Member
	// MembersErr says why they are not known. The rest is known all the same.
	MembersErr error
	// Partitions have all partitions of all topics, in the order of their names and numbers.
	Partitions []Partition
	// Missing are topics that the group has offsets on, or that were asked for, and that do not exist; sorted.
	Missing []string
}

// Partition is how far a group is on a partition.
type Partition struct {
	// Topic, Partition and Kind say which it is. Partition is -1 if the topic may not be looked at, which Err says.
	Topic     string
	Partition int32
	Kind      Kind
	// Committed is the offset of the next record to be consumed. Nil: none was committed yet; of dead-letter topics always,
	// since nobody consumes them.
	Committed *int64
	// Begin is the first offset of the log, and End the one that the next record will have.
	Begin, End int64
	// Next is the first offset there is that is not consumed: there the oldest record that waits is to be found.
	Next int64
	// Lag counts offsets, which are records but for marks of transactions and what was compacted away. Of a dead-letter
	// topic it is what is there, and where nothing was committed as well.
	Lag int64
	// Reader is the member that reads it, empty if nobody does, or that is not known.
	Reader string
	// Err says why Begin, End, Next and Lag are not known: the partition has no leader at the moment, say.
	Err error
}

// fresh is how old the list of topics may be: a topic that was created later is shown within this time.
const fresh = 10 * time.Second

// Reader asks about groups again and again, over one client. It asks each broker twice for all its partitions, and the
// coordinator twice, however many partitions there are; from time to time it asks for the list of topics, since a client that
// lives long does not know those that came since.
//
// A client of sarama cannot be interrupted: a call that is given up when its context ends goes on until the time-outs of the
// client end it, and the next call waits for that, or until its own context ends. So there is one such call at a time at most. A
// Reader is safe for concurrent use.
type Reader struct {
	client  sarama.Client
	slot    chan struct{} // whoever is in it asks
	running sync.WaitGroup
	listed  time.Time // when the client has asked for all topics; of the one in the slot
}

// NewReader makes a Reader. The client is the caller's, and has to be open until Close of the Reader has returned. Only
// its own topics are ever asked for by name, so that none is created by asking (K-36).
func NewReader(client sarama.Client) *Reader {
	return &Reader{client: client, slot: make(chan struct{}, 1)}
}

// Close waits for calls that were given up, as long as the client's time-outs let them go on. It leaves the client open.
func (r *Reader) Close() { r.running.Wait() }

// Lag says how far a group is. An error says that nothing is known: the coordinator did not answer, or refuses to.
func (r *Reader) Lag(ctx context.Context, q Query) (State, error) {
	return bounded(ctx, r, func() (State, error) { return r.lag(ctx, q) })
}

// Groups returns the names of all groups of the cluster, sorted.
func (r *Reader) Groups(ctx context.Context) ([]string, error) {
	return bounded(ctx, r, func() ([]string, error) { return List(r.client) })
}

// bounded asks, and gives it up when ctx ends.
func bounded[T any](ctx context.Context, r *Reader, ask func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	select {
	case r.slot <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	answers := make(chan answer, 1)
	r.running.Go(func() {
		defer func() { <-r.slot }()
		value, err := ask()
		answers <- answer{value, err}
	})
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// lag asks, and once more if what the client believed was no longer so: where leaders and coordinators are.
func (r *Reader) lag(ctx context.Context, q Query) (State, error) {
	if q.DeadLetterTopic == nil {
		q.DeadLetterTopic = idem.DeadLetterTopic(q.Group)
	}
	if time.Since(r.listed) > fresh {
		r.refresh()
	}
	s, err := r.ask(&q)
	if err == nil && !s.stale() || ctx.Err() != nil {
		return s, err
	}
	r.refresh()
	_ = r.client.RefreshCoordinator(q.Group) // if it cannot be found, the question says so
	return r.ask(&q)
}

// refresh asks for all topics. Its error is no answer: the client keeps what it was told even if one topic of the cluster has
// no leader, and if nobody answers the next question says so.
func (r *Reader) refresh() {
	_ = r.client.RefreshMetadata()
	r.listed = time.Now()
}

// stale reports whether it may help to ask again at once. That a right is missing, or a leader, will not have changed.
func (s *State) stale() bool {
	if s.MembersErr != nil && !errors.Is(s.MembersErr, sarama.ErrGroupAuthorizationFailed) {
		return true
	}
	return slices.ContainsFunc(s.Partitions, func(p Partition) bool {
		return p.Err != nil && !errors.Is(p.Err, sarama.ErrTopicAuthorizationFailed) && !errors.Is(p.Err, sarama.ErrLeaderNotAvailable)
	})
}

func (r *Reader) ask(q *Query) (s State, err error) {
	s.Group = q.Group
	committed, err := Committed(r.client, q.Group)
	if err != nil {
		return s, err
	}
	s.Members, s.MembersErr = Members(r.client, q.Group)
	all, err := r.client.Topics()
	if err != nil {
		return s, err
	}
	there := make(map[string]bool, len(all))
	for _, topic := range all {
		there[topic] = true
	}
	kinds := topicsOf(q, all, committed, s.Members)
	var topics, unseen []string
	for _, topic := range slices.Sorted(maps.Keys(kinds)) {
		if there[topic] {
			topics = append(topics, topic)
		} else {
			unseen = append(unseen, topic)
		}
	}
	logs, err := Logs(r.client, topics...)
	if err != nil {
		return s, err
	}
	hidden, err := s.explain(r.client, unseen)
	if err != nil {
		return s, err
	}
	for _, l := range append(logs, hidden...) {
		s.Partitions = append(s.Partitions, partition(l, kinds[l.Topic], committed, s.Members))
	}
	slices.SortStableFunc(s.Partitions, func(a, b Partition) int { return strings.Compare(a.Topic, b.Topic) })
	return s, nil
}

// explain asks why the client does not know topics: they do not exist, or may not be seen, or came just now.
func (s *State) explain(client sarama.Client, topics []string) (hidden []Log, err error) {
	if len(topics) == 0 {
		return nil, nil
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	described, err := admin.DescribeTopics(topics) // creates none, whatever the client's settings
	if err != nil {
		return nil, err
	}
	for _, t := range described {
		switch {
		case errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition), errors.Is(t.Err, sarama.ErrInvalidTopic):
			s.Missing = append(s.Missing, t.Name)
		case bad(t.Err):
			hidden = append(hidden, Log{Topic: t.Name, Partition: -1, Err: fmt.Errorf("topic %s: %w", t.Name, t.Err)})
		default:
			hidden = append(hidden, Log{Topic: t.Name, Partition: -1, Err: fmt.Errorf("topic %s: %w", t.Name, sarama.ErrUnknownTopicOrPartition)})
		}
	}
	slices.Sort(s.Missing)
	return hidden, nil
}

// partition compares a log with what was committed.
func partition(l Log, kind Kind, committed map[string]map[int32]int64, members []Member) Partition {
	p := Partition{Topic: l.Topic, Partition: l.Partition, Kind: kind, Begin: l.Begin, End: l.End, Next: l.Begin, Err: l.Err}
	p.Reader = readerOf(members, l.Topic, l.Partition)
	if offset, ok := committed[l.Topic][l.Partition]; ok && kind != DeadLetters {
		p.Committed = &offset
	}
	if l.Err != nil {
		p.Begin, p.End, p.Next = 0, 0, 0
		return p
	}
	p.Lag = p.End - p.Begin
	if p.Committed != nil {
		p.Lag = max(p.End-*p.Committed, 0)
		p.Next = max(p.Begin, *p.Committed)
	}
	return p
}

// topicsOf are the topics that a group has offsets on, reads or was said to read, with the retry and dead-letter topics that
// belong to them, and what they are.
func topicsOf(q *Query, all []string, committed map[string]map[int32]int64, members []Member) map[string]Kind {
	topics := make(map[string]Kind)
	for _, topic := range q.Topics {
		topics[topic] = q.kindOf(topic)
	}
	for topic := range committed {
		topics[topic] = q.kindOf(topic)
	}
	for _, m := range members {
		for topic := range m.Assigned {
			topics[topic] = q.kindOf(topic)
		}
	}
	for source := range maps.Clone(topics) {
		letters := q.DeadLetterTopic(source)
		for _, topic := range all {
			switch {
			case topic == letters:
				topics[topic] = DeadLetters
			case IsRetryOf(topic, source, q.Group):
				topics[topic] = q.kindOf(topic)
			}
		}
	}
	return topics
}

// kindOf tells by the names that topics have by default.
func (q *Query) kindOf(topic string) Kind {
	switch {
	case strings.HasSuffix(topic, idem.DeadLetterTopic(q.Group)("")):
		return DeadLetters
	case strings.Contains(topic, idem.RetryTopic("", q.Group, 0)):
		return Retry
	}
	return Source
}

func readerOf(members []Member, topic string, partition int32) string {
	for _, m := range members {
		if slices.Contains(m.Assigned[topic], partition) {
			return m.String()
		}
	}
	return ""
}
