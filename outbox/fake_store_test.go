package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/outbox"
)

type state int

const (
	waiting state = iota
	sent
	parked
	blocked
)

type record struct {
	outbox.Row
	state  state
	reason string
}

// table is the store that all relays of a test share. It implements the contract exactly, and notes
// violations. It never waits while it is locked. Its clock is that of the bubble.
type table struct {
	broker *broker

	mu       sync.Mutex
	seq      int64
	rows     map[int64]*record
	shards   [outbox.Shards][]*record // by Seq
	owners   [outbox.Shards]owner
	alive    map[string]time.Time
	order    map[outbox.Aggregate][]string // IDs in the order of commits
	keyless  []string
	counts   [4]int // of rows, by state
	kept     int
	problems []string
}

type owner struct {
	relay string
	epoch int64
	until time.Time
}

func newTable(b *broker) *table {
	return &table{broker: b, rows: map[int64]*record{}, alive: map[string]time.Time{}, order: map[outbox.Aggregate][]string{}}
}

func (t *table) problem(format string, args ...any) {
	t.problems = append(t.problems, fmt.Sprintf(format, args...))
}

// draw takes a number of the sequence, as an INSERT does; commit makes the row visible.
func (t *table) draw() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seq++
	return t.seq
}

func shardOf(e outbox.Entry, seq int64) int {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s/%s", e.Topic, e.Key)
	if e.Key == "" {
		_, _ = fmt.Fprint(h, seq)
	}
	return int(h.Sum32() % outbox.Shards)
}

func (t *table) commit(seq int64, e outbox.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &record{Row: outbox.Row{Seq: seq, Shard: shardOf(e, seq), Entry: e, Added: time.Now()}}
	t.rows[seq] = r
	t.counts[waiting]++
	list := t.shards[r.Shard]
	at, _ := slices.BinarySearchFunc(list, seq, func(r *record, seq int64) int { return int(r.Seq - seq) })
	t.shards[r.Shard] = slices.Insert(list, at, r)
	if e.Key == "" {
		t.keyless = append(t.keyless, e.ID)
		return
	}
	t.order[outbox.Aggregate{Topic: e.Topic, Key: e.Key}] = append(t.order[outbox.Aggregate{Topic: e.Topic, Key: e.Key}], e.ID)
}

// add commits an entry at once.
func (t *table) add(topic, key, id string) int64 {
	seq := t.draw()
	t.commit(seq, outbox.Entry{Topic: topic, Key: key, ID: id, Type: "test", Payload: []byte("secret " + id)})
	return seq
}

func (t *table) states() map[string]state {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := map[string]state{}
	for _, r := range t.rows {
		m[r.Entry.ID] = r.state
	}
	return m
}

func (t *table) count(s state) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[s]
}

func (t *table) set(r *record, s state) {
	t.counts[r.state]--
	t.counts[s]++
	r.state = s
}

func (t *table) owned() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := map[string]int{}
	for _, o := range &t.owners {
		if time.Now().Before(o.until) {
			m[o.relay]++
		}
	}
	return m
}

// seize gives all shards to another relay.
func (t *table) seize(relay string, lease time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.owners {
		t.owners[i] = owner{relay: relay, epoch: t.owners[i].epoch + 1, until: time.Now().Add(lease)}
	}
}

func (t *table) Hold(_ context.Context, relay string, lease time.Duration, share bool) ([]outbox.Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.alive[relay] = now.Add(lease)
	alive, before := 0, 0
	for name, until := range t.alive {
		if now.Before(until) {
			alive++
			if name < relay {
				before++
			}
		}
	}
	fair := outbox.Shards / alive
	if before < outbox.Shards%alive {
		fair++
	}
	var held []outbox.Lease
	for i := range t.owners {
		o := &t.owners[i]
		if o.relay != relay {
			continue
		}
		if share && len(held) == fair {
			o.relay, o.until = "", time.Time{}
			continue
		}
		o.until = now.Add(lease)
		held = append(held, outbox.Lease{Shard: i, Epoch: o.epoch})
	}
	for i := range t.owners {
		o := &t.owners[i]
		if !share || len(held) == fair || o.relay == relay || now.Before(o.until) {
			continue
		}
		*o = owner{relay: relay, epoch: o.epoch + 1, until: now.Add(lease)}
		held = append(held, outbox.Lease{Shard: i, Epoch: o.epoch})
	}
	return held, nil
}

func (t *table) Leave(_ context.Context, relay string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.alive, relay)
	for i := range t.owners {
		if t.owners[i].relay == relay {
			t.owners[i].relay, t.owners[i].until = "", time.Time{}
		}
	}
	return nil
}

