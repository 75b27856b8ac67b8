package deadletters

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/kafkalog"
)

// Replay chooses dead letters to replay.
type Replay struct {
	// Producer publishes the copies. It returns after their acknowledgement.
	Producer idem.Producer
	// Filter chooses the dead letters.
	Filter    Filter
	Decisions Decisions
	// Rate limits the replays per second, Limit the replays in all. Zero or less: no limit.
	Rate  float64
	Limit int
	// Survey is the result of [Queue.Survey] for the same filter and the same lines. If Survey is
	// nil, Replay makes one.
	Survey *Survey
	// Exported are the lines of an exported file, with values that may be edited. They need a
	// filter that names their records. Empty: dead letters are replayed as they are.
	Exported []Exported
	// Planned, if not nil, reports whether a dead letter with its present verdict and action is the
	// one that a person has seen in a plan. Replay asks after each answer of the stores, so also
	// right before it acts. Dead letters that are not planned are left alone, see [Done].Changed.
	Planned func(*Row) bool
	// DryRun changes neither store nor topic, and counts the replays that would be done.
	DryRun bool
	// Each, if not nil, is called with the result for each dead letter, one after the other.
	Each func(Done)
	// Audit, if not nil, is called once at the end with the fields for the audit log: topic, group,
	// outcome, replayed and verdicts. Audit is also called after an error or an interruption, but
	// not if the survey failed.
	Audit func(fields map[string]any)
}

// Done is the result for one dead letter.
type Done struct {
	// Row has the verdict by which it was replayed or left alone.
	Row
	// Replayed reports that the event was published, or reopened in its queue.
	Replayed bool
	// Changed reports that the dead letter was left alone because of [Replay].Planned.
	Changed bool
	// Edit has the hashes of an edited value, also of one that was refused. Nil: the value is that
	// of the dead letter, or cannot be read.
	Edit *Edit
	// Err ended the replay at this dead letter. The copy may have been published nevertheless. The
	// next replay finishes the rest.
	Err error
}

// Result is the result of a replay.
type Result struct {
	DryRun    bool            `json:"dry_run,omitempty"` // nothing was replayed
	Topic     string          `json:"topic"`
	Group     string          `json:"group"`
	Scanned   int             `json:"scanned"`
	Replayed  int             `json:"replayed"` // published, or reopened in their queues
	Verdicts  map[Verdict]int `json:"verdicts"` // of all dead letters that were chosen
	Attention []Attention     `json:"attention"`
	Outcome   string          `json:"outcome"` // of [OutcomeOf]
}

// Attention is a dead letter that was not replayed and needs the decision of a person.
type Attention struct {
	Record  string  `json:"record"`
	Verdict Verdict `json:"verdict"`
	Note    string  `json:"note"`
}

// maxAttention limits the listed ones; all are counted.
const maxAttention = 100

// NoResult is the result of a replay that finds no dead letter by its survey. Places of the filter
// without a record are in the result.
func (q *Queue) NoResult(s *Survey) Result {
	r := &replayer{q: q, what: Replay{Survey: s}, result: q.emptyResult()}
	r.result.Scanned = s.Scanned
	r.reportGone()
	return r.result
}

func (q *Queue) emptyResult() Result {
	return Result{
		Topic: q.Topic, Group: q.Group, Outcome: OutcomeDone,
		Verdicts: map[Verdict]int{}, Attention: []Attention{},
	}
}

// replayer replays dead letters one after the other.
type replayer struct {
	q       *Queue
	what    Replay
	topics  map[string]error // retry topics that were looked for
	began   time.Time
	missing error // the last retry topic that is not there
	large   error // the first copy that is too large
	result  Result
	lines   map[Place]*Exported // that were not met yet; nil without a file
	edit    *Edit               // of the present dead letter
}

