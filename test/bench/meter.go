package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// meter counts the effects of one run, and the time from the first handled event to the last
// effect. Joining the group and the first fetch are excluded.
type meter struct {
	seen []atomic.Uint32 // effects by event
	left atomic.Int64

	calls atomic.Int64 // of a batch handler

	start  sync.Once
	began  time.Time
	ended  time.Time
	before runtime.MemStats
	after  runtime.MemStats
	cpu    time.Duration
	done   chan struct{} // closed at the last expected effect
}

// newMeter waits for events effects, or for that many calls of count.
func newMeter(events, wait int) *meter {
	m := &meter{seen: make([]atomic.Uint32, events), done: make(chan struct{})}
	m.left.Store(int64(wait))
	return m
}

// begin starts the clock, at the first call.
func (m *meter) begin() {
	m.start.Do(func() {
		runtime.ReadMemStats(&m.before)
		m.cpu = cpuTime()
		m.began = time.Now()
	})
}

// effect counts an effect of event seq.
func (m *meter) effect(seq int) {
	if m.seen[seq].Add(1) == 1 {
		m.count(1)
	}
}

// count counts n effects or deliveries.
func (m *meter) count(n int) {
	if n > 0 && m.left.Add(int64(-n)) == 0 {
		m.stop()
		close(m.done)
	}
}

func (m *meter) stop() {
	m.ended = time.Now()
	m.cpu = cpuTime() - m.cpu
	runtime.ReadMemStats(&m.after)
}

// each returns an error unless every event had n effects.
func (m *meter) each(n uint32) error {
	bad, example := 0, 0
	for i := range m.seen {
		if m.seen[i].Load() != n {
			bad, example = bad+1, i
		}
	}
	if bad > 0 {
		return fmt.Errorf(
			"%d of %d events did not have %d effects: event %d had %d",
			bad,
			len(m.seen),
			n,
			example,
			m.seen[example].Load(),
		)
	}
	return nil
}

// firstError keeps the first of many errors. Safe for concurrent use.
type firstError struct {
	mu    sync.Mutex
	err   error
	found chan struct{}
}

func newFirstError() *firstError { return &firstError{found: make(chan struct{})} }

func (f *firstError) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.err == nil {
		f.err = err
		close(f.found)
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