func (t *table) Fetch(_ context.Context, f outbox.Fetch) (rows []outbox.Row, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	quota, bytes := (f.Limit+len(f.Shards)-1)/len(f.Shards), 0
	skip, skipRows := map[outbox.Aggregate]bool{}, map[int64]bool{}
	for _, a := range f.Skip {
		skip[a] = true
	}
	for _, seq := range f.SkipRows {
		skipRows[seq] = true
	}
	for _, l := range f.Shards {
		n, halted, overtakes := 0, map[outbox.Aggregate]bool{}, map[outbox.Aggregate]bool{}
		for _, r := range t.shards[l.Shard] {
			a := outbox.Aggregate{Topic: r.Entry.Topic, Key: r.Entry.Key}
			if r.state == parked && a.Key != "" {
				halted[a] = true
			}
			overtakes[a] = overtakes[a] || r.state == blocked
			if r.state != waiting || skipRows[r.Seq] || (a.Key != "" && skip[a]) {
				continue
			}
			if bytes += r.Entry.Size(); n == quota || len(rows) == f.Limit || (bytes > f.Bytes && len(rows) > 0) {
				break
			}
			row := r.Row
			row.Blocked = halted[a] && (f.Halt || overtakes[a])
			rows, n = append(rows, row), n+1
		}
	}
	return rows, nil
}

func (t *table) Settle(_ context.Context, relay string, held []outbox.Lease, s outbox.Settlement) (lost []int, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range slices.Concat(s.Sent, s.Blocked, slices.Collect(maps.Keys(s.Parked))) {
		if t.rows[id.Seq].RowID() != id {
			t.problem("O-16: %v is settled with the ID of another event", id)
		}
	}
	mine := func(r *record) bool {
		o := t.owners[r.Shard]
		if o.relay == relay && slices.Contains(held, outbox.Lease{Shard: r.Shard, Epoch: o.epoch}) {
			return true
		}
		if !slices.Contains(lost, r.Shard) {
			lost = append(lost, r.Shard)
		}
		return false
	}
	for _, id := range s.Sent {
		r := t.rows[id.Seq]
		if !t.broker.isAcked(r.Entry.ID) {
			t.problem("O-08: %s is settled as sent, but was never acknowledged", r.Entry.ID)
		}
		if mine(r) {
			t.set(r, sent)
			if s.Keep {
				t.kept++
			}
		}
	}
	for id, reason := range s.Parked {
		if r := t.rows[id.Seq]; mine(r) {
			t.set(r, parked)
			r.reason = reason
		}
	}
	for _, id := range s.Blocked {
		if r := t.rows[id.Seq]; mine(r) && t.isBehind(r) {
			t.set(r, blocked)
		}
	}
	return lost, nil
}

func (t *table) isBehind(r *record) bool {
	return slices.ContainsFunc(t.shards[r.Shard], func(p *record) bool {
		return p.state == parked && p.Seq < r.Seq && p.Entry.Topic == r.Entry.Topic && p.Entry.Key == r.Entry.Key && r.Entry.Key != ""
	})
}

func (t *table) keeps() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept
}

func (t *table) Purge(_ context.Context, _ time.Duration, limit int) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(limit, t.kept)
	t.kept -= n
	return int64(n), nil
}

func (t *table) Backlog(context.Context, int) (b outbox.Backlog, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rows {
		switch r.state {
		case waiting:
			b.Waiting++
			b.Oldest = max(b.Oldest, time.Since(r.Added))
		case parked:
			b.Parked++
		case blocked:
			b.Blocked++
		case sent:
		}
	}
	return b, nil
}

var errDatabase = errors.New("database is away")

// faults is a store that can fail. Each function, if set, is called before the store.
type faults struct {
	outbox.Store
	held   func() int                                   // how many messages are under way
	before func(ctx context.Context, call string) error // the call is not made
	after  func(ctx context.Context, call string) error // the call was made, its answer is lost

	mu       sync.Mutex
	calls    []string
	problems []string
}

func (f *faults) around(ctx context.Context, call string, fn func() error) error {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	if call == "fetch" && f.held() > 0 {
		f.problems = append(f.problems, "O-15: fetched while the fate of a batch is not known")
	}
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(ctx, call); err != nil {
			return err
		}
	}
	err := fn()
	if err == nil && f.after != nil {
		err = f.after(ctx, call)
	}
	return err
}

func (f *faults) count(call string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (f *faults) Hold(ctx context.Context, relay string, lease time.Duration, share bool) (l []outbox.Lease, err error) {
	call := "renew"
	if share {
		call = "share"
	}
	err = f.around(ctx, call, func() error { l, err = f.Store.Hold(ctx, relay, lease, share); return err })
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (f *faults) Leave(ctx context.Context, relay string) error {
	return f.around(ctx, "leave", func() error { return f.Store.Leave(ctx, relay) })
}

func (f *faults) Fetch(ctx context.Context, q outbox.Fetch) (rows []outbox.Row, err error) {
	err = f.around(ctx, "fetch", func() error { rows, err = f.Store.Fetch(ctx, q); return err })
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func (f *faults) Settle(ctx context.Context, relay string, held []outbox.Lease, s outbox.Settlement) (lost []int, err error) {
	err = f.around(ctx, "settle", func() error { lost, err = f.Store.Settle(ctx, relay, held, s); return err })
	if err != nil {
		return nil, err
	}
	return lost, nil
}

func (f *faults) Purge(ctx context.Context, keep time.Duration, limit int) (n int64, err error) {
	err = f.around(ctx, "purge", func() error { n, err = f.Store.Purge(ctx, keep, limit); return err })
	return n, err
}

func (f *faults) Backlog(ctx context.Context, limit int) (b outbox.Backlog, err error) {
	err = f.around(ctx, "backlog", func() error { b, err = f.Store.Backlog(ctx, limit); return err })
	return b, err
}
