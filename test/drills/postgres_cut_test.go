package drills

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
)

// P-18: while the synchronous standby is away, no event counts as handled. Otherwise its offset
// would be committed, and the promoted standby would not have its effect. The standby goes away
// while a handler runs, so that its COMMIT waits.
func TestNoEventSettlesWithoutTheSynchronousStandby_P18(t *testing.T) {
	needLong(t)
	primary := startPostgres(t)
	primary.prepare(t, "drill")
	_, k := primary.follow(t)
	primary.exec(t, "postgres", "ALTER SYSTEM SET synchronous_standby_names = 'heir'")
	primary.exec(t, "postgres", "SELECT pg_reload_conf()")
	primary.awaitSynchronous(t)
	cfg, err := pgxpool.ParseConfig(primary.url("drill"))
	require.NoError(t, err)
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var workers []*idem.Processor
	for range 2 {
		router := idem.NewRouter()
		idem.OnTx(router, "inside", func(ctx context.Context, tx pgx.Tx, e idem.Event[event]) error {
			k.stop()
			_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", e.ID)
			return err
		})
		workers = append(workers, worker(t, pgstore.New(pool), router))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	settled := make(chan error, len(workers))
	l := &load{types: []string{"inside"}}
	for w, p := range workers {
		go func() { settled <- settle(ctx, p, l.messages(0, int32(w))[:1]) }()
	}
	// The event waits until the end of the context. A failure of the event is no such error.
	waits := []error{dedup.ErrUnavailable, idem.ErrBusy, idem.ErrStopping}
	for range workers {
		err := <-settled
		require.Error(t, err, "an event is settled that the standby does not know")
		require.True(t, slices.ContainsFunc(waits, func(w error) bool { return errors.Is(err, w) }), "%v", err)
	}
	t.Log(primary.tail())
}
