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
	client sarama.Client

	mu      sync.Mutex
	asking  map[int32]bool // leaders that have not answered yet
	closed  bool
	running sync.WaitGroup // under mu while it grows
}

func newEnds(client sarama.Client) *ends {
	return &ends{client: client, asking: make(map[int32]bool)}
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
		// Version 4 has isolation levels. Later versions are not needed here.
		r := &sarama.FetchRequest{Version: 4, MaxBytes: sarama.MaxResponseSize,
			Isolation: isolation}
		offsets := make(map[*runner.Tail]int64)
		for _, q := range open {
			if offset, wanted := q.Tail.Ask(q.Next, asked); wanted {
				offsets[q.Tail] = offset
				r.AddBlock(q.Topic, q.Partition, offset, endsBytes, 0)
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
			found, ok := read(q.Tail, answer.GetBlock(q.Topic, q.Partition), offset, isolation)
			if ok && q.Tail.Learn(asked, offset, found) {
				more = append(more, q)
			}
		}
		open = more
	}
}

// read reports false for an answer without content, for example after the leader has moved. The
// partition is asked for again the next time.
//
// An offset out of range teaches nothing either. The deleted records may be fetched copies that
// wait, or records that never ran. The next session reports the gap (K-17).
func read(
	tail *runner.Tail, b *sarama.FetchResponseBlock, offset int64, isolation sarama.IsolationLevel,
) (runner.Look, bool) {
	switch {
	case b == nil:
	case errors.Is(b.Err, sarama.ErrNoError):
		return lookAt(b, offset, isolation), true
	case errors.Is(b.Err, sarama.ErrOffsetOutOfRange):
		tail.Forget()
	}
	return runner.Look{}, false
}
