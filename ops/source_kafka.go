package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/bootstrap"
	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/groups"
	"github.com/idem-go/idem/internal/kafkalog"
)

// kafkaSource is the access to Kafka: a given client, or an own one that is opened at the first
// use.
type kafkaSource struct {
	cfg    Config
	slot   chan struct{} // guards the following fields
	client sarama.Client
	own    bool
	reader *groups.Reader
	closed bool
}

func newKafkaSource(cfg Config) *kafkaSource {
	return &kafkaSource{cfg: cfg, slot: make(chan struct{}, 1), client: cfg.Client}
}

// The timeouts of the page's own client, which limit the wait of a person.
const (
	ownDial = 3 * time.Second
	ownRead = 10 * time.Second
)

// get returns the client, and opens it at the first call. The end of ctx does not interrupt an
// opening, which ends with the timeouts of the client: the next call may need the client too.
func (k *kafkaSource) get(ctx context.Context) (sarama.Client, *groups.Reader, error) {
	select {
	case k.slot <- struct{}{}:
		defer func() { <-k.slot }()
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	if k.closed {
		return nil, nil, errClosed
	}
	if k.client == nil {
		client, err := openClient(k.cfg.Consumer)
		if err != nil {
			return nil, nil, err
		}
		k.client, k.own = client, true
	}
	if k.reader == nil {
		k.reader = groups.NewReader(k.client)
	}
	return k.client, k.reader, nil
}

func openClient(cfg consumer.Config) (sarama.Client, error) {
	sc, err := consumer.DefaultSaramaConfig(cfg)
	if err != nil {
		return nil, err
	}
	sc.ClientID += "-ops"
	sc.Net.DialTimeout, sc.Net.ReadTimeout = min(sc.Net.DialTimeout, ownDial), min(
		sc.Net.ReadTimeout, ownRead,
	)
	sc.Metadata.Retry.Max = min(sc.Metadata.Retry.Max, 1)
	return bootstrap.Client(context.Background(), cfg.Brokers, sc)
}

// closeOwn ends the running work, and closes the client if the page has opened it.
func (k *kafkaSource) closeOwn() error {
	k.slot <- struct{}{}
	defer func() { <-k.slot }()
	k.closed = true
	if k.reader != nil {
		k.reader.Close()
	}
	if !k.own {
		return nil
	}
	return k.client.Close()
}

// groupSource asks the brokers about the group.
type groupSource struct {
	kafka *kafkaSource
	cfg   Config
}

func (g *groupSource) read(ctx context.Context) (s groupState, err error) {
	_, reader, err := g.kafka.get(ctx)
	if err != nil {
		return s, err
	}
	c := &g.cfg.Consumer
	state, err := reader.Lag(
		ctx, groups.Query{Group: c.Group, Topics: c.Topics, DeadLetterTopic: c.DeadLetterTopic},
	)
	if err != nil {
		return s, err
	}
	return stateOf(&state), nil
}

// stateOf keeps numbers that are not known apart from zeros.
func stateOf(state *groups.State) (s groupState) {
	if state.MembersErr != nil {
		s.MembersProblem = clip(idem.ErrorText(state.MembersErr), maxErrorText)
		s.Notes = append(s.Notes, "The members are not known: "+s.MembersProblem)
	}
	for _, topic := range state.Missing {
		s.Notes = append(
			s.Notes,
			"There is no topic "+topic+", on which the group has offsets or which it is to read.",
		)
	}
	for _, m := range state.Members {
		s.Members = append(s.Members, memberOf(m))
	}
	letters := map[string]deadLetterTopic{}
	for i := range state.Partitions {
		p := &state.Partitions[i]
		if p.Kind != groups.DeadLetters {
			s.Partitions = append(s.Partitions, partitionOf(p))
			continue
		}
		t := letters[p.Topic]
		t.Topic = p.Topic
		if p.Err != nil {
			t.Problem = cmp.Or(t.Problem, clip(idem.ErrorText(p.Err), maxErrorText))
		} else {
			t.Records, t.Ends = t.Records+p.Lag, t.Ends+p.End
		}
		letters[p.Topic] = t
	}
	for _, topic := range slices.Sorted(maps.Keys(letters)) {
		s.DeadLetters = append(s.DeadLetters, letters[topic])
	}
	return s
}

func memberOf(m groups.Member) groupMember {
	one := groupMember{Client: m.Client, Instance: m.Instance}
	for _, topic := range slices.Sorted(maps.Keys(m.Assigned)) {
		one.Assigned = append(
			one.Assigned, memberTopic{topic, slices.Sorted(slices.Values(m.Assigned[topic]))},
		)
	}
	return one
}

func partitionOf(p *groups.Partition) groupPartition {
	one := groupPartition{
		Topic: p.Topic, Partition: p.Partition, Retry: p.Kind == groups.Retry,
		Committed: p.Committed, Begin: p.Begin, End: p.End, Lag: p.Lag,
		Member: p.Reader, Beyond: p.Beyond,
	}
	if p.Err != nil {
		one.Problem, one.Lag = clip(idem.ErrorText(p.Err), maxErrorText), 0
	}
	return one
}

// deadLetterSource is the dead letters of the group.
type deadLetterSource struct {
	kafka  *kafkaSource
	stores []deadletters.NamedStore
	cfg    Config
}

// topics returns the existing topics with default names, and those of the configuration.
func (l *deadLetterSource) topics(ctx context.Context) ([]string, error) {
	client, _, err := l.kafka.get(ctx)
	if err != nil {
		return nil, err
	}
	c := &l.cfg.Consumer
	found, err := deadletters.TopicsOf(client, c.Group)
	if err != nil {
		return nil, err
	}
	if c.DeadLetterTopic == nil {
		return found, nil
	}
	there, err := kafkalog.Topics(client)
	for _, source := range c.Topics {
		if topic := c.DeadLetterTopic(source); slices.Contains(there, topic) &&
			!slices.Contains(found, topic) {
			found = append(found, topic)
		}
	}
	slices.Sort(found)
	return found, err
}

// source returns the topic of the original records of a dead-letter topic. Empty: any topic.
func (l *deadLetterSource) source(topic string) string {
	c := &l.cfg.Consumer
	name := c.DeadLetterTopic
	if name == nil {
		name = deadletter.Topic(c.Group)
	}
	source := ""
	for _, t := range c.Topics {
		if name(t) != topic {
			continue
		}
		if source != "" { // several topics have their dead letters here
			return ""
		}
		source = t
	}
	if t, ok := strings.CutSuffix(topic, deadletter.Topic(c.Group)("")); ok && source == "" &&
		t != "" {
		return t
	}
	return source
}

func (l *deadLetterSource) open(
	ctx context.Context, topic, scope string, ask bool,
) (*deadletters.Queue, error) {
	client, _, err := l.kafka.get(ctx)
	if err != nil {
		return nil, err
	}
	cfg := deadletters.Config{
		Client: client, Topic: topic, Source: l.source(topic), Group: l.cfg.Consumer.Group,
		Scope: scope,
	}
	if ask {
		cfg.Stores = l.stores
	}
	return deadletters.Open(cfg)
}

func (l *deadLetterSource) newest(
	ctx context.Context, f deadLetterFilter, limit int,
) (p deadLetterPage, err error) {
	q, err := l.open(ctx, f.Topic, "", false)
	if err != nil {
		return p, err
	}
	chosen := deadletters.Filter{ID: f.ID, Since: f.Since, Until: f.Until}
	if f.Type != "" {
		chosen.Types = []string{f.Type}
	}
	if f.Class != "" {
		chosen.Classes = []string{f.Class}
	}
	if after := f.After; after != nil {
		chosen.After = &deadletters.Cursor{
			Failed: after.Failed,
			Place:  deadletters.Place{Partition: after.Partition, Offset: after.Offset},
		}
	}
	page, err := q.Newest(ctx, chosen, limit)
	p.Size, p.Scanned, p.More = q.Size(), page.Scanned, page.More
	for i := range page.Rows {
		p.Rows = append(p.Rows, rowOf(&page.Rows[i]))
	}
	return p, err
}

// actionSkip is the action of a dead letter that a replay leaves alone.
var actionSkip = deadletters.ActSkip.String()

func rowOf(r *deadletters.Row) deadLetterRow {
	at, _ := deadletters.ParsePlace(r.Record) // written by the same package
	// A header may have a megabyte, and a list has many rows.
	short := func(s string) string { return strings.Clone(clip(s, maxField)) }
	return deadLetterRow{
		deadLetterPlace: deadLetterPlace{
			r.Topic, at.Partition, at.Offset,
		}, Failed: r.Failed.Time, Class: idem.Class(short(string(r.Class))), Tenant: short(r.Tenant),
		Scope: short(
			r.Scope,
		), Type: short(r.Type), ID: short(r.ID), Origin: r.Origin, Attempts: r.Attempts, Generation: r.Generation,
		Error: short(
			strings.TrimPrefix(r.Error, string(r.Class)+": "),
		), Omitted: r.Omitted, Problem: short(r.Problem), Verdict: string(r.Verdict), Action: r.Action, Note: short(r.Note),
	}
}

func (l *deadLetterSource) get(
	ctx context.Context, at deadLetterPlace,
) (d deadLetterDetail, err error) {
	q, err := l.open(ctx, at.Topic, "", false)
	if err != nil {
		return d, err
	}
	found, err := q.Get(ctx, deadletters.Place{Partition: at.Partition, Offset: at.Offset})
	if err != nil {
		return d, err
	}
	row := found.Row()
	d = deadLetterDetail{
		deadLetterRow: rowOf(&row), Key: found.Record.Key, Value: found.Record.Value,
		Headers: found.Record.Headers,
	}
	if found.DeadLetter != nil {
		d.First = found.DeadLetter.FirstFailure
	}
	return d, nil
}

// chosen names dead letters.
func chosen(at []deadLetterPlace, list bool) deadletters.Filter {
	f := deadletters.Filter{Twins: list}
	for _, p := range at {
		f.At = append(f.At, deadletters.Place{Partition: p.Partition, Offset: p.Offset})
	}
	return f
}

// plan asks for one scope after the other: a dead letter is judged in that of the event.
func (l *deadLetterSource) plan(
	ctx context.Context, topic string, at []deadLetterPlace, d decisions,
) (all deadLetterPlan, err error) {
	if len(l.stores) == 0 {
		return all, errors.New(
			"the page knows no store that could be asked: give ops.Config.Consumer.Store",
		)
	}
	byScope, err := l.byScope(ctx, topic, at)
	if err != nil {
		return all, err
	}
	for _, scope := range slices.Sorted(maps.Keys(byScope)) {
		q, err := l.open(ctx, topic, scope, true)
		if err != nil {
			return all, err
		}
		p, err := q.Plan(
			ctx, chosen(byScope[scope], d.List),
			deadletters.Decisions{Again: d.Again, Forgotten: d.Forgotten}, 0,
		)
		if err != nil {
			return all, err
		}
		all.Missing = append(all.Missing, p.Missing...)
		for i := range p.Rows {
			all.Rows = append(all.Rows, rowOf(&p.Rows[i]))
		}
	}
	slices.Sort(all.Missing)
	all.Missing = slices.Compact(all.Missing)
	slices.SortFunc(all.Rows, func(a, b deadLetterRow) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return all, nil
}

// byScope sorts dead letters by the scope of their events. Those without a known scope are judged
// in the scope of the group.
func (l *deadLetterSource) byScope(
	ctx context.Context, topic string, at []deadLetterPlace,
) (map[string][]deadLetterPlace, error) {
	first := l.cfg.Consumer.Scope
	if len(l.cfg.Scopes) == 1 {
		return map[string][]deadLetterPlace{first: at}, nil
	}
	q, err := l.open(ctx, topic, "", false)
	if err != nil {
		return nil, err
	}
	scopes := map[deadLetterPlace]string{}
	if _, err := q.List(ctx, chosen(at, false), func(found *deadletters.Found) (bool, error) {
		scope := first
		if found.DeadLetter != nil && slices.Contains(l.cfg.Scopes, found.DeadLetter.Key.Scope) {
			scope = found.DeadLetter.Key.Scope
		}
		scopes[deadLetterPlace{topic, found.Partition, found.Offset}] = scope
		return true, nil
	}); err != nil {
		return nil, err
	}
	all := map[string][]deadLetterPlace{}
	for place, scope := range scopes {
		all[scope] = append(all[scope], place)
	}
	return all, nil
}

func (l *deadLetterSource) replay(
	ctx context.Context, topic string, planned []deadLetterRow, d decisions,
	each func(deadLetterDone),
) error {
	client, _, err := l.kafka.get(ctx)
	if err != nil {
		return err
	}
	at, seen := make([]deadLetterPlace, len(planned)), make(map[deadLetterPlace]*deadLetterRow)
	for i := range planned {
		at[i] = planned[i].deadLetterPlace
		seen[at[i]] = &planned[i]
	}
	byScope, err := l.byScope(ctx, topic, at)
	if err != nil {
		return err
	}
	producer, err := consumer.NewProducer(client)
	if err != nil {
		return fmt.Errorf("the client of the page cannot publish: %w", err)
	}
	defer producer.Close()
	var problems []error
	for _, scope := range slices.Sorted(maps.Keys(byScope)) {
		q, err := l.open(ctx, topic, scope, true)
		if err != nil {
			return errors.Join(append(problems, err)...)
		}
		_, err = q.Replay(ctx, deadletters.Replay{
			Producer: producer, Filter: chosen(byScope[scope], d.List),
			Decisions: deadletters.Decisions{Again: d.Again, Forgotten: d.Forgotten},
			Planned: func(r *deadletters.Row) bool {
				now := rowOf(r)
				before := seen[now.deadLetterPlace]
				return before != nil && now.sameAs(before)
			},
			Each: func(done deadletters.Done) {
				each(deadLetterDone{
					Row: rowOf(&done.Row), Replayed: done.Replayed, Changed: done.Changed,
					Gone: done.Verdict == deadletters.SeenGone, Err: done.Err,
				})
			},
		})
		if err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}
