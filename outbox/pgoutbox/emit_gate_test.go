package pgoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// These tests emit from handlers, through the engine and the store that a service has.

// service is a database with a store, an outbox, and a table of effects.
type service struct {
	testing.TB
	url  string
	pool *pgxpool.Pool
	box  *pgoutbox.Outbox
	seen *tracer

	mu          sync.Mutex
	deadLetters []*idem.Message
	offset      int64
}

func newService(t testing.TB, with ...configure) *service {
	t.Helper()
	s := &service{TB: t, url: testenv.Postgres(t), seen: &tracer{}}
	trace := func(c *pgxpool.Config) { c.ConnConfig.Tracer, c.MaxConns = s.seen, 20; pgstore.Configure(c) }
	s.pool = newPool(t, s.url, append([]configure{trace}, with...)...)
	require.NoError(t, pgstore.Migrate(t.Context(), s.pool))
	require.NoError(t, pgoutbox.Migrate(t.Context(), s.pool))
	_, err := s.pool.Exec(t.Context(), "CREATE TABLE effects (name text NOT NULL); CREATE TABLE acct (id int PRIMARY KEY, bal int NOT NULL)")
	require.NoError(t, err)
	s.box = pgoutbox.New(nil)
	return s
}

// Produce implements [idem.Producer]: dead letters.
func (s *service) Produce(_ context.Context, msgs ...*idem.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadLetters = append(s.deadLetters, msgs...)
	return nil
}

// order is the event of these tests.
type order struct{}

var (
	quick = idem.Retry(idem.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})
	empty = idem.Decode(func(*idem.Message, any) error { return nil })
)

// processor is a consumer of the scope, as another process would have it.
func (s *service) processor(scope string, register func(*idem.Router), set ...func(*idem.Config)) *idem.Processor {
	s.Helper()
	r := idem.NewRouter(quick, empty)
	register(r)
	cfg := idem.Config{Store: pgstore.New(s.pool), Scope: scope, Producer: s, BusyWait: idem.Forever,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, f := range set {
		f(&cfg)
	}
	p, err := idem.NewProcessor(r, cfg)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, p.Close()) })
	return p
}

func (s *service) message(id string) *idem.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset++
	return s.at(id, 0, s.offset)
}

func (s *service) at(id string, partition int32, offset int64) *idem.Message {
	return &idem.Message{Topic: "orders", Partition: partition, Offset: offset, Key: []byte(id), Value: []byte("{}"), Time: time.Now(),
		Headers: []idem.Header{{Key: "event-id", Value: []byte(id)}, {Key: "event-type", Value: []byte("order.paid")}}}
}

func (s *service) messages(ids ...string) []*idem.Message {
	msgs := make([]*idem.Message, len(ids))
	for i, id := range ids {
		msgs[i] = s.message(id)
	}
	return msgs
}

// settle lets p handle msgs, as long as it takes.
func (s *service) settle(p *idem.Processor, msgs ...*idem.Message) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	_, err := p.HandleBatch(ctx, msgs)
	require.NoError(s, err)
}

// trust lets a partition be known to p, so that events share transactions (rule 18).
func (s *service) trust(p *idem.Processor) {
	s.Helper()
	for i := range 40 {
		s.settle(p, s.message(fmt.Sprintf("trust %d", i)))
	}
	for _, table := range []string{"effects", "idem_outbox"} {
		_, err := s.pool.Exec(s.Context(), "TRUNCATE "+table)
		require.NoError(s, err)
	}
	s.seen.reset()
}

func (s *service) effect(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", name)
	return err
}

// names are the effects, sorted.
func (s *service) names() []string {
	s.Helper()
	return column[string](s, "SELECT name FROM effects ORDER BY name COLLATE \"C\"")
}

