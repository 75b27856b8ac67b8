package replay

import (
	"cmp"
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
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/kafkalog"
	"github.com/idem-go/idem/runner"
)

// Result is the outcome of a run, also of one that was interrupted.
type Result struct {
	// Complete is set if all records of the plan are settled.
	Complete bool `json:"complete"`
	// Position is how far the run is. [Plan.From] continues there.
	Position Position `json:"position"`
	Counts   Counts   `json:"counts"`
	// Failed are the events that were given up in this run, and at most 1,000 of those before.
	Failed []Failed `json:"failed,omitempty"`
	// Deleted is the number of offsets that Kafka deleted during the run, see
	// [Config].SkipDeleted.
	Deleted int64         `json:"deleted,omitempty"`
	Took    time.Duration `json:"took"`
}

// Run reads exactly the records of the plan, and settles them. The function progress, if not nil,
// is called about four times a second from one goroutine, and once more at the end. See
// [Bar.Update].
//
// Run first connects. Run waits for brokers that cannot be reached, for [Config].BrokerWait, and
// logs a warning at the start of the wait. A broker without the configured SASL mechanism, and one
// with a certificate that Run does not trust, count as unreachable. Then Run lets the stores check
// their settings and the scope, and waits for a store that is down.
//
// Run returns nil if all records are settled. Otherwise the result has the position to continue
// from, and the error is one of these:
//   - [idem.ErrStopping] with the cause of ctx. Running handlers have finished within the grace.
//   - [*DeletedError]: records of the window are deleted.
//   - [ErrTooManyFailed]: see [Config].MaxFailed.
//   - [idem.ErrTooOld]: by the policy StopTooOld of a handler.
//   - [dedup.ErrIdentityChanged]: an interrupted replay had other identity functions.
//   - [dedup.ErrOtherScope]: with SameScope, the store knows the topics under other scopes only.
//   - [dedup.SetupError], or another error of a store that is not set up or unsafe.
//   - [ErrOpenTransaction], or an error of the brokers that lasted for [Config].BrokerWait.
//   - An error of the brokers about refused credentials, rights or topics.
//   - [idem.ErrAbandoned]: a handler ignored its cancelled context.
//   - [ErrRunning] and [ErrClosed].
//
// While brokers do not answer, a stop may last 30 s longer than the grace.
func (r *Replay) Run(ctx context.Context, plan Plan, progress func(Progress)) (Result, error) {
	if !r.running.TryLock() {
		return Result{}, ErrRunning
	}
	defer r.running.Unlock()
	began := time.Now()
	if err := plan.check(r.scope, r.topics, r.cfg.SkipDeleted); err != nil {
		return Result{}, fmt.Errorf("replay: %w", err)
	}
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(errors.Join(idem.ErrStopping, context.Cause(ctx))) })()

	j := &job{
		r: r, pace: newPace(r.cfg.Rate), stop: stop, began: began,
		failures: r.failures,
	}
	for _, p := range plan.Partitions {
		j.parts = append(j.parts, &part{PartitionPlan: p, next: p.First})
	}
	to, closeProducer, err := j.prepare(run, plan)
	defer closeProducer()
	r.failures.begin(to, stop)
	r.tally.begin()
	if err == nil {
		r.neutral.Logger.Info("replay starts", "scope", r.scope, "records_at_most", plan.Records())
		err = j.run(run, progress)
	}
	result := j.result()
	result.Complete = err == nil
	if err != nil {
		r.neutral.Logger.Error("replay ends early", "scope", r.scope, "error", r.neutral.Text(err))
		return result, fmt.Errorf("replay %s: %w", r.scope, err)
	}
	r.neutral.Logger.Info("replay is complete", "scope", r.scope,
		"handled", result.Counts.Handled, "duplicates", result.Counts.Duplicates,
		"dead_letters", result.Counts.DeadLetters)
	return result, nil
}

