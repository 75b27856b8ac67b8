package consumer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// A partition is caught up if no visible record lies between the next offset and the end of the
// log. The high-water mark that sarama reports is not enough, because it is as old as the last
// record, even if the leader has been down since. And behind the last record there may be records
// that no consumer gets: markers of transactions, and aborted records. So each leader is asked for
// the records behind the next offset, just before progress is recorded.

const (
	// freshEnd is how old an answer may be: more than the time between two answers. It is far less
	// than the minute by which stores date back a partition that is caught up.
	freshEnd = 15 * time.Second
	// endsWait bounds how long progress waits for the leaders.
	endsWait = 2 * time.Second
	// endsBytes bounds the answer of a leader for one partition, and endsRounds how often the
	// leader is asked in a row. Further aborted records are read the next time.
	endsBytes  = 64 << 10
	endsRounds = 16
	// visibleFor is how long a visible record is assumed to remain. Only compaction can remove the
	// record.
	visibleFor = time.Minute
)

// tail is the known end of a partition's log, from the last answer of the leader.
type tail struct {
	mu      sync.Mutex
	from    int64     // no visible record lies between from and clear
	clear   int64     // -1: unknown
	at      time.Time // when clear was last known to be the end of the log; zero: never
	waiting time.Time // when a visible record was last found at clear; zero: none
}

func newTail() *tail { return &tail{from: -1, clear: -1} }

// caughtUp reports whether all records that were in the log a moment ago lie below next.
func (t *tail) caughtUp(next int64, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.at.IsZero() && now.Sub(t.at) < freshEnd && t.from <= next
}

// beyond returns the first offset from next on that may hold a visible record.
func (t *tail) beyond(next int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if next >= 0 && t.from >= 0 && t.from <= next {
		return max(next, t.clear)
	}
	return next
}

// ask returns the offset to ask the leader for, if next is the partition's next offset. No answer
// is wanted while a visible record is known to lie there.
func (t *tail) ask(next int64, now time.Time) (offset int64, wanted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.clear < 0 || next < t.from || next > t.clear {
		t.from, t.clear, t.at, t.waiting = next, next, time.Time{}, time.Time{}
	}
	return t.clear, t.waiting.IsZero() || now.Sub(t.waiting) >= visibleFor
}

// learn takes the answer to a question of the time asked. The result is true if the leader is to be
// asked again at once.
func (t *tail) learn(asked time.Time, offset int64, found look) (more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset != t.clear { // a later question has been answered
		return false
	}
	t.clear, t.waiting = found.clear, time.Time{}
	switch {
	case found.visible:
		t.at, t.waiting = time.Time{}, asked
	case found.end:
		t.at = asked
	default:
		return found.clear > offset
	}
	return false
}

// look is the content of an answer about a log from an offset on.
type look struct {
	clear   int64 // no visible record lies below
	visible bool  // a visible record lies at clear
	end     bool  // clear is the end of the log, and no transaction is open before it
}

// lookAt reads the answer of a leader from an offset on. Records that sarama's consumer skips do
// not count.
func lookAt(b *sarama.FetchResponseBlock, offset int64, isolation sarama.IsolationLevel) look {
	found := look{clear: offset}
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
			return look{clear: found.clear, visible: set.MsgSet != nil &&
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
					return look{clear: max(found.clear, at), visible: true}
				}
			}
		}
		found.clear = max(found.clear, batch.LastOffset()+1)
	}
	found.end = found.clear >= b.HighWaterMarkOffset
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

// question asks for the end of a partition's log, from the next offset on.
type question struct {
	partition
	claim sarama.ConsumerGroupClaim
	tail  *tail
	next  int64
}

// asker finds the ends of logs and updates the tails of questions.
type asker interface {
	// ask returns when all questions are answered, after endsWait, or when stop is closed.
	ask(questions []question, stop <-chan struct{})
}

// ends asks the leaders of partitions for the ends of their logs.
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

// ask asks all leaders at once. A leader that does not answer delays no other one, and is not asked
// again before the answer.
func (e *ends) ask(questions []question, stop <-chan struct{}) {
	byLeader := make(map[*sarama.Broker][]question)
	for _, q := range questions {
		if _, wanted := q.tail.ask(q.next, time.Now()); !wanted {
			continue
		}
		if leader, err := e.client.Leader(q.topic, q.id); err == nil {
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
	timer := time.NewTimer(endsWait)
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
func (e *ends) askLeader(leader *sarama.Broker, open []question) {
	isolation := e.client.Config().Consumer.IsolationLevel
	for range endsRounds {
		asked := time.Now()
		// Version 4 has isolation levels. Later versions are not needed here.
		r := &sarama.FetchRequest{Version: 4, MaxBytes: sarama.MaxResponseSize,
			Isolation: isolation}
		offsets := make(map[*tail]int64)
		for _, q := range open {
			if offset, wanted := q.tail.ask(q.next, asked); wanted {
				offsets[q.tail] = offset
				r.AddBlock(q.topic, q.id, offset, endsBytes, 0)
			}
		}
		if len(offsets) == 0 {
			return
		}
		answer, err := leader.Fetch(r)
		if err != nil {
			return
		}
		var more []question
		for _, q := range open {
			offset, ok := offsets[q.tail]
			if !ok {
				continue
			}
			found, ok := e.read(q, answer.GetBlock(q.topic, q.id), offset, isolation)
			if ok && q.tail.learn(asked, offset, found) {
				more = append(more, q)
			}
		}
		open = more
	}
}

// read reports false for an answer without content, for example after the leader has moved. The
// partition is asked for again the next time.
func (e *ends) read(
	q question, b *sarama.FetchResponseBlock, offset int64, isolation sarama.IsolationLevel,
) (look, bool) {
	switch {
	case b == nil:
		return look{}, false
	case errors.Is(b.Err, sarama.ErrNoError):
		return lookAt(b, offset, isolation), true
	case errors.Is(b.Err, sarama.ErrOffsetOutOfRange): // the records were deleted
		oldest, err := e.client.GetOffset(q.topic, q.id, sarama.OffsetOldest)
		return look{clear: oldest}, err == nil
	}
	return look{}, false
}