func column[T any](s *service, sql string, args ...any) []T {
	s.Helper()
	rows, err := s.pool.Query(context.WithoutCancel(s.Context()), sql, args...)
	require.NoError(s, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(s, err)
	return all
}

// rows are the keys of the rows in the outbox, in the order of their numbers.
func (s *service) rows() []string {
	s.Helper()
	return column[string](s, "SELECT coalesce(convert_from(key, 'UTF8'), '') FROM idem_outbox ORDER BY seq")
}

// ids are the IDs of the rows in the outbox, sorted.
func (s *service) ids() []string {
	s.Helper()
	return column[string](s, "SELECT event_id FROM idem_outbox ORDER BY event_id")
}

// send is an entry about key.
func send(key string) outbox.Entry {
	return outbox.Entry{Topic: "invoices", Key: key, Type: "invoice.due"}
}

// tracer notes statements and batches, each of which is one round trip.
type tracer struct {
	mu    sync.Mutex
	trips []string // the statements of each

	deadlocks atomic.Int32
}

func (t *tracer) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trips = nil
}

func (t *tracer) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.trips)
}

func (t *tracer) add(trip string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trips = append(t.trips, trip)
}

func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	t.add(d.SQL)
	return ctx
}

func (t *tracer) TraceQueryEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	t.note(d.Err)
}

func (t *tracer) note(err error) {
	if isDeadlock(err) {
		t.deadlocks.Add(1)
	}
}

func (t *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	var all []string
	for _, q := range d.Batch.QueuedQueries {
		all = append(all, q.SQL)
	}
	t.add(strings.Join(all, ";\n"))
	return ctx
}

func (t *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (t *tracer) TraceBatchEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchEndData) {
	t.note(d.Err)
}

// count returns the number of round trips with s, and the number of occurrences.
func (t *tracer) count(s string) (trips, times int) {
	for _, trip := range t.all() {
		if n := strings.Count(trip, s); n > 0 {
			trips, times = trips+1, times+n
		}
	}
	return trips, times
}

var errBad = errors.New("this event is bad")

func numbers(name string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%03d", name, i)
	}
	return all
}

// emits handles an event by an effect, and an entry of the same name; the one that is bad does both
// and fails.
func (s *service) emits(bad string) func(*idem.Router) {
	return func(r *idem.Router) {
		idem.OnTx(r, "order.paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
			if err := errors.Join(s.effect(ctx, tx, e.ID), s.box.Add(ctx, tx, send(e.ID))); err != nil {
				return err
			}
			if e.ID == bad {
				return errBad
			}
			return nil
		})
	}
}

// Rule 22, O-01: rows are there if and only if the effects of their events are, in groups and
// singly. An event that fails emits no event, and those beside it emit once.
func TestEmitWithTheEffect_Rule22(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"groups": false, "singly": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			p := s.processor("orders", func(r *idem.Router) {
				if own {
					r = r.With(idem.TxPerEvent())
				}
				s.emits("e013")(r)
			})
			s.trust(p)
			all := numbers("e", 40)
			msgs := s.messages(all...)
			s.settle(p, msgs...)
			want := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == "e013" })
			require.Equal(t, want, s.names())
			got := s.rows()
			slices.Sort(got)
			require.Equal(t, want, got)
			require.Len(t, s.deadLetters, 1)
			before := s.ids()
			s.settle(p, msgs...) // duplicates
			require.Equal(t, before, s.ids())
			require.Equal(t, want, s.names())
		})
	}
}

