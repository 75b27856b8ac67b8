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
	"github.com/idem-go/idem/deadletter"
)

// Kind is the role of a topic for a group.
type Kind string

const (
	// Source is a topic that other programs write.
	Source Kind = "source"
	// Retry is a retry topic of the group, with delayed retries of events of a source.
	Retry Kind = "retry"
	// DeadLetters is a dead-letter topic of the group.
	DeadLetters Kind = "dead-letters"
)

// Query names the group and its topics.
type Query struct {
	// Group is the name of the group.
	Group string
	// Topics are included, with their retry and dead-letter topics, even if the group has not
	// committed on them. Optional: topics with committed offsets, and topics that a member reads,
	// are always included.
	Topics []string
	// DeadLetterTopic returns the dead-letter topic of a topic, like Config.DeadLetterTopic of the
	// consumer. Defaults to [deadletter.Topic].
	DeadLetterTopic func(topic string) string
}

// State is the progress of a group.
type State struct {
	// Group is the name of the group.
	Group string
	// Members are the current members, sorted.
	Members []Member
	// MembersErr is set if the members are not known. The other fields are valid all the same.
	MembersErr error
	// Partitions has all partitions of all topics, in the order of names and numbers.
	Partitions []Partition
	// Missing has the topics that do not exist although the group has offsets on them or the query
	// names them; sorted.
	Missing []string
}

// Partition is the progress of a group on a partition.
type Partition struct {
	// Topic, Partition and Kind identify the partition. Partition is -1 if the topic cannot be
	// read; Err then has the reason. A dead-letter topic that the user may not describe is among
	// them, whether it exists or not.
	Topic     string
	Partition int32
	Kind      Kind
	// Committed is the offset of the next record to be consumed. Nil means that no offset was
	// committed yet. It is always nil for dead-letter topics, which no group consumes.
	Committed *int64
	// Begin is the first offset of the log, and End the offset that the next record will have.
	Begin, End int64
	// Next is the first existing offset that is not consumed: the place of the oldest waiting
	// record.
	Next int64
	// Lag is a number of offsets. Transaction markers and compacted records count as well. For a
	// dead-letter topic, without a committed offset, and if Beyond is set, Lag covers the whole log.
	Lag int64
	// Beyond is set if Committed is greater than End: the topic was made anew, or its log was cut.
	// The settings of the group decide where it goes on, so Lag is only an upper bound.
	Beyond bool
	// Reader is the member that reads the partition. It is empty if no member does, or if the
	// members are not known.
	Reader string
	// Err is set if Begin, End, Next, Lag and Beyond are not known, for example because the
	// partition has no leader.
	Err error
}

// fresh is the maximum age of the list of topics. A new topic appears within this time.
const fresh = 10 * time.Second

// Reader reports on groups repeatedly, over one client. One report takes two requests to each
// broker and two to the coordinator, however many partitions there are. From time to time the
// Reader refreshes the list of topics, so that new topics appear.
//
// A sarama client cannot be interrupted. After the end of its context a request goes on until the
// client's time-outs end it. The next request waits for that end, or for the end of its own
// context. So at most one request runs at a time. A Reader is safe for concurrent use.
type Reader struct {
	client  sarama.Client
	slot    chan struct{} // held by the running request
	running sync.WaitGroup
	listed  time.Time // when the topics were refreshed; guarded by slot
	// absent are dead-letter topics that did not exist when they were asked for, since listed;
	// guarded by slot.
	absent map[string]bool
}

// NewReader returns a Reader. The client belongs to the caller and must stay open until Close of
// the Reader has returned. The Reader requests existing topics only, so that no request creates a
// topic (K-36).
func NewReader(client sarama.Client) *Reader {
	return &Reader{client: client, slot: make(chan struct{}, 1)}
}

// Close waits for abandoned requests, at most for the client's time-outs. It leaves the client
// open.
func (r *Reader) Close() { r.running.Wait() }

// Lag returns the state of a group. After an error the state is not known: the coordinator did not
// answer, or refused.
func (r *Reader) Lag(ctx context.Context, q Query) (State, error) {
	return bounded(ctx, r, func() (State, error) { return r.lag(ctx, q) })
}

// Groups returns the names of all groups of the cluster, sorted.
func (r *Reader) Groups(ctx context.Context) ([]string, error) {
	return bounded(ctx, r, func() ([]string, error) { return List(r.client) })
}

// bounded runs ask, and abandons it when ctx ends.
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

// lag asks, and asks once more after a refresh if leaders or coordinators may have moved.
func (r *Reader) lag(ctx context.Context, q Query) (State, error) {
	if q.DeadLetterTopic == nil {
		q.DeadLetterTopic = deadletter.Topic(q.Group)
	}
	if time.Since(r.listed) > fresh {
		r.refresh()
	}
	s, err := r.ask(&q)
	if err == nil && !s.stale() || ctx.Err() != nil {
		return s, err
	}
	r.refresh()
	_ = r.client.RefreshCoordinator(q.Group) // if it fails, the next request returns the error
	return r.ask(&q)
}

// refresh asks for all topics. Its error is ignored: the client keeps the answer even if one topic
// has no leader, and if no broker answers, the next request fails.
func (r *Reader) refresh() {
	_ = r.client.RefreshMetadata()
	r.listed, r.absent = time.Now(), make(map[string]bool)
}

