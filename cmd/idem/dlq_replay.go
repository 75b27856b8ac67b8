package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/spf13/cobra"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
)

// replayFlags bound a replay.
type replayFlags struct {
	rate  float64
	limit int
}

func newDLQReplay(a *app) *cobra.Command {
	var o dlqFlags
	var chosen filterFlags
	var bounds replayFlags
	var decided decisions
	cmd := &cobra.Command{
		Use: "replay", Short: "Let the events of dead letters run again", Args: cobra.NoArgs,
		Long: "Reopens each event in the ledger, then publishes a copy of its letter to the group's own retry topic,\n" +
			"<topic>.<group>.retry, which no other group reads. May be interrupted and repeated: an event that was reopened keeps its\n" +
			"position until a copy is taken up, and the gate lets one copy of a position run. What was handled is skipped.\n" +
			"The letters stay in their topic: see purge.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := chosen.filter()
			if err != nil {
				return err
			}
			if bounds.rate < 0 {
				return usage("--rate is negative")
			}
			d, err := a.openDLQ(cmd.Context(), &o, true)
			if err != nil {
				return err
			}
			d.decisions = decided
			producer, err := consumer.NewProducer(d.client)
			if err != nil {
				return err
			}
			defer producer.Close()
			return d.replay(cmd.Context(), producer, f, bounds)
		},
	}
	o.add(cmd.Flags())
	chosen.add(cmd.Flags())
	cmd.Flags().Float64Var(&bounds.rate, "rate", 0, "at most so many a second; 0: no limit")
	cmd.Flags().IntVar(&bounds.limit, "limit", 0, "replay at most so many; 0: no limit")
	decided.add(cmd.Flags())
	return cmd
}

// replayed is what a replay did.
type replayed struct {
	Topic     string          `json:"topic"`
	Group     string          `json:"group"`
	Scanned   int             `json:"scanned"`
	Replayed  int             `json:"replayed"` // published, or reopened in their queues
	Verdicts  map[verdict]int `json:"verdicts"` // of all letters that were chosen
	Attention []attention     `json:"attention"`
	Outcome   string          `json:"outcome"` // done, interrupted or failed
}

// attention is a letter that was not replayed and will not be until somebody does something about it.
type attention struct {
	Record  string  `json:"record"`
	Verdict verdict `json:"verdict"`
	Note    string  `json:"note"`
}

// maxAttention bounds what is printed; all are counted.
const maxAttention = 100

// replayer replays letters one after the other.
type replayer struct {
	*deadLetters
	producer idem.Producer
	survey   *survey
	bounds   replayFlags
	topics   map[string]error // retry topics that were looked for
	began    time.Time
	missing  error // the last retry topic that is not there
	result   replayed
}

func (d *deadLetters) replay(ctx context.Context, producer idem.Producer, f letterFilter, bounds replayFlags) (err error) {
	s, err := d.survey(ctx, f)
	if err != nil {
		return err
	}
	if s.matched == 0 {
		d.app.note("%s: %d records, no letter matches", d.topic, s.scanned)
		return (&replayer{deadLetters: d, result: replayed{
			Topic: d.topic, Group: d.group, Scanned: s.scanned, Verdicts: map[verdict]int{}, Attention: []attention{}, Outcome: "done",
		}}).report()
	}
	d.warnAboutReaders(s)
	most := ""
	if bounds.limit > 0 {
		most = fmt.Sprintf(" At most %d are replayed.", bounds.limit)
	}
	if err := d.app.confirmed("dlq replay", map[string]any{"topic": d.topic, "group": d.group}, "%s: of %d records, %d letters match. Those whose events are not settled are copied to %s.%s",
		d.topic, s.scanned, s.matched, strings.Join(s.retryTopics(d.group), ", "), most); err != nil {
		return err
	}
	r := &replayer{
		deadLetters: d, producer: producer, survey: s, bounds: bounds, topics: make(map[string]error), began: time.Now(),
		result: replayed{Topic: d.topic, Group: d.group, Verdicts: make(map[verdict]int), Attention: []attention{}},
	}
	r.result.Scanned, err = scanSpans(ctx, d.client, f.narrow(d.spans), func(l *foundLetter) (bool, error) {
		if !f.match(l) {
			return true, nil
		}
		if bounds.limit > 0 && r.result.Replayed >= bounds.limit {
			return false, nil
		}
		return true, r.one(ctx, l)
	})
	if err == nil {
		err = r.missing
	}
	r.result.Outcome = outcomeOf(ctx, err)
	if r.result.Outcome == "interrupted" {
		err = errors.New("interrupted: run it again to go on")
	}
	d.app.audit("dlq replay", map[string]any{
		"topic": d.topic, "group": d.group, "outcome": r.result.Outcome, "replayed": r.result.Replayed, "verdicts": r.result.Verdicts,
	})
	return errors.Join(err, r.report())
}

