package ops

import (
	"context"
	"errors"
	"sync"
	"time"
)

// The bounds of searches. Each may read a topic from end to end.
const (
	maxScans    = 4 // that run
	maxScansOf  = 2 // that run, of one person
	maxAskingOf = 8 // that run or wait, of one person
)

// places limits searches, in all and per person.
type places struct {
	free chan struct{} // full: as many run as may

	mu sync.Mutex
	of map[string]*placesOf
}

// placesOf are the places of one person, as long as a request of that person runs or waits.
type placesOf struct {
	turns  chan struct{}
	asking int
}

func newPlaces() *places {
	return &places{free: make(chan struct{}, maxScans), of: make(map[string]*placesOf)}
}

// enter waits for a place until limit is over, ctx ends or the page is closed. leave gives it back.
func (p *places) enter(
	ctx, closing context.Context, who string, limit time.Duration,
) (leave func(), err error) {
	mine, err := p.reserve(who)
	if err != nil {
		return nil, err
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	for i, c := range []chan struct{}{mine.turns, p.free} {
		select {
		case c <- struct{}{}:
			continue
		case <-t.C:
			err = errBusy
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-closing.Done():
			err = errClosed
		}
		if i > 0 {
			<-mine.turns
		}
		p.giveBack(who)
		return nil, err
	}
	return func() {
		<-p.free
		<-mine.turns
		p.giveBack(who)
	}, nil
}

func (p *places) reserve(who string) (*placesOf, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := p.of[who]
	if mine == nil {
		mine = &placesOf{turns: make(chan struct{}, maxScansOf)}
		p.of[who] = mine
	}
	if mine.asking >= maxAskingOf {
		return nil, errBusy
	}
	mine.asking++
	return mine, nil
}

func (p *places) giveBack(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := p.of[who]
	if mine.asking--; mine.asking == 0 {
		delete(p.of, who)
	}
}

// The reasons for a section without an answer.
var (
	errBusy     = errors.New("too many searches are under way, try again in a moment")
	errNoAnswer = errors.New("no answer in time")
	errClosed   = errors.New("the page was closed")
)
