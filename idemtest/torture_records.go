package idemtest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

const (
	tortureGroup = "idemtest"
	copyRound    = 1000 // added to the partitions of copies, once for each round
	deadLetters  = DefaultTopic + "." + tortureGroup + ".dlq"
)

// recordsJob is the work of a consumer group: records of a Kafka in memory.
type recordsJob struct {
	t        *testing.T
	records  []Record
	open     opener
	handlers func(*idem.Router)
	kafka    *topics
	now      atomic.Pointer[recordsWorker] // the numbered one

	mu         sync.Mutex
	partitions map[string]int32 // by key
}

func newRecordsJob(t *testing.T, records []Record, open opener, handlers func(*idem.Router)) *recordsJob {
	t.Helper()
	j := &recordsJob{
		t: t, records: records, open: open, handlers: handlers,
		kafka: &topics{}, partitions: make(map[string]int32),
	}
	j.repeat(0)
	return j
}

func (j *recordsJob) parts() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.partitions)
}

// repeat writes all records. Each round has partitions of its own.
func (j *recordsJob) repeat(r round) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, one := range j.records {
		if _, known := j.partitions[one.Key]; !known {
			j.partitions[one.Key] = int32(len(j.partitions))
		}
		one.Partition = j.partitions[one.Key] + int32(r)*copyRound
		m, err := one.message(time.Now())
		if err != nil {
			j.t.Fatalf("idemtest: %v", err)
		}
		j.kafka.append(m)
	}
}

func (j *recordsJob) end(out *outcomeOf) {
	for _, m := range j.kafka.all(func(topic string) bool { return topic == deadLetters }) {
		if e, err := deadletter.Parse(m); err == nil && e.Class != idem.ClassAlreadyDead {
			key := e.Key
			key.Type, key.ID = e.Type, e.ID // without an identity: the parts that are known
			out.dead = append(out.dead, deadLetter{key, e.Class})
		}
	}
}

func (j *recordsJob) start(p *process) worker {
	j.t.Helper()
	w := &recordsWorker{job: j, p: p, kafka: j.kafka}
	r := idem.NewRouter()
	j.handlers(r)
	cfg := idem.Config{
		Store: j.open(p), Scope: tortureGroup, Producer: w,
		DeadLetterTopic: func(string) string { return deadLetters },
		Logger:          silent(),
		BusyWait:        10 * time.Millisecond,
	}
	processor, err := idem.NewProcessor(r, cfg)
	if types := keyOrdered(processor, r, cfg); len(types) > 0 {
		j.t.Fatalf("idemtest: Torture does not run handlers with KeyOrdered, such as those of %q: test them "+
			"with Run", types)
	}
	if err != nil {
		j.t.Fatalf("idemtest: the handlers have mistakes:\n%v", err)
	}
	w.processor = processor
	if p.numbered {
		j.now.Store(w)
	}
	return w
}

// keyOrdered returns the types of events with handlers that are KeyOrdered. The processor of such a
// router is nil, since no gate is a [dedup.Deferrer].
func keyOrdered(p *idem.Processor, r *idem.Router, cfg idem.Config) []string {
	if p == nil {
		var err error
		cfg.Store = cfg.Store.(interface{ deferring() dedup.Store }).deferring()
		if p, err = idem.NewProcessor(r, cfg); err != nil {
			return nil
		}
		defer func() { _ = p.Close() }() // it has handled nothing
	}
	return p.KeyOrdered()
}

// recordsWorker is a member of the group.
type recordsWorker struct {
	job       *recordsJob
	p         *process
	processor *idem.Processor
	kafka     *topics
	now       atomic.Pointer[place] // the partition that is being settled
}

// at returns the partition that is being settled.
func (w *recordsWorker) at() place {
	if now := w.now.Load(); now != nil {
		return *now
	}
	return place{}
}

func (w *recordsWorker) work(what share, limit time.Duration) error {
	return w.drain(func(at place) bool {
		switch what {
		case onlyCopies:
			return at.partition >= copyRound
		case otherParts:
			return at.partition < copyRound && at != w.job.now.Load().at()
		default:
			return true
		}
	}, limit)
}

func (w *recordsWorker) close() { _ = w.processor.Close() } // a dead process cannot record its progress

// drain settles the records of partitions until no partition makes progress, waiting as the answers
// ask for, for at most limit.
func (w *recordsWorker) drain(chosen func(place) bool, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		progress, wait, failed := false, time.Duration(0), error(nil)
		for _, at := range w.kafka.read(func(topic string) bool { return topic != deadLetters }) {
			if !chosen(at) {
				continue
			}
			n, err := w.settle(at)
			progress = progress || n > 0
			var later *idem.WaitError
			switch {
			case err == nil:
			case errors.As(err, &later):
				wait, failed = max(wait, later.After, time.Millisecond), err
			default:
				return err
			}
		}
		switch {
		case w.p.isDead():
			return errDead
		case progress:
		case wait == 0:
			return nil
		case time.Now().Add(wait).After(deadline):
			return failed
		default:
			pause(w.p.ctx, wait)
		}
	}
}

// settle passes the open records of a partition to the processor, and commits.
func (w *recordsWorker) settle(at place) (int, error) {
	w.now.Store(&at)
	msgs := w.kafka.open(at)
	for i, m := range msgs {
		if due := w.processor.Due(m); due > 0 {
			if i == 0 {
				return 0, &idem.WaitError{After: due, Err: idem.ErrNotDue}
			}
			msgs = msgs[:i]
			break
		}
	}
	if len(msgs) == 0 {
		return 0, nil
	}
	n, err := w.processor.HandleBatch(w.p.ctx, msgs)
	if n > 0 {
		if gone := w.p.reach("commits the offsets", false); gone != nil {
			return 0, gone
		}
		w.kafka.settle(msgs[n-1])
	}
	return n, err
}

// Produce implements [idem.Producer].
func (w *recordsWorker) Produce(ctx context.Context, msgs ...*idem.Message) error {
	if err := w.p.reach("publishes a record"+before, false); err != nil {
		return err
	}
	if err := w.kafka.Produce(ctx, msgs...); err != nil {
		return err
	}
	return w.p.reach("publishes a record", false)
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// pause waits until d has passed or ctx has ended.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
