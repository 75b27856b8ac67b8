package cells

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
	"github.com/idem-go/idem/outbox/sqloutbox/mysql"
)

// box is the outbox of one cell, and the broker that its relays publish to.
type box struct {
	t      testing.TB
	topic  string
	broker string
	client *kgo.Client
	kafka  *kafka
	base   *base
	insert func(context.Context, outbox.Entry) error
	count  func(context.Context) (n int, err error)
	added  map[string][]string // IDs by aggregate, in the order of commits
}

// newBox has an outbox of its own. The relays of other cells do not publish its rows. Rows of two
// aggregates wait.
func newBox(t testing.TB, s store, topic string, addrs []string, restarts bool) *box {
	t.Helper()
	k := startKafka(t, restarts, kfake.SeedTopics(1, topic))
	b := &box{t: t, topic: topic, broker: k.addr, kafka: k, added: make(map[string][]string)}
	var err error
	b.client, err = kgo.NewClient(kgo.SeedBrokers(b.broker), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	t.Cleanup(b.client.Close)
	const waiting = "SELECT count(*) FROM idem_outbox"
	switch s {
	case pg:
		url := testenv.Postgres(t)
		pool, err := pgxpool.New(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
		o := pgoutbox.New(pool)
		b.base = &base{place: place{Store: s, URL: url}, addrs: addrs}
		b.insert = func(ctx context.Context, e outbox.Entry) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return o.Add(ctx, tx, e) })
		}
		b.count = func(ctx context.Context) (n int, err error) {
			err = pool.QueryRow(ctx, waiting).Scan(&n)
			return n, err
		}
	default:
		dsn := testenv.MariaDB(t)
		db, err := openDB("mysql", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		require.NoError(t, mysql.Migrate(t.Context(), db))
		o := mysql.New(db)
		b.base = &base{place: place{Store: s, URL: dsn}, addrs: addrs}
		b.insert = func(ctx context.Context, e outbox.Entry) error { return inTx(ctx, db, o, e) }
		b.count = func(ctx context.Context) (n int, err error) {
			err = db.QueryRowContext(ctx, waiting).Scan(&n)
			return n, err
		}
	}
	for range 3 {
		b.add("A")
		b.add("B")
	}
	return b
}

func inTx(ctx context.Context, db *sql.DB, o *mysql.Outbox, e outbox.Entry) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := o.Add(ctx, tx, e); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// add commits one more row of an aggregate.
func (b *box) add(key string) {
	b.t.Helper()
	id := fmt.Sprint(key, len(b.added[key]))
	require.Eventually(b.t, func() bool { // connections from before a restart may be in the pool
		return b.insert(b.t.Context(), outbox.Entry{Topic: b.topic, Key: key, Type: eventType, ID: id, Payload: payloadOf(id)}) == nil
	}, 10*time.Second, 20*time.Millisecond, "a row cannot be added")
	b.added[key] = append(b.added[key], id)
}

func payloadOf(id string) []byte { return fmt.Appendf(nil, `{"event_id":%q,"note":"of %s"}`, id, id) }

// empty reports whether all rows are settled.
func (b *box) empty() bool {
	n, err := b.count(b.t.Context())
	return err == nil && n == 0
}

// outcome returns the result of the cell.
func (b *box) outcome(replaced bool) outcome {
	b.t.Helper()
	o := b.judge(b.records())
	o.replaced = replaced
	return o
}

