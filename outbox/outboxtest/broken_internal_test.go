package outboxtest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

// recorder notes the failure of a case instead of failing the test.
type recorder struct {
	testing.TB
	mu      sync.Mutex
	failure string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
}

func (r *recorder) FailNow() { runtime.Goexit() }

// verdictOf runs one case against an outbox and returns its failure, or "".
func verdictOf(t *testing.T, name string, of func(*memory) Outbox) (failure string) {
	all := tests[*memoryTx]()
	i := slices.IndexFunc(all, func(c testCase[*memoryTx]) bool { return c.name == name })
	require.GreaterOrEqual(t, i, 0, "no case %q", name)
	synctest.Test(t, func(t *testing.T) {
		r, ended := &recorder{TB: t}, make(chan struct{})
		k := newKit(r, memorySite(of)(r))
		go func() {
			defer close(ended)
			all[i].run(k)
		}()
		<-ended
		failure = r.failure
	})
	return failure
}

// holdsFor is an outbox whose leases differ from those that relays ask for.
type holdsFor struct {
	*memory
	lease func(time.Duration) time.Duration
}

func (h *holdsFor) Hold(
	ctx context.Context, relay string, lease time.Duration, share bool,
) ([]outbox.Lease, error) {
	return h.memory.Hold(ctx, relay, h.lease(lease), share)
}

// oldEpochs is an outbox whose shards keep their epochs when they are taken over.
type oldEpochs struct{ *memory }

func (o *oldEpochs) Hold(
	ctx context.Context, relay string, lease time.Duration, share bool,
) ([]outbox.Lease, error) {
	held, err := o.memory.Hold(ctx, relay, lease, share)
	for i := range held {
		held[i].Epoch = 1
	}
	return held, err
}

// smallRows is an outbox that never returns a row above Bytes.
type smallRows struct{ *memory }

func (s *smallRows) Fetch(ctx context.Context, f outbox.Fetch) ([]outbox.Row, error) {
	rows, err := s.memory.Fetch(ctx, f)
	if len(rows) > 0 && rows[0].Entry.Size() > f.Bytes {
		return nil, err
	}
	return rows, err
}

// passesOver is an outbox that returns the rows behind a row above Bytes.
type passesOver struct{ *memory }

func (p *passesOver) Fetch(ctx context.Context, f outbox.Fetch) (kept []outbox.Row, err error) {
	bytes := f.Bytes
	f.Bytes = 1 << 30
	rows, err := p.memory.Fetch(ctx, f)
	for _, r := range rows {
		if bytes -= r.Entry.Size(); bytes >= 0 {
			kept = append(kept, r)
		} else {
			bytes += r.Entry.Size()
		}
	}
	return kept, err
}

// leavesAll is an outbox in which Leave gives up the shards of all relays. ends: their leases end,
// but the relays stay their holders.
type leavesAll struct {
	*memory
	ends bool
}

func (l *leavesAll) Leave(ctx context.Context, relay string) error {
	err := l.memory.Leave(ctx, relay)
	for i := range l.holders {
		if l.ends {
			l.holders[i].until = time.Now()
		} else {
			l.holders[i].relay = ""
		}
	}
	return err
}

// longReasons is an outbox that returns more of a reason than 1 KiB.
type longReasons struct{ *memory }

func (l *longReasons) Parked(ctx context.Context, limit int) ([]outbox.Parked, error) {
	all, err := l.memory.Parked(ctx, limit)
	for i := range all {
		if len(all[i].Error) == 1<<10 {
			all[i].Error += "ü"
		}
	}
	return all, err
}

// byNumber is an outbox that settles rows by their number only.
type byNumber struct{ *memory }

func (b *byNumber) Settle(
	ctx context.Context, relay string, held []outbox.Lease, s outbox.Settlement,
) ([]int, error) {
	numbered := outbox.Settlement{Keep: s.Keep, Parked: map[outbox.RowID]string{}}
	for _, r := range b.rows {
		same := func(id outbox.RowID) bool { return id.Seq == r.Seq }
		if slices.ContainsFunc(s.Sent, same) {
			numbered.Sent = append(numbered.Sent, r.RowID())
		}
		if slices.ContainsFunc(s.Blocked, same) {
			numbered.Blocked = append(numbered.Blocked, r.RowID())
		}
		for id, reason := range s.Parked {
			if same(id) {
				numbered.Parked[r.RowID()] = reason
			}
		}
	}
	return b.memory.Settle(ctx, relay, held, numbered)
}

// actsByNumber is an outbox that retries and skips rows by their number only.
type actsByNumber struct{ *memory }

func (a *actsByNumber) Retry(ctx context.Context, row outbox.RowID) error {
	return a.memory.Retry(ctx, a.numbered(row))
}

func (a *actsByNumber) Skip(ctx context.Context, row outbox.RowID) error {
	return a.memory.Skip(ctx, a.numbered(row))
}

func (a *actsByNumber) numbered(row outbox.RowID) outbox.RowID {
	for _, r := range a.rows {
		if r.Seq == row.Seq {
			return r.RowID()
		}
	}
	return row
}

// Each case refutes the outbox that breaks its promise, and only the promise is broken.
func TestBrokenStoresFail(t *testing.T) {
	for _, c := range []struct {
		name   string
		outbox func(*memory) Outbox
		test   string
	}{
		{"never a row above Bytes", func(m *memory) Outbox { return &smallRows{m} }, "RowAboveBytes"},
		{"rows overtake one above Bytes", func(m *memory) Outbox { return &passesOver{m} },
			"RowAboveBytes"},
		{"all leases are of 30 s", func(m *memory) Outbox {
			return &holdsFor{m, func(time.Duration) time.Duration { return 30 * time.Second }}
		}, "LeasesEnd"},
		{"all leases are of 1 s", func(m *memory) Outbox {
			return &holdsFor{m, func(time.Duration) time.Duration { return time.Second }}
		}, "LeasesEnd"},
		{"leases are in milliseconds", func(m *memory) Outbox {
			return &holdsFor{m, func(d time.Duration) time.Duration { return d / 1000 }}
		}, "LeasesEnd"},
		{"a shard that is taken over keeps its epoch",
			func(m *memory) Outbox { return &oldEpochs{m} }, "LeasesEnd"},
		{"Leave frees all shards", func(m *memory) Outbox { return &leavesAll{m, false} },
			"LeaveIsOfOneRelay"},
		{"Leave ends all leases", func(m *memory) Outbox { return &leavesAll{m, true} },
			"LeaveIsOfOneRelay"},
		{"rows are settled by their number", func(m *memory) Outbox { return &byNumber{m} },
			"NumberGivenTwice"},
		{"a person retries and skips by number", func(m *memory) Outbox { return &actsByNumber{m} },
			"ParkedNumberGivenTwice"},
		{"reasons of more than 1 KiB", func(m *memory) Outbox { return &longReasons{m} }, "States"},
	} {
		t.Run(c.name, func(t *testing.T) {
			failure := verdictOf(t, c.test, c.outbox)
			require.NotEmpty(t, failure, "no case refutes the outbox")
			t.Log(failure)
			sound := verdictOf(t, c.test, func(m *memory) Outbox { return m })
			require.Empty(t, sound, "a sound outbox passes")
		})
	}
}