// stale reports whether another request at once may help. It does not help against a missing right
// or leader.
func (s *State) stale() bool {
	if s.MembersErr != nil && !errors.Is(s.MembersErr, sarama.ErrGroupAuthorizationFailed) &&
		!errors.Is(s.MembersErr, sarama.ErrTopicAuthorizationFailed) {
		return true
	}
	return slices.ContainsFunc(s.Partitions, func(p Partition) bool {
		return p.Err != nil && !errors.Is(p.Err, sarama.ErrTopicAuthorizationFailed) &&
			!errors.Is(p.Err, sarama.ErrLeaderNotAvailable)
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
	unlisted := q.unlisted(kinds, r.absent)
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
	hidden, missing, err := explain(r.client, unseen)
	if err != nil {
		return s, err
	}
	s.Missing = missing
	letters, missing, err := explain(r.client, unlisted)
	if err != nil { // the rest of the report is known
		letters = unknownLogs(unlisted, err)
	}
	for _, topic := range missing { // it need not exist
		r.absent[topic] = true
	}
	for _, l := range letters {
		kinds[l.Topic] = DeadLetters
	}
	hidden = append(hidden, letters...)
	for _, l := range append(logs, hidden...) {
		s.Partitions = append(s.Partitions, partition(l, kinds[l.Topic], committed, s.Members))
	}
	slices.SortStableFunc(s.Partitions,
		func(a, b Partition) int { return strings.Compare(a.Topic, b.Topic) })
	return s, nil
}

// explain finds out why the client does not know topics: they do not exist, are hidden, or are new.
// missing is sorted.
func explain(client sarama.Client, topics []string) (hidden []Log, missing []string, err error) {
	if len(topics) == 0 {
		return nil, nil, nil
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, nil, err
	}
	// creates no topic under any settings of the client
	described, err := admin.DescribeTopics(topics)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range described {
		switch {
		case errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition),
			errors.Is(t.Err, sarama.ErrInvalidTopic):
			missing = append(missing, t.Name)
		case errors.Is(t.Err, sarama.ErrTopicAuthorizationFailed):
			hidden = append(hidden, Log{
				Topic: t.Name, Partition: -1,
				Err: fmt.Errorf("topic %s: %w (grant Describe on the topic)", t.Name, t.Err),
			})
		case bad(t.Err):
			hidden = append(hidden,
				Log{Topic: t.Name, Partition: -1, Err: fmt.Errorf("topic %s: %w", t.Name, t.Err)})
		default:
			hidden = append(hidden, Log{
				Topic: t.Name, Partition: -1,
				Err: fmt.Errorf("topic %s: %w", t.Name, sarama.ErrUnknownTopicOrPartition),
			})
		}
	}
	slices.Sort(missing)
	return hidden, missing, nil
}

// unknownLogs are the logs of topics about which the brokers have not answered.
func unknownLogs(topics []string, err error) (logs []Log) {
	for _, topic := range topics {
		logs = append(logs, Log{
			Topic: topic, Partition: -1, Err: fmt.Errorf("topic %s: %w", topic, err),
		})
	}
	return logs
}

// partition compares a log with the committed offsets.
func partition(l Log, kind Kind, committed map[string]map[int32]int64, members []Member) Partition {
	p := Partition{
		Topic: l.Topic, Partition: l.Partition, Kind: kind, Begin: l.Begin, End: l.End,
		Next: l.Begin, Err: l.Err,
	}
	p.Reader = readerOf(members, l.Topic, l.Partition)
	if offset, ok := committed[l.Topic][l.Partition]; ok && kind != DeadLetters {
		p.Committed = &offset
	}
	if l.Err != nil {
		p.Begin, p.End, p.Next = 0, 0, 0
		return p
	}
	p.Lag = p.End - p.Begin
	switch {
	case p.Committed == nil:
	case *p.Committed > p.End:
		p.Beyond = true
	default:
		p.Lag = p.End - *p.Committed
		p.Next = max(p.Begin, *p.Committed)
	}
	return p
}

// topicsOf returns the kinds of the topics that a group has offsets on, reads, or has in the query,
// with their retry and dead-letter topics.
func topicsOf(
	q *Query, all []string, committed map[string]map[int32]int64, members []Member,
) map[string]Kind {
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

// unlisted returns the dead-letter topics of source topics that are not in kinds and are not known to
// be absent, sorted. The list of topics leaves out those that the user may not describe, and
// without a topic the group would seem to have no dead letters.
func (q *Query) unlisted(kinds map[string]Kind, absent map[string]bool) []string {
	names := make(map[string]bool)
	for topic, kind := range kinds {
		letters := q.DeadLetterTopic(topic)
		if _, known := kinds[letters]; kind == Source && letters != "" && !known && !absent[letters] {
			names[letters] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// kindOf derives the kind from the default names of topics.
func (q *Query) kindOf(topic string) Kind {
	switch {
	case strings.HasSuffix(topic, deadletter.Topic(q.Group)("")):
		return DeadLetters
	case strings.Contains(topic, deadletter.RetryTopic("", q.Group, 0)):
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
