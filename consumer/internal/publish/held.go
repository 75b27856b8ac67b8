package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem"
)

// probeWait bounds how long a call waits for probes. The leader of a partition that is back answers
// in much less.
const probeWait = time.Second

var (
	errNotSent       = errors.New("not sent")
	errNoAnswer      = errors.New("sent, no answer yet")
	errPartitionAway = errors.New("its partition takes no records")
)

// heldBack has the messages of one call to partitions that are away.
type heldBack struct {
	s       *sender
	msgs    []*idem.Message
	errs    []error             // by message; shared with the call
	asking  map[int]partition   // the probes in flight, by message
	waiting map[partition][]int // messages that wait for a probe
	results chan result         // of probes; has room, since the call may have ended
	timer   *time.Timer
	over    <-chan time.Time
}

// split holds back the messages of one topic to partitions that are away, sends the probes, and
// returns the rest. all is the partitions of the topic.
func (h *heldBack) split(ctx context.Context, topic string, all []int32, indexes []int) []int {
	a := h.s.away
	if a == nil {
		return indexes
	}
	a.mu.Lock()
	a.forget()
	if len(a.byTopic[topic]) == 0 {
		a.mu.Unlock()
		return indexes
	}
	var rest, probes []int
	targets, held := map[int]partition{}, map[partition][]int{}
	asked := map[partition]bool{}
	for _, i := range indexes {
		at, away, probe := a.decide(ToSarama(h.msgs[i]), all)
		switch {
		case !away:
			rest = append(rest, i)
		case probe:
			probes, targets[i], asked[at] = append(probes, i), at, true
		default:
			held[at] = append(held[at], i)
		}
	}
	a.mu.Unlock()
	for at, some := range held {
		if asked[at] {
			h.wait(at, some)
		} else { // the probe belongs to another call
			h.fail(some)
		}
	}
	for _, i := range probes {
		h.sendProbe(ctx, i, targets[i])
	}
	return rest
}

func (h *heldBack) wait(at partition, indexes []int) {
	if h.waiting == nil {
		h.waiting = map[partition][]int{}
	}
	h.waiting[at] = indexes
}

// sendProbe sends a message to a partition that is away.
func (h *heldBack) sendProbe(ctx context.Context, i int, at partition) {
	if h.results == nil {
		h.results, h.asking = make(chan result, len(h.msgs)), map[int]partition{}
		h.timer = time.NewTimer(probeWait)
		h.over = h.timer.C
	}
	m := h.msgs[i]
	if err := h.s.enqueue(ctx, m, &origin{index: i, results: h.results, probe: &at}); err != nil {
		h.s.away.note(ToSarama(m), nil, err, &at)
		h.errs[i] = fmt.Errorf("%w: %w", errNotSent, err)
		h.fail(h.waiting[at])
		delete(h.waiting, at)
		return
	}
	h.errs[i] = errNoAnswer
	h.asking[i] = at
}

// answered returns the messages that may be sent after the result of a probe. The result came soon,
// be it good or bad, so the others will come soon too.
func (h *heldBack) answered(r result) []int {
	at := h.asking[r.index]
	delete(h.asking, r.index)
	h.errs[r.index] = r.err
	free := h.waiting[at]
	delete(h.waiting, at)
	return free
}

// giveUp stops waiting for the probes in flight.
func (h *heldBack) giveUp() {
	for i, at := range h.asking {
		h.errs[i] = fmt.Errorf("%w: %w", errNoAnswer, errPartitionAway)
		h.fail(h.waiting[at])
		delete(h.waiting, at)
	}
	clear(h.asking)
	h.timer.Reset(probeWait) // for topics that are still looked up
}

func (h *heldBack) fail(indexes []int) {
	for _, i := range indexes {
		h.errs[i] = fmt.Errorf("%w: %w", errNotSent, errPartitionAway)
	}
}

func (h *heldBack) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
}
