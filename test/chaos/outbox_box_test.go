package chaos

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// mailbox has the parts that relayworkers work on: a database with an outbox, a topic.
type mailbox struct {
	t            testing.TB
	kafka        *cluster
	topic, group string
	partitions   int32
	db           outboxDB
	pg           *postgresBox // nil on other databases
	entry        func(emission) outbox.Entry
	flags        []string // of relays
}

// emptyMailbox returns a mailbox without a database.
func emptyMailbox(t testing.TB, brokers []string, partitions int32) *mailbox {
	t.Helper()
	b := &mailbox{t: t, kafka: newCluster(t, brokers), partitions: partitions}
	b.topic, b.group = b.kafka.topic("outbox", partitions)
	b.entry = func(e emission) outbox.Entry { return e.entry(b.topic) }
	return b
}

// exec runs a statement in Postgres.
func (b *mailbox) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pg.pool.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err, sql)
}

// count returns the number that a query of portable SQL selects.
func (b *mailbox) count(query string) (n int) {
	b.t.Helper()
	rows, err := b.db.query(b.t.Context(), query)
	require.NoError(b.t, err, query)
	require.True(b.t, rows.Next(), query)
	require.NoError(b.t, rows.Scan(&n), query)
	closeRows(b.t, rows)
	return n
}

// waiting is how many rows no relay has marked.
func (b *mailbox) waiting() int {
	b.t.Helper()
	return b.count(`SELECT count(*) FROM idem_outbox WHERE state = 0`)
}

// waitEmpty waits until the outbox has no waiting rows, and requires that it has no other rows.
func (b *mailbox) waitEmpty(limit time.Duration, relays ...*proc) {
	b.t.Helper()
	said := func() (s string) {
		for _, p := range relays {
			s += fmt.Sprintf("\n%s: %s\n%s", p, p.stdout.tail(3), p.stderr.tail(10))
		}
		return s
	}
	ok := false
	for end := time.Now().Add(limit); !ok && time.Now().Before(end); ok = b.waiting() == 0 {
		waitABit(b.t)
	}
	require.True(b.t, ok, "%d rows are not sent after %s%s", b.waiting(), limit, said())
	require.Zero(b.t, b.count(`SELECT count(*) FROM idem_outbox`), "parked, blocked or kept")
}

// waitABit is the pause of a loop that polls.
func waitABit(t testing.TB) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-t.Context().Done():
	}
}

// relay starts a relay as a process of its own.
func (b *mailbox) relay(name string, flags ...string) *proc {
	b.t.Helper()
	args := slices.Concat([]string{"-brokers", b.kafka.brokers[0]}, b.db.relayFlags(), b.flags, flags)
	return start(b.t, name, programs.path(b.t, "relayworker"), nil, args...)
}

// sentBy is how many rows this process has sent.
func sentBy(p *proc) int {
	lines := p.stdout.lines("round total=")
	if len(lines) == 0 {
		return 0
	}
	m := roundTotal.FindStringSubmatch(lines[len(lines)-1])
	if m == nil {
		return 0 // cut short by a kill
	}
	n, _ := strconv.Atoi(m[1]) // digits
	return n
}

var roundTotal = regexp.MustCompile(`total=(\d+) `)

// emission is an event that a transaction emits: the transaction, the number of the event in it,
// and the aggregate.
type emission struct{ tx, n, aggregate int }

func (e emission) key() string { return fmt.Sprintf("aggregate-%04d", e.aggregate) }

// parent is the event that every fourth emission has its ID from.
func (e emission) parent() dedup.Key {
	return dedup.Key{Scope: "chaos", Type: "tx", ID: strconv.Itoa(e.tx)}
}

func (e emission) named() bool { return (e.tx+e.n)%4 == 0 }

func (e emission) entry(topic string) outbox.Entry {
	entry := outbox.Entry{
		Topic: topic, Key: e.key(), Type: fmt.Sprintf("chaos.type%d", e.n%3),
		Headers: []idem.Header{{Key: "tenant", Value: fmt.Append(nil, "tenant-", e.tx%7)}, {Key: "bytes", Value: []byte{0xff, 0, byte(e.n)}}},
	}
	if e.n%5 == 0 {
		entry.Headers = append(entry.Headers, idem.Header{Key: "nothing"})
	}
	if (e.tx+e.n)%13 != 0 { // else a tombstone
		entry.Payload = fmt.Appendf(nil, `{"tx":%d,"n":%d,"aggregate":%d,"note":"%0200d"}`, e.tx, e.n, e.aggregate, e.n)
	}
	if e.named() {
		entry.Parent, entry.Name = e.parent(), fmt.Sprint("line-", e.n)
	} else {
		entry.ID = fmt.Sprintf("evt-%d-%d", e.tx, e.n)
	}
	return entry
}

// id is the ID that consumers must see.
func id(e *outbox.Entry) string {
	if e.ID != "" {
		return e.ID
	}
	return outbox.ID(e.Parent, e)
}

// committed returns all that was committed, of each aggregate in the order of the commits.
func (b *mailbox) committed() []emission {
	b.t.Helper()
	rows, err := b.db.query(b.t.Context(), b.db.committed())
	require.NoError(b.t, err)
	var all []emission
	for rows.Next() {
		var e emission
		require.NoError(b.t, rows.Scan(&e.tx, &e.n, &e.aggregate))
		all = append(all, e)
	}
	closeRows(b.t, rows)
	return all
}

