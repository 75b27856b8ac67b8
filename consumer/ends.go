package consumer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/runner"
)

const (
	// endsBytes bounds the answer of a leader for one partition, and endsRounds how often the
	// leader is asked in a row. Further aborted records are read the next time.
	endsBytes  = 64 << 10
	endsRounds = 16
	// noEpoch lets the leader answer in any of its epochs.
	noEpoch = -1
)

// lookAt reads the answer of a leader from an offset on. Records that sarama's consumer skips do
// not count.
func lookAt(b *sarama.FetchResponseBlock, offset int64, isolation sarama.IsolationLevel) runner.Look {
	found := runner.Look{Clear: offset}
	var aborted []*sarama.AbortedTransaction // those that begin at a later batch
	if isolation == sarama.ReadCommitted {
		aborted = slices.Clone(b.AbortedTransactions)
		slices.SortStableFunc(aborted, func(a, b *sarama.AbortedTransaction) int {
			return cmp.Compare(a.FirstOffset, b.FirstOffset)
		})
	}
	producers := make(map[int64]bool) // whose records are aborted
	for _, set := range b.RecordsSet {
		batch := set.RecordBatch
		if batch == nil { // an old format without transactions: every record is visible
			return runner.Look{Clear: found.Clear, Visible: set.MsgSet != nil &&
				len(set.MsgSet.Messages) > 0}
		}
		if batch.PartialTrailingRecord {
			return found
		}
		for len(aborted) > 0 && aborted[0].FirstOffset <= batch.LastOffset() {
			producers[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		switch {
		case batch.Control:
			if isAbort(batch) {
				delete(producers, batch.ProducerID)
			}
		case batch.IsTransactional && producers[batch.ProducerID]:
		default:
			for _, r := range batch.Records {
				if at := batch.FirstOffset + r.OffsetDelta; at >= offset {
					return runner.Look{Clear: max(found.Clear, at), Visible: true}
				}
			}
		}
		found.Clear = max(found.Clear, batch.LastOffset()+1)
	}
	found.End = found.Clear >= b.HighWaterMarkOffset
	return found
}

// isAbort reports whether a batch is the marker of an aborted transaction. The key of a marker is a
// version and a type, of 16 bits each.
func isAbort(batch *sarama.RecordBatch) bool {
	for _, r := range batch.Records {
		return len(r.Key) >= 4 && binary.BigEndian.Uint16(r.Key[2:]) == 0
	}
	return false
}

// ends asks the leaders of partitions for the ends of their logs. It is a runner.EndAsker.
type ends struct {
	client  sarama.Client
	refused refusals

	mu      sync.Mutex
	asking  map[int32]bool // leaders that have not answered yet
	closed  bool
	running sync.WaitGroup // under mu while it grows
}

func newEnds(client sarama.Client, cfg Config) *ends {
	return &ends{
		client: client, asking: make(map[int32]bool),
		refused: refusals{cfg: cfg, since: make(map[runner.TopicPartition]*refusal)},
	}
}

// Ask asks all leaders at once. A leader that does not answer delays no other one, and is not asked
// again before the answer.
func (e *ends) Ask(questions []runner.EndQuestion, stop <-chan struct{}) {
	byLeader := make(map[*sarama.Broker][]runner.EndQuestion)
	for _, q := range questions {
		if _, wanted := q.Tail.Ask(q.Next, time.Now()); !wanted {
			continue
		}
		if leader, err := e.client.Leader(q.Topic, q.Partition); err == nil {
			byLeader[leader] = append(byLeader[leader], q)
		}
	}
	answered := make(chan struct{}, len(byLeader))
	asked := 0
	for leader, questions := range byLeader {
		if e.start(leader, func() {
			e.askLeader(leader, questions)
			answered <- struct{}{}
		}) {
			asked++
		}
	}
	timer := time.NewTimer(runner.EndsWait)
	defer timer.Stop()
	for range asked {
		select {
		case <-answered:
		case <-timer.C:
			return
		case <-stop:
			return
		}
	}
}

// start runs ask in the background, unless a question to this leader is running.
func (e *ends) start(leader *sarama.Broker, ask func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.asking[leader.ID()] {
		return false
	}
	e.asking[leader.ID()] = true
	e.running.Go(func() {
		ask()
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.asking, leader.ID())
	})
	return true
}

// close starts no more questions, and waits for the running ones.
func (e *ends) close() {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.running.Wait()
}

// askLeader asks until the leader has returned the end of each log, or a visible record before it.
func (e *ends) askLeader(leader *sarama.Broker, open []runner.EndQuestion) {
	isolation := e.client.Config().Consumer.IsolationLevel
	for range endsRounds {
		asked := time.Now()
		r := question(e.client.Config().Version, isolation)
		offsets := make(map[*runner.Tail]int64)
		for _, q := range open {
			if offset, wanted := q.Tail.Ask(q.Next, asked); wanted {
				offsets[q.Tail] = offset
				r.AddBlock(q.Topic, q.Partition, offset, endsBytes, noEpoch)
			}
		}
		if len(offsets) == 0 {
			return
		}
		answer, err := leader.Fetch(r)
		if err != nil {
			return
		}
		var more []runner.EndQuestion
		for _, q := range open {
			offset, ok := offsets[q.Tail]
			if !ok {
				continue
			}
			found, err := read(q.Tail, answer.GetBlock(q.Topic, q.Partition), offset, isolation)
			e.refused.note(q.TopicPartition, err, asked)
			if err == nil && q.Tail.Learn(asked, offset, found) {
				more = append(more, q)
			}
		}
		open = more
	}
}

// question returns a request of the version that the configured version of Kafka knows. Version 4
// has isolation levels. Brokers before 4.0 refuse topics with compression.type=zstd below version
// 10. A session epoch of -1 asks for no fetch session.
func question(kafka sarama.KafkaVersion, isolation sarama.IsolationLevel) *sarama.FetchRequest {
	r := &sarama.FetchRequest{
		Version: 4, MaxBytes: sarama.MaxResponseSize, Isolation: isolation, SessionEpoch: -1,
	}
	if kafka.IsAtLeast(sarama.V2_1_0_0) {
		r.Version = 10
	}
	return r
}

// read returns the error of an answer without content, for example after the leader has moved. The
// partition is asked for again the next time.
//
// An offset out of range teaches nothing either. The deleted records may be fetched copies that
// wait, or records that never ran. The next session reports the gap (K-17).
func read(
	tail *runner.Tail, b *sarama.FetchResponseBlock, offset int64, isolation sarama.IsolationLevel,
) (runner.Look, error) {
	switch {
	case b == nil:
		return runner.Look{}, sarama.ErrIncompleteResponse
	case errors.Is(b.Err, sarama.ErrNoError):
		return lookAt(b, offset, isolation), nil
	case errors.Is(b.Err, sarama.ErrOffsetOutOfRange):
		tail.Forget()
	}
	return runner.Look{}, b.Err
}

// refusedFor is how long a leader may refuse the question before a log line. A leader that has
// moved refuses it for some seconds.
const refusedFor = time.Minute

// refusals are the partitions with leaders that refuse the question. Safe for concurrent use.
type refusals struct {
	cfg Config

	mu    sync.Mutex
	since map[runner.TopicPartition]*refusal
}

type refusal struct {
	since  time.Time
	logged bool
}

// note takes the answer of a leader, and logs once that it has refused the question for long.
func (r *refusals) note(p runner.TopicPartition, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.since, p)
		return
	}
	last := r.since[p]
	if last == nil {
		last = &refusal{since: now}
		r.since[p] = last
	}
	if last.logged || now.Sub(last.since) < refusedFor {
		return
	}
	last.logged = true
	r.cfg.Logger.Warn("the leader refuses to show the end of a log, the store keeps all records "+
		"meanwhile", "topic", p.Topic, "partition", p.Partition, "error", r.cfg.errorText(err))
}
