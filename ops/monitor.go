package ops

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// Monitor is an observer that keeps the state of this process for the page: counts by second and by
// minute, partitions, running handlers, and the latest problems. Give it to Config.Observers of the
// consumer (or of idem.Processor), and to [Config].Monitor. A Monitor needs about a megabyte of
// memory at most, and a few hundred nanoseconds for an event at most. Make it with [NewMonitor].
// Safe for concurrent use, and for several consumers at once.
type Monitor struct {
	began   time.Time
	total   [kinds]atomic.Uint64
	seconds *ring
	minutes *ring

	parts    partitionTable
	calls    callTable
	notices  noticeBoard
	failures failureTable
	age      atomic.Int64 // of the last duplicate, nanoseconds
}

const (
	keptSeconds = 5 * 60
	keptMinutes = 6 * 60
)

var (
	_ observe.SettledObserver    = (*Monitor)(nil)
	_ observe.CallObserver       = (*Monitor)(nil)
	_ observe.DuplicateObserver  = (*Monitor)(nil)
	_ observe.DeadLetterObserver = (*Monitor)(nil)
	_ observe.RetryObserver      = (*Monitor)(nil)
	_ observe.LostObserver       = (*Monitor)(nil)
	_ observe.StoreObserver      = (*Monitor)(nil)
	_ observe.StallObserver      = (*Monitor)(nil)
)

// NewMonitor returns a Monitor without events.
func NewMonitor() *Monitor {
	return &Monitor{began: time.Now(), seconds: newRing(keptSeconds), minutes: newRing(keptMinutes)}
}

// second returns the present second, from 1. The clock is monotonic.
func (m *Monitor) second() int64 { return int64(time.Since(m.began)/time.Second) + 1 }

func minuteOf(second int64) int64 { return (second-1)/60 + 1 }

// moment is the second and the minute of a count.
type moment struct{ second, minute int64 }

func (m *Monitor) moment() moment {
	s := m.second()
	return moment{s, minuteOf(s)}
}

func (m *Monitor) count(at moment, k kind, n int) {
	if n <= 0 {
		return
	}
	m.total[k].Add(uint64(n))
	m.seconds.add(at.second, k, uint64(n))
	m.minutes.add(at.minute, k, uint64(n))
}

// totals are the counts since the monitor was made.
func (m *Monitor) totals() (c counts) {
	for i := range c {
		c[i] = m.total[i].Load()
	}
	return c
}

// ObserveSettled counts deliveries by settlement.
func (m *Monitor) ObserveSettled(_ context.Context, e observe.SettledEvent) {
	at := m.moment()
	if !e.Deferred {
		m.count(at, kindDelivery, e.Total())
	}
	m.count(at, kindHandled,
		e.Counts[observe.SettledHandled]+e.Counts[observe.SettledUnprotected])
	m.count(at, kindDuplicate, e.Counts[observe.SettledDuplicate])
	m.count(at, kindSkipped, e.Counts[observe.SettledSkipped]+e.Counts[observe.SettledFallback])
}

// ObserveDuplicate counts deliveries of the same record. The other duplicates are copies.
func (m *Monitor) ObserveDuplicate(_ context.Context, e observe.DuplicateEvent) {
	if e.SameRecord {
		m.count(m.moment(), kindSame, 1)
	}
	if e.Age > 0 {
		m.age.Store(int64(e.Age))
	}
}

// ObserveDeadLetter counts dead letters, and keeps their errors.
func (m *Monitor) ObserveDeadLetter(_ context.Context, e observe.DeadLetterEvent) {
	at := m.moment()
	m.count(at, kindDeadLetter, 1)
	if !m.failures.room(at.second) {
		return
	}
	m.failures.note(
		failure{
			Key: e.Key, Origin: originOf(e.Message), Dead: true, Class: e.Class,
			Error: errorText(e.Err),
		},
	)
}

// ObserveRetry counts further attempts, and keeps the errors before them.
func (m *Monitor) ObserveRetry(_ context.Context, e observe.RetryEvent) {
	at := m.moment()
	if e.Deferred {
		m.count(at, kindBehind, 1)
		return
	}
	m.count(at, kindRetry, 1)
	if !m.failures.room(at.second) {
		return
	}
	m.failures.note(failure{
		Key: e.Key, Origin: originOf(e.Message), Attempt: e.Attempt, Delay: e.Delay,
		Topic: e.Topic, Error: errorText(e.Err),
	})
}

func originOf(m *idem.Message) dedup.Origin {
	if m == nil {
		return dedup.Origin{}
	}
	return dedup.Origin{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: m.Time}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return clip(
		strings.ReplaceAll(idem.ErrorText(err), "\n", "; "), maxErrorText,
	) // it quotes no data (G-04)
}
