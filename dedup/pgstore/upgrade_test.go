package pgstore_test

import (
	"testing"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Rule 35: tables of version 1 are brought up to date in place. The rows stay, and a worker of
// version 1 finds them where they were.
func TestMigrateFromVersion1_Rule35(t *testing.T) {
	inLayouts(t, 4, func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
		ctx := t.Context()
		endAs(t, s, request("old"), func(*dedup.Completion) {})
		_, err := pool.Exec(ctx, "DROP TABLE deferred_events, deferred_queues; UPDATE idem_schema SET version = 1")
		require.NoError(t, err)
		_, err = s.Check(ctx)
		require.ErrorContains(t, err, "or pgstore.Migrate")
		require.ErrorContains(t, err, "version 1")
		part := dedup.DeferredPartition{Scope: request("e").Key.Scope, Topic: "t"}
		err = s.Defer(ctx, part, []dedup.Deferred{{Key: request("e").Key}})
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.ErrorContains(t, err, "or pgstore.Migrate")
		for range 2 {
			migrateAs(t, pool)
		}
		_, err = s.Check(ctx)
		require.NoError(t, err)
		var versions []int
		require.NoError(t, pool.QueryRow(ctx, "SELECT array_agg(version ORDER BY version) FROM idem_schema").Scan(&versions))
		require.Equal(t, []int{1, 3}, versions)
		meets(t, s, request("old"), dedup.Done)
		require.NoError(t, s.Defer(ctx, part, []dedup.Deferred{{Key: request("e").Key}}))
	})
}

// migrateAs migrates tables of either layout.
func migrateAs(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var layout string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT min(layout) FROM idem_schema").Scan(&layout))
	var opts []pgstore.Option
	if layout == "compact" {
		opts = append(opts, pgstore.Compact())
	}
	require.NoError(t, pgstore.Migrate(t.Context(), pool, opts...))
}