// Replay reopens the event of each dead letter in its store. Then Replay publishes a copy of the
// dead letter to the group's own retry topic, which no other group reads. Handled events stay
// unchanged.
//
// A replay may be interrupted by ctx or by a crash, and be repeated. A reopened event keeps its
// position until a copy runs, and the store lets one copy of a position run. After the end of ctx,
// Replay finishes the current dead letter in at most a minute.
//
// Two replays at the same time do no harm to events with an identity. Dead letters without identity
// are published by both, so let one run at a time.
//
// An error that matches [ErrNoRetryTopic] means that some retry topics do not exist. An error that
// matches [ErrCopyTooLarge] means that some copies are too large. An error may match both. All
// other dead letters were replayed. Any other error ends the replay at once. With an error the
// result is valid too, and its outcome shows whether ctx ended the replay.
//
// Replay keeps a discard that ends before its last question to the stores about the event. If the
// discard ends between that question and the reopening, Replay may reopen the event.
func (q *Queue) Replay(ctx context.Context, what Replay) (Result, error) {
	r := &replayer{q: q, what: what, topics: make(map[string]error), result: q.emptyResult()}
	r.result.DryRun = what.DryRun
	if r.what.Survey == nil {
		var err error
		if r.what.Survey, err = q.Survey(ctx, r.what.Filter, what.Exported...); err != nil {
			r.result.Outcome = OutcomeOf(ctx, err)
			return r.result, err
		}
	}
	var err error
	if r.lines, err = byPlace(what.Exported); err != nil {
		r.result.Outcome = OutcomeFailed
		return r.result, err
	}
	r.began = time.Now()
	r.result.Scanned, err = q.List(ctx, r.what.Filter, func(l *Found) (bool, error) {
		if r.what.Limit > 0 && r.result.Replayed >= r.what.Limit {
			return false, nil
		}
		return true, r.one(ctx, l)
	})
	if err == nil {
		r.reportGone()
		err = errors.Join(r.missing, r.large)
	}
	r.result.Outcome = OutcomeOf(ctx, err)
	if r.what.Audit != nil {
		r.what.Audit(map[string]any{
			"topic": q.Topic, "group": q.Group, "outcome": r.result.Outcome,
			"replayed": r.result.Replayed, "verdicts": r.result.Verdicts,
		})
	}
	return r.result, err
}

// The outcomes of [OutcomeOf].
const (
	OutcomeDone        = "done"
	OutcomeInterrupted = "interrupted"
	OutcomeFailed      = "failed"
)

// OutcomeOf returns "done" without an error, "interrupted" if ctx has ended, and "failed"
// otherwise.
func OutcomeOf(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return OutcomeDone
	case ctx.Err() != nil:
		return OutcomeInterrupted
	default:
		return OutcomeFailed
	}
}

// one replays a dead letter, if its event is open for that.
func (r *replayer) one(ctx context.Context, l *Found) error {
	r.edit = nil
	for try := 1; ; try++ {
		all, err := r.q.Judge(ctx, r.what.Survey, r.what.Decisions, l)
		switch {
		case err != nil && ctx.Err() != nil: // this dead letter was not begun
			return err
		case err != nil:
			return r.fail(Judged{Found: l}, err)
		}
		j := &all[0]
		if err := r.applyLine(j); err != nil {
			return r.fail(*j, err)
		}
		if r.changed(j) {
			return nil
		}
		if j.Action == ActSkip {
			r.skipped(j)
			return nil
		}
		if try == 1 {
			if err := r.pace(ctx); err != nil {
				return err
			}
			r.lookForTopic(j)
			continue // it may have waited long
		}
		err = r.do(ctx, j)
		switch {
		case errors.Is(err, dedup.ErrNotDead) && try < 5: // another replay was faster
			continue
		case errors.Is(err, ErrNoRetryTopic): // the topic name may be forged: continue (G-03)
			j.Verdict, j.Note, r.missing = SeenNoTopic, err.Error(), err
			r.skipped(j)
			return nil
		case errors.Is(err, idem.ErrTooLarge):
			r.tooLarge(j, err)
			return nil
		case err != nil:
			return r.fail(*j, fmt.Errorf("dead letter %s: %w", l.Place, err))
		}
		r.result.Verdicts[j.Verdict]++
		r.result.Replayed++
		r.report(Done{Row: j.Row(), Replayed: true})
		delete(r.lines, j.Place)
		return nil
	}
}