// prepare connects, checks stores and topics, and returns the producer of dead letters.
func (j *job) prepare(ctx context.Context, plan Plan) (to idem.Producer, done func(), err error) {
	r, done := j.r, func() {}
	err = j.await(ctx, func() (err error) {
		j.client, err = r.connected(ctx)
		return err
	})
	if err != nil {
		return nil, done, err
	}
	if err := r.checkStores(ctx); err != nil {
		return nil, done, err
	}
	if !r.publishes() {
		return nil, done, nil
	}
	if r.live.Producer != nil {
		return r.live.Producer, done, nil
	}
	var p *consumer.Producer
	err = j.await(ctx, func() (err error) {
		if err := r.requireDeadLetterTopics(j.client, plan); err != nil {
			return err
		}
		if p, err = consumer.OpenProducerContext(ctx, r.live); err != nil {
			return fmt.Errorf("producer of dead letters: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, done, err
	}
	return p, func() { _ = p.Close() }, nil // a dead letter that was not sent is not settled
}

// checkStores lets the stores check their settings and the scope.
func (r *Replay) checkStores(ctx context.Context) error {
	if err := r.start.Check(ctx); err != nil || !r.start.Registers() {
		return err
	}
	// Under a mistyped scope of the group, every event would run.
	return r.start.Register(ctx, dedup.Registration{
		Group: r.neutral.Group, Topics: r.topics, NoOffsets: r.cfg.Scope.same,
		NewScope: !r.cfg.Scope.same,
	})
}

// requireDeadLetterTopics finds missing topics before the first event fails.
func (r *Replay) requireDeadLetterTopics(client sarama.Client, plan Plan) error {
	names := make(map[string]bool)
	for _, p := range plan.Partitions {
		names[r.neutral.DeadLetterTopic(p.Topic)] = true
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		exists, err := kafkalog.Exists(client, name)
		if err != nil {
			return fmt.Errorf("dead-letter topic %s: %w", name, err)
		}
		if !exists {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	fix := runner.Commands{Brokers: r.live.Brokers}.CreateAll(missing, nil, runner.DeadLetterSetting)
	return fmt.Errorf("dead-letter topics do not exist: %s: create them: %s: %w",
		strings.Join(missing, ", "), fix, sarama.ErrUnknownTopicOrPartition)
}

// job is one run.
type job struct {
	r        *Replay
	client   sarama.Client
	pace     *pace
	failures *failures
	stop     func(error)
	began    time.Time
	waited   time.Duration // for brokers at the start
	parts    []*part
}

// run replays the partitions, some at a time, and returns the first error.
func (j *job) run(ctx context.Context, progress func(Progress)) error {
	var reporter sync.WaitGroup
	reporting, reported := context.WithCancel(context.Background())
	if progress != nil {
		reporter.Go(func() { report(reporting, j.snapshot, progress) })
	}
	todo := make(chan *part)
	var workers sync.WaitGroup
	errs := make([]error, min(j.r.cfg.Partitions, len(j.parts)))
	for i := range errs {
		workers.Go(func() {
			for p := range todo {
				if err := j.replay(ctx, p); err != nil {
					errs[i] = err
					j.stop(err)
					return
				}
			}
		})
	}
	func() {
		defer close(todo)
		for _, p := range j.parts {
			select {
			case todo <- p:
			case <-ctx.Done():
				return
			}
		}
	}()
	workers.Wait()
	reported()
	reporter.Wait()
	if ctx.Err() == nil || j.complete(errs) {
		return nil
	}
	return withAbandoned(context.Cause(ctx), errs)
}

// complete reports whether all partitions are at their ends, so that the end of the context came
// too late to stop a record.
func (j *job) complete(errs []error) bool {
	return errors.Join(errs...) == nil &&
		!slices.ContainsFunc(j.parts, func(p *part) bool { return p.position() < p.End })
}

// withAbandoned returns the cause of the end, with the handlers that were left running. Other
// errors follow from the cause.
func withAbandoned(cause error, errs []error) error {
	if errors.Is(cause, idem.ErrAbandoned) {
		return cause
	}
	for _, err := range errs {
		if errors.Is(err, idem.ErrAbandoned) {
			return errors.Join(cause, err)
		}
	}
	return cause
}

// snapshot returns the progress without its rate.
func (j *job) snapshot() Progress {
	p := Progress{Counts: j.r.tally.now(), Elapsed: time.Since(j.began)}
	for _, part := range j.parts {
		n := part.Records()
		if n == 0 {
			continue
		}
		next := part.position()
		p.Partitions++
		p.Total += n
		p.Done += next - part.First
		if next == part.End {
			p.PartitionsDone++
		}
	}
	return p
}

func (j *job) result() Result {
	result := Result{
		Position: make(Position), Counts: j.r.tally.now(), Failed: j.failures.all(),
		Took: time.Since(j.began),
	}
	for _, part := range j.parts {
		result.Position.set(part.place(), part.position())
		result.Deleted += part.skipped()
	}
	slices.SortFunc(result.Failed, func(a, b Failed) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition),
			cmp.Compare(a.Offset, b.Offset))
	})
	return result
}
