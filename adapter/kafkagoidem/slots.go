package kafkagoidem

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// errClosed means that Close came before the request.
var errClosed = fmt.Errorf("producer is closed: %w", io.ErrClosedPipe)

// slots lets one request at a time go to a partition. A request keeps its slot until its own end,
// also if its caller has left. So attempts that ran out of time leave no queue behind.
// Safe for concurrent use.
type slots struct {
	closing context.Context
	end     context.CancelFunc
	busy    sync.WaitGroup // calls and requests

	mu sync.Mutex
	of map[partition]chan struct{}
}

func newSlots() *slots {
	s := &slots{of: make(map[partition]chan struct{})}
	s.closing, s.end = context.WithCancel(context.Background())
	return s
}

// enter begins a call, which ends with leave. The error is errClosed.
func (s *slots) enter() (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return nil, errClosed
	}
	s.busy.Add(1)
	return s.busy.Done, nil
}

// send waits for the slot of p, and then for request. After ctx the request goes on alone. Only
// calls that have entered may send.
func (s *slots) send(ctx context.Context, p partition, request func() error) error {
	slot := s.slot(p)
	select {
	case slot <- struct{}{}:
	case <-ctx.Done():
		return s.unsent(ctx, p)
	case <-s.closing.Done():
		return s.unsent(ctx, p)
	}
	if err := s.unsent(ctx, p); err != nil { // a select with two ready cases takes any
		<-slot
		return err
	}
	answer := make(chan error, 1)
	s.busy.Go(func() {
		defer func() { <-slot }()
		answer <- request()
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unsent returns an error if no request of the call may begin any more.
func (s *slots) unsent(ctx context.Context, p partition) error {
	if s.closing.Err() != nil {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("not sent to %s/%d in time: %w", p.Topic, p.Partition, err)
	}
	return nil
}

func (s *slots) slot(p partition) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.of[p]
	if slot == nil {
		slot = make(chan struct{}, 1)
		s.of[p] = slot
	}
	return slot
}

// close lets no further request begin, and waits for those in flight and for the calls.
func (s *slots) close() {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.busy.Wait()
}