// changed leaves a dead letter alone that is another one than a person has seen, or has another
// verdict or action.
func (r *replayer) changed(j *Judged) bool {
	row := j.Row()
	if r.what.Planned == nil || r.what.Planned(&row) {
		return false
	}
	r.result.Verdicts[j.Verdict]++
	r.report(Done{Row: row, Changed: true})
	return true
}

// tooLarge leaves a dead letter alone whose copy is too large.
func (r *replayer) tooLarge(j *Judged, err error) {
	j.Verdict, j.Note = SeenTooLarge, fmt.Sprintf(
		"raise max.message.bytes of %s and replay again: %v", r.retryTopic(j), err,
	)
	if r.large == nil {
		r.large = fmt.Errorf(
			"dead letter %s: %w: raise max.message.bytes of %s and replay again: %w",
			j.Place, ErrCopyTooLarge, r.retryTopic(j), err,
		)
	}
	r.skipped(j)
}

// applyLine applies the line of an exported file to the present dead letter.
func (r *replayer) applyLine(j *Judged) error {
	if r.lines == nil {
		return nil
	}
	x, ok := r.lines[j.Place]
	if !ok {
		return fmt.Errorf("dead letter %s: no line of the file is about it", j.Place)
	}
	r.edit = j.exported(x)
	return nil
}

// reportGone reports the named places and the lines without a record in the topic. If the limit has
// ended the replay, the lines behind it are not known.
func (r *replayer) reportGone() {
	gone := maps.Clone(r.what.Survey.gone)
	if r.what.Limit <= 0 || r.result.Replayed < r.what.Limit {
		for at := range r.lines {
			gone[at] = true
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(gone), Place.compare) {
		r.edit = nil
		if x, ok := r.lines[at]; ok {
			r.edit = x.edit()
		}
		found := &Found{Place: at, Topic: r.q.Topic, Record: &idem.Message{}, Err: ErrNoRecord}
		r.skipped(&Judged{Found: found, Verdict: SeenGone, Note: "the topic has no such record"})
	}
}

func (r *replayer) report(d Done) {
	d.Edit = r.edit
	if r.what.Each != nil {
		r.what.Each(d)
	}
}

func (r *replayer) fail(j Judged, err error) error {
	r.report(Done{Row: j.Row(), Err: err})
	return err
}

// pace keeps to the rate.
func (r *replayer) pace(ctx context.Context) error {
	if r.what.Rate <= 0 || r.what.DryRun {
		return ctx.Err()
	}
	due := r.began.Add(
		time.Duration(float64(r.result.Replayed) / r.what.Rate * float64(time.Second)),
	)
	return wait(ctx, time.Until(due))
}

func (r *replayer) skipped(j *Judged) {
	delete(r.lines, j.Place)
	r.result.Verdicts[j.Verdict]++
	row := j.Row()
	row.Action = ActSkip.String()
	r.report(Done{Row: row})
	switch j.Verdict {
	case SeenOther, SeenOmitted, SeenOften, SeenTooOld, SeenForeign, SeenGroup, SeenScope,
		SeenStray, SeenNoTopic, SeenTooLarge, SeenConflict,
		SeenChanged, SeenGone, SeenEdit:
		if len(r.result.Attention) < maxAttention {
			r.result.Attention = append(
				r.result.Attention, Attention{j.Place.String(), j.Verdict, j.Note},
			)
		}
	default: // needs no person
	}
}

// stepTimeout limits the replay of one dead letter. An interruption does not cancel a begun one.
const stepTimeout = time.Minute

// do replays one dead letter: first the store, then Kafka, then the record of the replay. After a
// crash in between, the event stays open at a position that the next replay gets again.
func (r *replayer) do(ctx context.Context, j *Judged) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	switch {
	case j.Action == ActUnblock && r.what.DryRun:
		return nil
	case j.Action == ActUnblock:
		return r.unblock(ctx, j)
	}
	if err := r.haveTopic(r.retryTopic(j)); err != nil || r.what.DryRun {
		return err
	}
	position, err := r.position(ctx, j)
	if err != nil {
		return err
	}
	m, err := j.DeadLetter.Redrive(position)
	if err != nil {
		return err
	}
	if err := r.what.Producer.Produce(ctx, m); err != nil {
		return fmt.Errorf("publish to %s: %w", m.Topic, err)
	}
	return r.remember(ctx, j)
}

