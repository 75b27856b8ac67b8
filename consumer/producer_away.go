package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	// probeWait is how long a call waits for a partition that was away. Whoever leads it answers in much less when it is back.
	probeWait = time.Second
	// maxProbes bounds what is under way to partitions that are away, beside what room counts.
	maxProbes = 16
)

var errPartAway = errors.New("its partition takes nothing")

// part is a partition.
type part struct {
	topic  string
	number int32
}

// awayParts are the partitions that took nothing when they were last asked, because of brokers. sarama tries for some 15 s, and a call lasts
// as long as its slowest message: were all messages for such a partition given to it, one partition without a leader, or
// without enough replicas, would hold up the messages of all others too. So a single message at a time asks whether it is back, and no call
// waits for that one to the end.
//
// Messages without a key have the partition that sarama chooses, and are not known to be for one that is away.
type awayParts struct {
	client sarama.Client

	mu           sync.Mutex
	partitioners map[string]sarama.Partitioner // by topic; made for one goroutine at a time
	probing      map[part]bool                 // those that are away: is one asked?
	probes       int
}

func newAwayParts(client sarama.Client) *awayParts {
	return &awayParts{client: client, partitioners: map[string]sarama.Partitioner{}, probing: map[part]bool{}}
}

// of returns where a message goes, if that is known. The mutex is held.
func (a *awayParts) of(m *sarama.ProducerMessage) (at part, ok bool) {
	p := a.partitioners[m.Topic]
	if p == nil {
		p = a.client.Config().Producer.Partitioner(m.Topic)
		a.partitioners[m.Topic] = p
	}
	consistent := p.RequiresConsistency()
	if d, ok := p.(sarama.DynamicConsistencyPartitioner); ok {
		consistent = d.MessageRequiresConsistency(m)
	}
	if !consistent || m.Key == nil {
		return part{}, false
	}
	all, err := a.client.Partitions(m.Topic)
	if err != nil || len(all) == 0 {
		return part{}, false
	}
	n, err := p.Partition(m, int32(len(all)))
	if err != nil || n < 0 || int(n) >= len(all) {
		return part{}, false
	}
	return part{m.Topic, all[n]}, true
}

// note takes the result of a message.
func (a *awayParts) note(m *sarama.ProducerMessage, err error, probe bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if probe {
		a.probes--
	}
	answered := err == nil || isTooLarge(err) || isRefused(err) || isNoTopic(err)
	if answered && len(a.probing) == 0 {
		return
	}
	at, ok := a.of(m)
	switch {
	case !ok:
	case answered:
		delete(a.probing, at)
	default:
		a.probing[at] = a.probing[at] && !probe
	}
}

// silent notes that a message had no answer for so long that its call has ended.
func (a *awayParts) silent(m *sarama.ProducerMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.of(m); ok {
		probing := a.probing[at] // whether it is asked stays as it is
		a.probing[at] = probing
	}
}

// hold says what becomes of a message: it may go, it may go as the one that asks, or it has to wait for that one.
func (a *awayParts) hold(m *sarama.ProducerMessage) (at part, held, probe bool) {
	at, ok := a.of(m)
	probing, away := a.probing[at]
	if !ok || !away {
		return at, false, false
	}
	if probing || a.probes >= maxProbes {
		return at, true, false
	}
	a.probing[at] = true
	a.probes++
	return at, true, true
}

// heldBack are the messages of a call that are for partitions that are away.
type heldBack struct {
	c       *call
	asking  map[int]part   // messages under way that ask
	waiting map[part][]int // messages that wait for one of them
	results chan result    // of those that ask: they may come when nobody waits any longer
	timer   *time.Timer
	over    <-chan time.Time
}

func newHeldBack(c *call) *heldBack { return &heldBack{c: c} }

// split keeps back what is for partitions that are away, and returns the rest.
func (h *heldBack) split(ctx context.Context, indexes []int) []int {
	a := h.c.p.away
	if a == nil {
		return indexes
	}
	a.mu.Lock()
	if len(a.probing) == 0 {
		a.mu.Unlock()
		return indexes
	}
	var rest, probes []int
	parts, held := map[int]part{}, map[part][]int{}
	asked := map[part]bool{}
	for _, i := range indexes {
		at, away, probe := a.hold(toSarama(h.c.msgs[i]))
		switch {
		case !away:
			rest = append(rest, i)
		case probe:
			probes, parts[i], asked[at] = append(probes, i), at, true
		default:
			held[at] = append(held[at], i)
		}
	}
	a.mu.Unlock()
	for at, some := range held {
		if asked[at] {
			h.wait(at, some)
		} else { // another call asks
			h.fail(some)
		}
	}
	for _, i := range probes {
		h.ask(ctx, i, parts[i])
	}
	return rest
}

func (h *heldBack) wait(at part, indexes []int) {
	if h.waiting == nil {
		h.waiting = map[part][]int{}
	}
	h.waiting[at] = indexes
}

// ask sends a message to a partition that is away.
func (h *heldBack) ask(ctx context.Context, i int, at part) {
	if h.results == nil {
		h.results, h.asking = make(chan result, len(h.c.msgs)), map[int]part{}
		h.timer = time.NewTimer(probeWait)
		h.over = h.timer.C
	}
	m := h.c.msgs[i]
	if err := h.c.p.enqueue(ctx, m, &fate{index: i, results: h.results, probe: true}); err != nil {
		h.c.p.away.note(toSarama(m), err, true)
		h.c.errs[i] = fmt.Errorf("%w: %w", errNotSent, err)
		h.fail(h.waiting[at])
		delete(h.waiting, at)
		return
	}
	h.c.errs[i] = errNoAnswer
	h.asking[i] = at
}

// answered returns what may be sent now: whatever the answer was, it came soon, so that others have theirs soon too.
func (h *heldBack) answered(r result) []int {
	at := h.asking[r.index]
	delete(h.asking, r.index)
	h.c.errs[r.index] = r.err
	free := h.waiting[at]
	delete(h.waiting, at)
	return free
}

// giveUp waits no longer.
func (h *heldBack) giveUp() {
	for i, at := range h.asking {
		h.c.errs[i] = fmt.Errorf("%w: %w", errNoAnswer, errPartAway)
		h.fail(h.waiting[at])
		delete(h.waiting, at)
	}
	clear(h.asking)
	h.timer.Reset(probeWait) // for topics that are still asked for
}

func (h *heldBack) fail(indexes []int) {
	h.c.set(indexes, fmt.Errorf("%w: %w", errNotSent, errPartAway))
}

func (h *heldBack) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
}
