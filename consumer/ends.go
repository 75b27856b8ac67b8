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

// A partition is caught up if no record that a consumer is given lies between its next offset and the end of its log. The
// high-water mark that sarama reports does not tell. It is as old as the last record, however long a leader has been away;
// and behind the last record there may be others that no consumer sees: the markers of transactions, and what was aborted.
// So each leader is asked for what lies behind the next offset, just before progress is recorded.

const (
	// freshEnd is how old an answer may be: more than the time between two, and far less than the minute by which stores date
	// back a partition that is caught up.
	freshEnd = 15 * time.Second
	// endsWait bounds how long progress waits for the leaders.
	endsWait = 2 * time.Second
	// endsBytes is how much a leader may return of one partition, and endsRounds how often it is asked in a row. More than
	// that of aborted records is looked through next time.
	endsBytes  = 64 << 10
	endsRounds = 16
	// visibleFor is how long a record that waits is taken to wait on. Only compaction can make it vanish.
	visibleFor = time.Minute
)

// tail is what is known of the end of a claim's log. A leader has told it, at a moment not before at.
type tail struct {
	mu      sync.Mutex
	from    int64     // no record that is visible lies between from and clear
	clear   int64     // -1: nothing is known
	at      time.Time // when clear was last known to be the end of the log; zero: never
	waiting time.Time // when a visible record was last found at clear; zero: none
}

func newTail() *tail { return &tail{from: -1, clear: -1} }

// caughtUp reports whether all that was in the log a moment ago lies below next.
func (t *tail) caughtUp(next int64, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.at.IsZero() && now.Sub(t.at) < freshEnd && t.from <= next
}

// beyond returns the end of what is known to hold no visible record, from next on.
func (t *tail) beyond(next int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if next >= 0 && t.from >= 0 && t.from <= next {
		return max(next, t.clear)
	}
	return next
}

// ask returns where to look on for a claim that goes on with next, unless a record is known to wait there.
func (t *tail) ask(next int64, now time.Time) (offset int64, wanted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.clear < 0 || next < t.from || next > t.clear {
		t.from, t.clear, t.at, t.waiting = next, next, time.Time{}, time.Time{}
	}
	return t.clear, t.waiting.IsZero() || now.Sub(t.waiting) >= visibleFor
}

// learn takes the answer to a question of the time asked. It reports whether it is worth asking on.
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

// look is what an answer says about a log from an offset on.
type look struct {
	clear   int64 // no visible record lies below
	visible bool  // one lies there
	end     bool  // it is the end of the log, and no transaction is open before it
}

// lookAt reads what a leader has returned from an offset on, and leaves out what sarama's consumer leaves out.
func lookAt(b *sarama.FetchResponseBlock, offset int64, isolation sarama.IsolationLevel) look {
	found := look{clear: offset}
	var aborted []*sarama.AbortedTransaction // which have not begun yet
	if isolation == sarama.ReadCommitted {
		aborted = slices.SortedFunc(slices.Values(b.AbortedTransactions), func(a, b *sarama.AbortedTransaction) int {
			return cmp.Compare(a.FirstOffset, b.FirstOffset)
		})
	}
	producers := make(map[int64]bool) // whose records are aborted
	for _, set := range b.RecordsSet {
		batch := set.RecordBatch
		if batch == nil { // of a format without transactions: all of it is visible
			return look{clear: found.clear, visible: set.MsgSet != nil && len(set.MsgSet.Messages) > 0}
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

// isAbort reports whether a batch is the marker of an aborted transaction: its key is a version and a type, of 16 bits each.
func isAbort(batch *sarama.RecordBatch) bool {
	for _, r := range batch.Records {
		return len(r.Key) >= 4 && binary.BigEndian.Uint16(r.Key[2:]) == 0
	}
	return false
}

// question is how far a claim is.
type question struct {
	*claimed
	next int64
}

// asker finds the ends of logs, and tells the claims' tails.
type asker interface {
	// ask returns when all is answered, or after endsWait, or when stop is closed.
	ask(questions []question, stop <-chan struct{})
}

// ends asks the leaders of partitions for the ends of their logs.
type ends struct {
	client sarama.Client

	mu      sync.Mutex
	asking  map[int32]bool // leaders that have not answered yet
	closed  bool
	running sync.WaitGroup // what is added to it is under mu
}

func newEnds(client sarama.Client) *ends { return &ends{client: client, asking: make(map[int32]bool)} }

// ask asks all leaders at once. One that does not answer delays no other one, and is not asked again before it has answered.
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
		if e.begin(leader, func() {
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

// begin runs a question to a leader, unless there is another one.
func (e *ends) begin(leader *sarama.Broker, ask func()) bool {
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

// close asks nothing any longer, and waits for the answers that are under way.
func (e *ends) close() {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.running.Wait()
}

// askLeader asks until the leader has told the end of each log, or a record that waits before it.
func (e *ends) askLeader(leader *sarama.Broker, open []question) {
	isolation := e.client.Config().Consumer.IsolationLevel
	for range endsRounds {
		asked := time.Now()
		// Of version 4 are isolation levels; later ones have nothing that is needed here.
		r := &sarama.FetchRequest{Version: 4, MaxBytes: sarama.MaxResponseSize, Isolation: isolation}
		offsets := make(map[*claimed]int64)
		for _, q := range open {
			if offset, wanted := q.tail.ask(q.next, asked); wanted {
				offsets[q.claimed] = offset
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
			offset, ok := offsets[q.claimed]
			if !ok {
				continue
			}
			if found, ok := e.read(q, answer.GetBlock(q.topic, q.id), offset, isolation); ok && q.tail.learn(asked, offset, found) {
				more = append(more, q)
			}
		}
		open = more
	}
}

// read reports false if the answer says nothing, as the partition has another leader for example. It is asked again next time.
func (e *ends) read(q question, b *sarama.FetchResponseBlock, offset int64, isolation sarama.IsolationLevel) (look, bool) {
	switch {
	case b == nil:
		return look{}, false
	case errors.Is(b.Err, sarama.ErrNoError):
		return lookAt(b, offset, isolation), true
	case errors.Is(b.Err, sarama.ErrOffsetOutOfRange): // what was there has been deleted
		oldest, err := e.client.GetOffset(q.topic, q.id, sarama.OffsetOldest)
		return look{clear: oldest}, err == nil
	}
	return look{}, false
}