// position is the one that the copy must have.
func (r *replayer) position(ctx context.Context, j *Judged) (dedup.Position, error) {
	switch j.Action {
	case ActReopen:
		return r.reopen(ctx, j)
	case ActForce:
		return dedup.Position{Generation: j.DeadLetter.Position.Generation + 1}, nil
	default:
		return dedup.Position{}, nil
	}
}

func (r *replayer) reopen(ctx context.Context, j *Judged) (dedup.Position, error) {
	return j.store.Operator().Reopen(ctx, j.DeadLetter.Key)
}

// unblock lets the owner of the partition run the event again, in the order of its Kafka key. An
// event that was moved already is fine.
func (r *replayer) unblock(ctx context.Context, j *Judged) error {
	e := j.deferred
	position, err := r.reopen(ctx, j)
	if errors.Is(err, dedup.ErrNotDead) && j.recordless {
		position, err = dedup.Position{
			Generation: max(e.Position.Generation, j.DeadLetter.Position.Generation) + 1,
		}, nil
	}
	if err != nil {
		return err
	}
	e.Position, e.Blocked, e.Wait = position, false, 0
	if _, err := j.store.Store.(dedup.Deferrer).Postpone(ctx, j.part, e); err != nil {
		return fmt.Errorf("%s: %w", j.store.Name, err)
	}
	return nil
}

// retryTopic is the topic for the copy of a dead letter.
func (r *replayer) retryTopic(j *Judged) string {
	return deadletter.RetryTopic(j.DeadLetter.Message.Topic, r.q.Group, 0)
}

// lookForTopic asks for the topic of a copy before the stores are asked for the last time. So that
// answer is as new as possible when the event is reopened. haveTopic keeps the error.
func (r *replayer) lookForTopic(j *Judged) {
	if j.Action != ActUnblock {
		_ = r.haveTopic(r.retryTopic(j))
	}
}

// haveTopic refuses to publish to a topic that does not exist, before anything was changed for it.
func (r *replayer) haveTopic(topic string) error {
	err, looked := r.topics[topic]
	if !looked {
		var ok bool
		if ok, err = kafkalog.Exists(r.q.Client, topic); err == nil && !ok {
			err = NoRetryTopic(topic)
		}
		r.topics[topic] = err
	}
	return err
}

// NoRetryTopic returns an error with advice that matches [ErrNoRetryTopic].
func NoRetryTopic(topic string) error {
	return fmt.Errorf(
		"%w %s for copies of dead letters: "+
			"create it (kafka-topics.sh --create --topic %s --partitions N, "+
			"with as many partitions as the source topic), or let the consumer create it",
		ErrNoRetryTopic, topic, topic,
	)
}

// wait sleeps for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// remember notes that a dead letter was published again without being reopened.
func (r *replayer) remember(ctx context.Context, j *Judged) error {
	m := j.DeadLetter.Message
	note := dedup.Imported{
		Retention: deadLetterMemory,
		Origin: dedup.Origin{
			Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: m.Time,
		},
	}
	var notes []dedup.Imported
	if j.Action == ActRecord {
		note.Key = deadLetterKey(r.q.Scope, j.DeadLetter)
		notes = append(notes, note)
	}
	if j.count != (dedup.Key{}) {
		note.Key, note.Origin.Time = j.count, j.DeadLetter.LastFailure
		notes = append(notes, note)
	}
	if len(notes) == 0 {
		return nil
	}
	l := &r.q.Stores[0]
	if _, err := l.Operator().Import(ctx, notes); err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	return nil
}