// Rule 22: the entries of 256 handlers of one transaction are written by one statement, with one
// additional round trip.
func TestEmitOfAGroupIsOneRoundTrip_Rule22(t *testing.T) {
	t.Parallel()
	s := newService(t)
	emit := true
	p := s.processor("orders", func(r *idem.Router) {
		idem.OnTx(r, "order.paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
			if emit {
				return s.box.Add(ctx, tx, send(e.ID))
			}
			return nil
		})
	})
	s.trust(p)
	s.settle(p, s.messages(numbers("warm", 256)...)...) // statements are prepared
	trips := func(name string, with bool) int {
		emit = with
		s.seen.reset()
		s.settle(p, s.messages(numbers(name, 256)...)...)
		begins, _ := s.seen.count("begin isolation")
		require.Equal(t, 1, begins, "one transaction: %q", s.seen.all())
		return len(s.seen.all())
	}
	without := trips("silent", false)
	with := trips("loud", true)
	require.Equal(t, without+1, with, "%q", s.seen.all())
	_, inserts := s.seen.count("INSERT INTO " + "idem_outbox")
	if inserts == 0 { // with its schema
		_, inserts = s.seen.count(".idem_outbox (")
	}
	require.Equal(t, 1, inserts, "%q", s.seen.all())
	require.Len(t, s.rows(), 512)
}

// Rule 12: entries of different events with one ID are the fault of the later event alone.
func TestEmitSameID_Rule12(t *testing.T) {
	t.Parallel()
	s := newService(t)
	p := s.processor("orders", func(r *idem.Router) {
		idem.OnTx(r, "order.paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
			if err := s.effect(ctx, tx, e.ID); err != nil || e.ID != "twice" {
				return err
			}
			return s.box.Add(ctx, tx, send("k"), send("k"))
		})
	})
	s.trust(p)
	s.settle(p, s.messages("a", "twice", "b")...)
	require.Equal(t, []string{"a", "b"}, s.names())
	require.Empty(t, s.rows())
	require.Len(t, s.deadLetters, 1)
}

// Rule 20: entries of the handler's own savepoint are rolled back with the savepoint.
func TestEmitInASavepoint_Rule20(t *testing.T) {
	t.Parallel()
	s := newService(t)
	p := s.processor("orders", func(r *idem.Router) {
		idem.OnTx(r, "order.paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
			tries := func(name string, fails error) {
				err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
					return errors.Join(s.effect(ctx, tx, name), s.box.Add(ctx, tx, send(name)), fails)
				})
				require.ErrorIs(t, err, fails)
			}
			tries(e.ID+" undone", errBad)
			tries(e.ID, nil)
			return nil
		})
	})
	s.trust(p)
	s.settle(p, s.messages("a", "b")...)
	require.Equal(t, []string{"a", "b"}, s.names())
	require.ElementsMatch(t, []string{"a", "b"}, s.rows())
}

// P-13: a handler that ends its transaction loses the events that it has emitted. The events of its
// neighbours stay.
func TestEmitOfAHandlerThatCommits_P13(t *testing.T) {
	t.Parallel()
	s := newService(t)
	p := s.processor("orders", func(r *idem.Router) {
		idem.OnTx(r, "order.paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
			err := errors.Join(s.effect(ctx, tx, e.ID), s.box.Add(ctx, tx, send(e.ID)))
			if err == nil && e.ID == "c" {
				_, err = tx.Exec(ctx, "ROLLBACK")
			}
			return err
		})
	})
	s.trust(p)
	s.settle(p, s.messages("a", "b", "c", "d")...)
	require.Equal(t, []string{"a", "b", "d"}, s.names())
	require.ElementsMatch(t, []string{"a", "b", "d"}, s.rows())
	require.Len(t, s.deadLetters, 1)
}

// In shadow mode known events are handled too, so their entries are published too, with the same
// IDs.
func TestEmitInShadowMode_Rule23(t *testing.T) {
	t.Parallel()
	s := newService(t)
	p := s.processor("orders", s.emits(""), func(c *idem.Config) { c.Shadow = true })
	msgs := s.messages("a", "b", "c")
	s.settle(p, msgs...)
	first := s.ids()
	require.Len(t, first, 3)
	s.settle(p, msgs...)
	require.Len(t, s.names(), 6)
	require.Len(t, s.ids(), 6)
	require.Equal(t, first, slices.Compact(s.ids()))
}
