package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	store "github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/sqloutbox/mysql"
)

// order is the event of these tests.
type order struct{}

// service consumes orders with a store in MySQL, and emits invoices.
type service struct {
	*testing.T
	db    *sql.DB
	store *sqlstore.Store
	box   *mysql.Outbox

	mu   sync.Mutex
	dead []*idem.Message
}

func newService(t *testing.T) *service {
	t.Helper()
	db := newDB(t)
	require.NoError(t, store.Migrate(t.Context(), db))
	require.NoError(t, exec(t.Context(), db, "CREATE TABLE effects (name varchar(50) NOT NULL) ENGINE = InnoDB"))
	return &service{T: t, db: db, store: store.New(db), box: mysql.New(db)}
}

// Produce implements [idem.Producer]: dead letters.
func (s *service) Produce(_ context.Context, msgs ...*idem.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = append(s.dead, msgs...)
	return nil
}

func (s *service) processor(register func(*idem.Router)) *idem.Processor {
	s.Helper()
	r := idem.NewRouter(
		idem.Retry(idem.RetryPolicy{MaxAttempts: 20, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond}),
		idem.Decode(func(*idem.Message, any) error { return nil }))
	register(r)
	p, err := idem.NewProcessor(r, idem.Config{Store: s.store, Scope: "billing", Producer: s, BusyWait: idem.Forever,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, p.Close()) })
	return p
}

func message(id string, partition int32, offset int64) *idem.Message {
	return &idem.Message{Topic: "orders", Partition: partition, Offset: offset, Key: []byte(id), Value: []byte("{}"), Time: time.Now(),
		Headers: []idem.Header{{Key: "event-id", Value: []byte(id)}, {Key: "event-type", Value: []byte("order.paid")}}}
}

func (s *service) effect(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", name)
	return err
}

func (s *service) effects() (names []string) {
	s.Helper()
	rows, err := s.db.QueryContext(s.Context(), "SELECT name FROM effects ORDER BY name")
	require.NoError(s, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(s, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(s, rows.Err())
	return names
}

func invoice(key string) outbox.Entry {
	return outbox.Entry{Topic: "invoices", Key: key, Type: "invoice.due"}
}

func parentOf(id string) dedup.Key { return dedup.Key{Scope: "billing", Type: "order.paid", ID: id} }

// log is a broker that fails now and then.
type log struct {
	mu   sync.Mutex
	r    *rand.Rand
	seen map[string]int
}

// ProduceEach implements [outbox.Producer].
func (l *log) ProduceEach(_ context.Context, msgs []*idem.Message) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		switch l.r.IntN(10) {
		case 0:
			errs[i] = errors.New("refused")
			continue
		case 1:
			errs[i] = errors.New("no answer")
		}
		l.seen[string(m.Headers[0].Value)]++
	}
	return errs
}

var errNow = errors.New("fails now and then")

// Rules 22 and 23: consumers handle events with duplicates, and handlers fail behind Add now and
// then. Relays on a broker that fails publish the entry of each event, by one ID, and no other
// entry.
func TestEventsLeaveWithTheirEffects_Rule22(t *testing.T) {
	const partitions, events = 4, 60
	s := newService(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	l := &log{r: rand.New(rand.NewPCG(seed, 1)), seen: map[string]int{}}
	ctx, stop := context.WithCancel(t.Context())
	var relays sync.WaitGroup
	defer relays.Wait()
	defer stop()
	for range 2 {
		relay, err := outbox.NewRelay(outbox.RelayConfig{Store: s.box, Producer: l, Interval: 20 * time.Millisecond,
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		require.NoError(t, err)
		relays.Go(func() { _ = relay.Run(ctx) })
	}
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 2))
	p := s.processor(func(router *idem.Router) {
		idem.OnTx(router, "order.paid", func(ctx context.Context, tx *sql.Tx, e idem.Event[order]) error {
			err := errors.Join(s.effect(ctx, tx, e.ID), s.box.Add(ctx, tx, invoice("a"+e.ID[:1]), invoice("b"+e.ID[:1])))
			mu.Lock()
			fails := r.IntN(5) == 0
			mu.Unlock()
			if err == nil && fails {
				err = errNow
			}
			return err
		})
	})
	var consumers sync.WaitGroup
	errs := make([]error, partitions)
	for part := range partitions {
		consumers.Go(func() {
			var msgs []*idem.Message
			for i := range events {
				id := fmt.Sprintf("%d-%02d", i%10, i)
				msgs = append(msgs, message(id, int32(part), int64(2*i)), message(id, int32(part), int64(2*i+1))) // and in every partition
			}
			for batch := range slices.Chunk(msgs, 20) {
				if _, err := p.HandleBatch(ctx, batch); err != nil {
					errs[part] = err
					return
				}
			}
		})
	}
	consumers.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Empty(t, s.dead)
	var names []string
	want := map[string]bool{}
	for i := range events {
		id := fmt.Sprintf("%d-%02d", i%10, i)
		names = append(names, id)
		for _, e := range []outbox.Entry{invoice("a" + id[:1]), invoice("b" + id[:1])} {
			want[outbox.ID(parentOf(id), &e)] = true
		}
	}
	slices.Sort(names)
	require.Equal(t, names, s.effects(), "each event has its effect once")
	require.Eventually(t, func() bool {
		all, err := states(t.Context(), s.db)
		return err == nil && len(all) == 0
	}, time.Minute, 20*time.Millisecond)
	stop()
	relays.Wait()
	got := map[string]bool{}
	for id := range l.seen {
		got[id] = true
	}
	require.Equal(t, want, got)
}

// Rule 23: a handler that runs again for a forgotten event adds the same IDs. An entry of a handler
// of batches needs its parent.
func TestSecondRunAddsTheSameIDs_Rule23(t *testing.T) {
	s := newService(t)
	var noParent error
	p := s.processor(func(r *idem.Router) {
		idem.OnTx(r, "order.paid", func(ctx context.Context, tx *sql.Tx, e idem.Event[order]) error {
			return s.box.Add(ctx, tx, invoice("k"), invoice("l"))
		})
		idem.OnBatchTx(r, "order.sent", func(ctx context.Context, tx *sql.Tx, events []idem.Event[order]) error {
			noParent = s.box.Add(ctx, tx, invoice("m"))
			var all []outbox.Entry
			for _, e := range events {
				entry := invoice("m")
				entry.Parent = e.Identity()
				all = append(all, entry)
			}
			return s.box.Add(ctx, tx, all...)
		})
	})
	handle := func(msgs ...*idem.Message) map[string]int {
		_, err := p.HandleBatch(t.Context(), msgs)
		require.NoError(t, err)
		all, err := states(t.Context(), s.db)
		require.NoError(t, err)
		return all
	}
	first := handle(message("1", 0, 0))
	require.Len(t, first, 2)
	require.Equal(t, first, handle(message("1", 0, 1)), "a duplicate adds nothing")
	require.NoError(t, s.store.Forget(t.Context(), parentOf("1")))
	require.NoError(t, exec(t.Context(), s.db, "DELETE FROM idem_outbox"))
	require.Equal(t, first, handle(message("1", 0, 2)))

	require.NoError(t, exec(t.Context(), s.db, "DELETE FROM idem_outbox"))
	sent := message("2", 0, 3)
	sent.Headers[1].Value = []byte("order.sent")
	entry := invoice("m")
	require.Equal(t, map[string]int{outbox.ID(dedup.Key{Scope: "billing", Type: "order.sent", ID: "2"}, &entry): 0}, handle(sent))
	require.ErrorIs(t, noParent, outbox.ErrNoParent)
	require.Empty(t, s.dead)
}
