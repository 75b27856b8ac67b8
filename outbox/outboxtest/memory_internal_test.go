package outboxtest

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// The states of rows, as [Site].States returns them.
const (
	waiting = iota
	sent
	parked
	blocked
)

type memoryRow struct {
	outbox.Row
	state  int
	reason string
	at     time.Time // of a parked or sent row
}

func (r *memoryRow) aggregate() outbox.Aggregate {
	return outbox.Aggregate{Topic: r.Entry.Topic, Key: r.Entry.Key}
}

type holder struct {
	relay string
	epoch int64
	until time.Time
}

// memory is a sound outbox in memory, for the cases of TestBrokenStoresFail. Its clock is that of
// the process. A transaction is a list of entries.
type memory struct {
	mu      sync.Mutex
	rows    []*memoryRow // by Seq
	seq     int64
	holders [outbox.Shards]holder
	alive   map[string]time.Time
}

type memoryTx struct{ entries []outbox.Entry }

// memorySite returns a site of the cases of TestBrokenStoresFail. of breaks a promise.
func memorySite(of func(*memory) Outbox) func(testing.TB) Site[*memoryTx] {
	return func(testing.TB) Site[*memoryTx] {
		m := &memory{alive: make(map[string]time.Time)}
		return Site[*memoryTx]{
			Outbox: of(m),
			Begin:  func(context.Context) (*memoryTx, error) { return &memoryTx{}, nil },
			Commit: func(_ context.Context, tx *memoryTx) error {
				m.commit(tx.entries)
				return nil
			},
			Rollback: func(context.Context, *memoryTx) error { return nil },
			Add: func(_ context.Context, tx *memoryTx, entries ...outbox.Entry) error {
				tx.entries = append(tx.entries, entries...)
				return nil
			},
			States:  m.states,
			LoseRow: m.lose,
		}
	}
}

func (m *memory) commit(entries []outbox.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		m.seq++
		h := fnv.New32a()
		_, _ = h.Write([]byte(e.Topic + "/" + e.Key))
		m.rows = append(m.rows, &memoryRow{Row: outbox.Row{Seq: m.seq, Added: time.Now(), Entry: e,
			Shard: int(h.Sum32() % outbox.Shards)}})
	}
}

func (m *memory) lose(_ context.Context, seq int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = slices.DeleteFunc(m.rows, func(r *memoryRow) bool { return r.Seq == seq })
	m.seq = seq - 1
	return nil
}

func (m *memory) states(context.Context) (map[string]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]int{}
	for _, r := range m.rows {
		all[r.Entry.ID] = r.state
	}
	return all, nil
}

// Hold implements [outbox.Store].
func (m *memory) Hold(
	_ context.Context, relay string, lease time.Duration, share bool,
) (held []outbox.Lease, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.alive[relay] = now.Add(lease)
	alive, before := 0, 0
	for name, until := range m.alive {
		if now.Before(until) {
			alive++
			before += (1 - cmp.Compare(name, relay)) / 2
		}
	}
	fair := (outbox.Shards + alive - 1 - before%alive) / alive
	for i := range m.holders {
		switch h := &m.holders[i]; {
		case h.relay != relay:
		case share && len(held) == fair:
			h.relay = ""
		default:
			h.until = now.Add(lease)
			held = append(held, outbox.Lease{Shard: i, Epoch: h.epoch})
		}
	}
	for i := range m.holders {
		h := &m.holders[i]
		free := h.relay == "" || h.relay != relay && !now.Before(h.until)
		if share && len(held) < fair && free {
			*h = holder{relay: relay, epoch: h.epoch + 1, until: now.Add(lease)}
			held = append(held, outbox.Lease{Shard: i, Epoch: h.epoch})
		}
	}
	slices.SortFunc(held, func(a, b outbox.Lease) int { return a.Shard - b.Shard })
	return held, nil
}

// Leave implements [outbox.Store].
func (m *memory) Leave(_ context.Context, relay string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.alive, relay)
	for i := range m.holders {
		if m.holders[i].relay == relay {
			m.holders[i].relay = ""
		}
	}
	return nil
}