// outcomeOf is the word for an audit line.
func outcomeOf(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "done"
	case ctx.Err() != nil:
		return "interrupted"
	default:
		return "failed"
	}
}

// one replays a letter, if its event is open for that.
func (r *replayer) one(ctx context.Context, l *foundLetter) error {
	for try := 1; ; try++ {
		all, err := r.judge(ctx, r.survey, l)
		if err != nil {
			return err
		}
		j := &all[0]
		if j.action == actSkip {
			r.skipped(j)
			return nil
		}
		if try == 1 {
			if err := r.pace(ctx); err != nil {
				return err
			}
			continue // it may have waited long
		}
		err = r.do(ctx, j)
		switch {
		case errors.Is(err, dedup.ErrNotDead) && try < 5: // somebody was quicker
			continue
		case errors.Is(err, errNoTopic): // others go on: the letter may be anybody's (G-03)
			j.verdict, j.note, r.missing = seenNoTopic, err.Error(), err
			r.skipped(j)
			return nil
		case errors.Is(err, idem.ErrTooLarge):
			j.verdict, j.note = seenTooLarge, fmt.Sprintf("raise max.message.bytes of %s and replay again: %v", idem.RetryTopic(l.letter.Message.Topic, r.group, 0), err)
			r.skipped(j)
			return nil
		case err != nil:
			return fmt.Errorf("letter %s: %w", l.place, err)
		}
		r.result.Verdicts[j.verdict]++
		r.result.Replayed++
		return nil
	}
}

// pace keeps to the rate.
func (r *replayer) pace(ctx context.Context) error {
	if r.bounds.rate <= 0 {
		return ctx.Err()
	}
	due := r.began.Add(time.Duration(float64(r.result.Replayed) / r.bounds.rate * float64(time.Second)))
	return wait(ctx, time.Until(due))
}

func (r *replayer) skipped(j *judged) {
	r.result.Verdicts[j.verdict]++
	switch j.verdict {
	case seenOther, seenOmitted, seenOften, seenTooOld, seenForeign, seenGroup, seenScope, seenStray, seenNoTopic, seenTooLarge, seenConflict:
		if len(r.result.Attention) < maxAttention {
			r.result.Attention = append(r.result.Attention, attention{j.place.String(), j.verdict, j.note})
		}
	default: // as it should be
	}
}

// stepTimeout bounds what is done for one letter. What was begun is finished, whoever interrupts.
const stepTimeout = time.Minute

// do is the replay of one letter: first the ledger, then Kafka, then what says that it was done. Whoever dies in between has
// left the event open at a position that the next replay is given again.
func (r *replayer) do(ctx context.Context, j *judged) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	if j.action == actUnblock {
		return r.unblock(ctx, j)
	}
	if err := r.haveTopic(idem.RetryTopic(j.letter.Message.Topic, r.group, 0)); err != nil {
		return err
	}
	position, err := r.position(ctx, j)
	if err != nil {
		return err
	}
	m, err := j.letter.Redrive(position)
	if err != nil {
		return err
	}
	if err := r.producer.Produce(ctx, m); err != nil {
		return fmt.Errorf("publish to %s: %w", m.Topic, err)
	}
	if j.action == actRecord {
		return r.record(ctx, j)
	}
	return nil
}