// records returns all that is in the topic, those of each partition in order.
func (b *mailbox) records() (all []*kgo.Record) {
	b.t.Helper()
	ends, err := b.kafka.ends(b.topic)
	require.NoError(b.t, err)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.kafka.brokers...), kgo.ConsumeTopics(b.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(b.t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for want := sum(ends); int64(len(all)) < want; {
		fetches := client.PollFetches(ctx)
		require.NoError(b.t, ctx.Err(), "%d of %d records", len(all), want)
		all = append(all, fetches.Records()...)
	}
	return all
}

// verdict is the result of judge.
type verdict struct {
	records, repeats int
	missing          []emission // events without a record
	disorder         []string   // events that came after a later one of their aggregate
}

// place is the place of an event among those of its aggregate, in the order of the commits, from 1.
type place struct {
	emission
	rank int
}

func (b *mailbox) places(events []emission) map[string]place {
	b.t.Helper()
	places, ranks := make(map[string]place, len(events)), make(map[int]int)
	for _, e := range events {
		entry := b.entry(e)
		ranks[e.aggregate]++
		places[id(&entry)] = place{e, ranks[e.aggregate]}
	}
	require.Len(b.t, places, len(events), "the test itself has given one ID twice")
	return places
}

// requireSent looks at all records. Each committed event must be there, unchanged and in its
// partition, and no other event. Each aggregate's first records must be in the order of the
// commits. Events for which lost returns true may be missing. Without lost, no event may be
// missing.
func (b *mailbox) requireSent(events []emission, lost func(emission) bool) verdict {
	b.t.Helper()
	v := b.judge(events)
	missing := slices.DeleteFunc(v.missing, func(e emission) bool { return lost != nil && lost(e) })
	require.Empty(b.t, head(missing), "%d of %d events are missing", len(missing), len(events))
	require.Empty(b.t, head(v.disorder), "%d events are not in the order of the commits", len(v.disorder))
	return v
}

// judge is requireSent without the checks for missing events and for the order.
func (b *mailbox) judge(events []emission) (v verdict) {
	b.t.Helper()
	places, seen, last := b.places(events), make(map[string]bool, len(events)), make(map[int]int)
	partition := kgo.StickyKeyPartitioner(nil).ForTopic(b.topic) // murmur2, as in Kafka's own clients
	records := b.records()
	for _, r := range records {
		name := header(r, outbox.HeaderID)
		p, ok := places[name]
		if !ok {
			require.Fail(b.t, "sent and never committed", "event %q in partition %d at %d", name, r.Partition, r.Offset)
		}
		entry := b.entry(p.emission)
		entry.ID = name
		b.requireRecord(&entry, r)
		if at := partition.Partition(&kgo.Record{Key: r.Key}, int(b.partitions)); at != int(r.Partition) {
			require.Fail(b.t, "in another partition than Java's clients choose", "%s: %d, not %d", r.Key, r.Partition, at)
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		if before := last[p.aggregate]; p.rank < before {
			v.disorder = append(v.disorder, fmt.Sprintf("%s: %s is number %d, and came after number %d", p.key(), name, p.rank, before))
		}
		last[p.aggregate] = max(last[p.aggregate], p.rank)
	}
	for name, p := range places {
		if !seen[name] {
			v.missing = append(v.missing, p.emission)
		}
	}
	v.records, v.repeats = len(records), len(records)-len(seen)
	return v
}

// requireRecord compares a record with the emitted event.
func (b *mailbox) requireRecord(e *outbox.Entry, r *kgo.Record) {
	b.t.Helper()
	want := append([]kgo.RecordHeader{{Key: outbox.HeaderID, Value: []byte(e.ID)}, {Key: outbox.HeaderType, Value: []byte(e.Type)}},
		make([]kgo.RecordHeader, len(e.Headers))...)
	for i, h := range e.Headers {
		want[2+i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
	}
	same := string(r.Key) == e.Key && bytes.Equal(r.Value, e.Payload) && (r.Value == nil) == (e.Payload == nil) &&
		slices.EqualFunc(want, r.Headers, func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && bytes.Equal(a.Value, b.Value) })
	if !same { // require, for each of so many, takes its time
		require.Fail(b.t, "another record than what was emitted", "%s: key %q, headers %v, value %q, wanted %q, %v, %q",
			e.ID, r.Key, r.Headers, r.Value, e.Key, want, e.Payload)
	}
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// head is the part that fits a message.
func head[T any](s []T) []T { return s[:min(len(s), 5)] }

// tail reads a topic as it grows, and knows when each event first came.
type tail struct {
	t    testing.TB
	mu   sync.Mutex
	came map[string]time.Time
}

func (b *mailbox) tail() *tail {
	b.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.kafka.brokers...), kgo.ConsumeTopics(b.topic), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(b.t, err)
	tl := &tail{t: b.t, came: make(map[string]time.Time)}
	ctx, cancel := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	reader.Go(func() {
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			now := time.Now()
			tl.mu.Lock()
			fetches.EachRecord(func(r *kgo.Record) {
				if name := header(r, outbox.HeaderID); tl.came[name].IsZero() {
					tl.came[name] = now
				}
			})
			tl.mu.Unlock()
		}
	})
	b.t.Cleanup(func() {
		cancel()
		reader.Wait()
		client.Close()
	})
	return tl
}

// wait returns when the event came.
func (tl *tail) wait(name string, limit time.Duration) (at time.Time) {
	tl.t.Helper()
	for end := time.Now().Add(limit); at.IsZero() && time.Now().Before(end); waitABit(tl.t) {
		tl.mu.Lock()
		at = tl.came[name]
		tl.mu.Unlock()
	}
	require.False(tl.t, at.IsZero(), "event %s has not come after %s", name, limit)
	return at
}