// Fetch implements [outbox.Store], without skip lists and without the share of each shard.
func (m *memory) Fetch(_ context.Context, f outbox.Fetch) (found []outbox.Row, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size, halted, overtaken := 0, map[outbox.Aggregate]bool{}, map[outbox.Aggregate]bool{}
	for _, r := range m.rows {
		a := r.aggregate()
		halted[a] = halted[a] || r.state == parked
		overtaken[a] = overtaken[a] || r.state == blocked
		if r.state != waiting || !slices.ContainsFunc(f.Shards,
			func(l outbox.Lease) bool { return l.Shard == r.Shard }) {
			continue
		}
		size += r.Entry.Size()
		if len(found) == f.Limit || size > f.Bytes && len(found) > 0 {
			break
		}
		row := r.Row
		row.Blocked = halted[a] && (f.Halt || overtaken[a])
		found = append(found, row)
	}
	return found, nil
}

// Settle implements [outbox.Store].
func (m *memory) Settle(
	_ context.Context, relay string, held []outbox.Lease, s outbox.Settlement,
) (lost []int, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range held {
		if h := m.holders[l.Shard]; h.relay != relay || h.epoch != l.Epoch {
			lost = append(lost, l.Shard)
		}
	}
	for _, r := range slices.Clone(m.rows) {
		reason, park := s.Parked[r.RowID()]
		switch {
		case slices.Contains(lost, r.Shard) || r.state == sent:
		case slices.Contains(s.Sent, r.RowID()) && s.Keep:
			r.state, r.at = sent, time.Now()
		case slices.Contains(s.Sent, r.RowID()):
			m.remove(r)
		case park:
			r.state, r.reason, r.at = parked, cut(reason), time.Now()
		case slices.Contains(s.Blocked, r.RowID()) && m.behind(r):
			r.state = blocked
		}
	}
	return lost, nil
}

// cut returns the first KiB of a text, without NUL and invalid bytes.
func cut(text string) string {
	n := 0
	for i, c := range text {
		if c == 0 || c == '\uFFFD' || i+len(string(c)) > 1<<10 {
			break
		}
		n = i + len(string(c))
	}
	return text[:n]
}

func (m *memory) remove(row *memoryRow) {
	m.rows = slices.DeleteFunc(m.rows, func(r *memoryRow) bool { return r == row })
}

// behind reports whether a row is behind a parked row of its aggregate.
func (m *memory) behind(row *memoryRow) bool {
	return slices.ContainsFunc(m.rows, func(r *memoryRow) bool {
		return r.state == parked && r.Seq < row.Seq && r.aggregate() == row.aggregate()
	})
}

// Purge implements [outbox.Store].
func (m *memory) Purge(_ context.Context, keep time.Duration, _ int) (n int64, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = slices.DeleteFunc(m.rows, func(r *memoryRow) bool {
		if r.state == sent && time.Since(r.at) >= keep {
			n++
			return true
		}
		return false
	})
	return n, nil
}

// Backlog implements [outbox.Store]. No case of TestBrokenStoresFail calls Backlog.
func (*memory) Backlog(context.Context, int) (b outbox.Backlog, _ error) { return b, nil }

// Parked implements [outbox.Operator].
func (m *memory) Parked(_ context.Context, limit int) (all []outbox.Parked, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rows {
		if r.state != parked || len(all) == limit {
			continue
		}
		p := outbox.Parked{Row: r.Row, At: r.at, Error: r.reason}
		for _, b := range m.rows {
			if b.state == blocked && b.Seq > r.Seq && b.aggregate() == r.aggregate() {
				p.Behind++
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// Retry implements [outbox.Operator].
func (m *memory) Retry(_ context.Context, row outbox.RowID) error {
	return m.release(row, func(r *memoryRow) { r.state = waiting })
}

// Skip implements [outbox.Operator].
func (m *memory) Skip(_ context.Context, row outbox.RowID) error {
	return m.release(row, m.remove)
}

func (m *memory) release(row outbox.RowID, fn func(*memoryRow)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.IndexFunc(m.rows,
		func(r *memoryRow) bool { return r.RowID() == row && r.state == parked })
	if at < 0 {
		return fmt.Errorf("%w: %d of event %q", outbox.ErrNotParked, row.Seq, row.EventID)
	}
	fn(m.rows[at])
	for _, r := range m.rows {
		if r.state == blocked && !m.behind(r) {
			r.state = waiting
		}
	}
	return nil
}