// judge compares the topic with the rows: each is there, with its ID and content, and first
// publications are in the order of commits. The effects are the publications of the row that was
// published most often. If a row is lost, there is no effect. A consumer handles each event once.
func (b *box) judge(records []*kgo.Record) outcome {
	b.t.Helper()
	o := outcome{sameKey: true}
	copies, first := make(map[string]int), make(map[string][]string)
	for _, r := range records {
		id := ""
		for _, h := range r.Headers {
			if h.Key == outbox.HeaderID {
				id = string(h.Value)
			}
		}
		if copies[id]++; copies[id] == 1 {
			first[string(r.Key)] = append(first[string(r.Key)], id)
		}
		if !bytes.Equal(r.Value, payloadOf(id)) {
			o.broken = append(o.broken, fmt.Sprintf("event %s has the content %q", id, r.Value))
		}
		o.effects = max(o.effects, copies[id])
	}
	handled := b.consume(records)
	for key, ids := range b.added {
		if fmt.Sprint(ids) != fmt.Sprint(first[key]) {
			o.broken = append(o.broken, fmt.Sprintf("first publications of %s are %v, commits %v", key, first[key], ids))
		}
		for _, id := range ids {
			if copies[id] == 0 {
				o.effects = 0
			}
			if handled[id] != 1 {
				o.broken = append(o.broken, fmt.Sprintf("a consumer handles event %s %d times", id, handled[id]))
			}
			delete(handled, id)
		}
	}
	if len(handled) > 0 {
		o.broken = append(o.broken, fmt.Sprintf("events that no row has: %v", handled))
	}
	return o
}

// records returns the records of the topic.
func (b *box) records() (all []*kgo.Record) {
	b.t.Helper()
	end := recordsIn(b.t, b.client, b.topic, 1)
	ctx, cancel := context.WithTimeout(b.t.Context(), stepLimit)
	defer cancel()
	for int64(len(all)) < end {
		polled := b.client.PollFetches(ctx)
		require.NoError(b.t, polled.Err())
		all = append(all, polled.Records()...)
	}
	return all
}

// A broken promise of a relay is found in the topic.
func TestJudge(t *testing.T) {
	b := &box{t: t, topic: "t", added: map[string][]string{"A": {"A0", "A1"}, "B": {"B0"}}}
	record := func(id string) *kgo.Record {
		return &kgo.Record{
			Topic: b.topic, Key: []byte(id[:1]), Value: payloadOf(id),
			Headers: []kgo.RecordHeader{{Key: outbox.HeaderID, Value: []byte(id)}, {Key: outbox.HeaderType, Value: []byte(eventType)}},
		}
	}
	for name, c := range map[string]struct {
		ids  []string
		most int
		fits bool
	}{
		"each once":             {[]string{"A0", "B0", "A1"}, 1, true},
		"a copy":                {[]string{"A0", "A1", "B0", "A0"}, 2, true},
		"a copy too many":       {[]string{"A0", "A1", "B0", "A0"}, 1, false},
		"a copy of a part":      {[]string{"A0", "A0", "A1", "B0"}, 2, true},
		"a lost row":            {[]string{"A0", "A1"}, 1, false},
		"all are lost":          {nil, 1, false},
		"another order":         {[]string{"A1", "A0", "B0"}, 1, false},
		"overtaken, and a copy": {[]string{"A1", "A0", "A1", "B0"}, 2, false},
		"no row has it":         {[]string{"A0", "A1", "B0", "B1"}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			var records []*kgo.Record
			for i, id := range c.ids {
				r := record(id)
				r.Offset = int64(i)
				records = append(records, r)
			}
			broken := b.judge(records).fits(want{1, c.most, []answer{noAnswer}})
			require.Equal(t, c.fits, broken == "", broken)
		})
	}
	other := []*kgo.Record{record("A0"), record("A1"), record("B0")}
	other[1].Value = []byte(`{"event_id":"A1","note":"of another event"}`)
	require.NotEmpty(t, b.judge(other).fits(want{1, 1, []answer{noAnswer}}), "another content")
}

// consume handles records as a consumer with Idem does, and returns the runs by event ID.
func (b *box) consume(records []*kgo.Record) map[string]int {
	b.t.Helper()
	handled := make(map[string]int)
	r := idem.NewRouter()
	idem.On(r, eventType, func(_ context.Context, e idem.Event[event]) error {
		handled[e.ID]++
		return nil
	})
	p, err := idem.NewProcessor(r, idem.Config{
		Store: memstore.New(memstore.Volatile()), Scope: b.topic, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b.t, err)
	for _, r := range records {
		m := &idem.Message{
			Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Time: r.Timestamp,
		}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, idem.Header{Key: h.Key, Value: h.Value})
		}
		require.NoError(b.t, p.Handle(b.t.Context(), m))
	}
	require.NoError(b.t, p.Close())
	return handled
}
