package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// event names an event of the demonstration. An ID is unique within its channel only.
type event struct{ channel, id string }

// provider stands for the services that deliver mail, SMS and push messages. The provider records
// all notifications and ignores idempotency keys, so that a repeat goes out and is visible.
type provider struct {
	mu     sync.Mutex
	taken  map[event]int
	keys   map[event]string
	sends  int
	mixups int // repeats with another key
}

func newProvider() *provider {
	return &provider{taken: make(map[event]int), keys: make(map[event]string)}
}

func (p *provider) take(e event, key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sends++
	p.taken[e]++
	if first, again := p.keys[e]; again && first != key {
		p.mixups++
	}
	p.keys[e] = key
}

// count returns the number of sent notifications, repeats included.
func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sends
}

// slowSender is the sender of one worker. A notification takes time until the provider has it, and
// time until the answer is back. The worker may be unplugged in either.
type slowSender struct {
	provider *provider
	plug     *plug
	before   time.Duration // maximum until the provider has it
	after    time.Duration // maximum until the answer is back
	inFlight atomic.Int32
	begun    chan struct{} // signals a begun send to a listener
}

func (s *slowSender) Send(ctx context.Context, n notification, key string) error {
	if _, _, err := render(n); err != nil {
		return err
	}
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	select {
	case s.begun <- struct{}{}:
	default:
	}
	if err := s.pause(ctx, s.before); err != nil {
		return err
	}
	err := s.plug.do(func() error {
		s.provider.take(event{n.Type, n.EventID}, key)
		return nil
	})
	if err != nil {
		<-ctx.Done()
		return err
	}
	return s.pause(ctx, s.after)
}

// pause waits. If the plug is out, it does not end by itself.
func (s *slowSender) pause(ctx context.Context, most time.Duration) error {
	t := time.NewTimer(rand.N(most))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.plug.out:
		<-ctx.Done()
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}