// position is the one that the copy must have.
func (r *replayer) position(ctx context.Context, j *judged) (dedup.Position, error) {
	switch j.action {
	case actReopen:
		return r.reopen(ctx, j)
	case actForce:
		return dedup.Position{Generation: j.letter.Generation + 1}, nil
	default:
		return dedup.Position{}, nil
	}
}

func (r *replayer) reopen(ctx context.Context, j *judged) (dedup.Position, error) {
	reopener, ok := j.ledger.store.(dedup.Reopener)
	if !ok {
		return dedup.Position{}, fmt.Errorf("%s cannot reopen events", j.ledger.name)
	}
	return reopener.Reopen(ctx, j.letter.Key)
}

// unblock lets the owner of the partition take the event up again, in the order of its Kafka key. That it was moved
// already is as good.
func (r *replayer) unblock(ctx context.Context, j *judged) error {
	position, err := r.reopen(ctx, j)
	if err != nil {
		return err
	}
	e := j.parked
	e.Position, e.Blocked, e.Wait = position, false, 0
	if _, err := j.ledger.store.(dedup.Parker).Postpone(ctx, j.lot, e); err != nil {
		return fmt.Errorf("%s: %w", j.ledger.name, err)
	}
	return nil
}

// letterMemory is how long it is remembered that a letter without identity was replayed: longer than letters are kept.
const letterMemory = 5 * 365 * 24 * time.Hour

// record remembers that a letter without identity was published (T-10).
func (r *replayer) record(ctx context.Context, j *judged) error {
	m := j.letter.Message
	_, err := r.ledgers[0].operator().Import(ctx, []dedup.Imported{{
		Key: letterKey(r.scope, j.letter), Retention: letterMemory,
		Origin: dedup.Origin{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: m.Time},
	}})
	if err != nil {
		return fmt.Errorf("%s: %w", r.ledgers[0].name, err)
	}
	return nil
}

// haveTopic refuses to publish to a topic that does not exist, before anything was changed for it.
func (r *replayer) haveTopic(topic string) error {
	err, looked := r.topics[topic]
	if !looked {
		if _, err = r.client.Partitions(topic); errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			err = found("%w", noTopic(topic))
		}
		r.topics[topic] = err
	}
	return err
}

var errNoTopic = errors.New("there is no topic")

func noTopic(topic string) error {
	return fmt.Errorf("%w %s for copies of dead letters: create it (kafka-topics.sh --create --topic %s --partitions N, "+
		"with as many partitions as the source topic), or let the consumer create it", errNoTopic, topic, topic)
}

// warnAboutReaders says if copies would have nowhere to go, or nobody to read them.
func (d *deadLetters) warnAboutReaders(s *survey) {
	topics := s.retryTopics(d.group)
	members, err := membersOf(d.client, d.group)
	switch {
	case err != nil:
		d.app.note("warning: not known whether group %s reads its retry topics: %v", d.group, err)
	case len(members) == 0:
		d.app.note("warning: group %s has no members now: copies wait until it runs", d.group)
	}
	for _, topic := range topics {
		_, err := d.client.Partitions(topic)
		switch {
		case errors.Is(err, sarama.ErrUnknownTopicOrPartition):
			d.app.note("warning: %v", noTopic(topic))
		case len(members) > 0 && !slices.ContainsFunc(members, func(m member) bool { return len(m.assigned[topic]) > 0 }):
			d.app.note("warning: no member of group %s reads %s: copies wait there until one does", d.group, topic)
		}
	}
}

// report prints the result.
func (r *replayer) report() error {
	p := &r.result
	rows := [][]string{{"scanned", fmt.Sprint(p.Scanned)}, {"replayed", fmt.Sprint(p.Replayed)}}
	for _, v := range slices.Sorted(maps.Keys(p.Verdicts)) {
		rows = append(rows, []string{"  " + string(v), fmt.Sprint(p.Verdicts[v])})
	}
	for _, at := range p.Attention {
		rows = append(rows, []string{"  " + at.Record, plain(string(at.Verdict) + ": " + at.Note)})
	}
	return r.app.show(p, []string{p.Outcome, p.Topic}, rows)
}

func countsText(counts map[verdict]int) string {
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[v], v))
	}
	return strings.Join(parts, ", ")
}
