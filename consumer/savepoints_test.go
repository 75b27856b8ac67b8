package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
)

// statements keeps the statements of a pool.
type statements struct {
	mu  sync.Mutex
	all []string
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, q.SQL)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// with returns the number of statements that have a word.
func (s *statements) with(word string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.all {
		if strings.Contains(strings.ToUpper(text), word) {
			n++
		}
	}
	return n
}

// P-19: more than 64 open savepoints of a session slow down every snapshot of the server. Neither a
// batch nor an event of it that fails sets a savepoint.
func TestSavepoints_P19(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(testenv.Postgres(t))
	require.NoError(t, err)
	pgstore.Configure(cfg)
	seen := new(statements)
	cfg.ConnConfig.Tracer = seen
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	_, err = pool.Exec(t.Context(), "CREATE TABLE paid (id text PRIMARY KEY)")
	require.NoError(t, err)
	const events, broken = 1000, 5
	r := idem.NewRouter(idem.Store(pgstore.New(pool)))
	idem.OnTx(r, "paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[struct{}]) error {
		if strings.HasSuffix(e.ID, "77") && len(e.ID) == len("e-077") && e.ID[2]%2 == 0 {
			return idem.Permanent(errors.New("broken"))
		}
		_, err := tx.Exec(ctx, "INSERT INTO paid VALUES ($1)", e.ID)
		return err
	})
	sent := new(deadLetters)
	p, err := idem.NewProcessor(r, idem.Config{Group: "g", Scope: "g", Producer: sent})
	require.NoError(t, err)
	defer p.Close()
	batch := make([]*idem.Message, events)
	for i := range batch {
		batch[i] = &idem.Message{Topic: "payments", Offset: int64(i),
			Value: fmt.Appendf(nil, `{"event_id":"e-%03d","type":"paid"}`, i)}
	}
	before := seen.with("SAVEPOINT")
	settled, err := p.HandleBatch(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, events, settled)
	require.Equal(t, broken, sent.count())
	var paid int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM paid").Scan(&paid))
	require.Equal(t, events-broken, paid)
	require.Positive(t, seen.with("INSERT INTO PAID"), "nothing would be found")
	require.Zero(t, seen.with("SAVEPOINT")-before)
}

// deadLetters counts dead letters.
type deadLetters struct {
	mu sync.Mutex
	n  int
}

func (l *deadLetters) Produce(_ context.Context, msgs ...*idem.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += len(msgs)
	return nil
}

func (l *deadLetters) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}
