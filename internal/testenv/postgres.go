package testenv

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Postgres returns the URL of the Postgres in POSTGRES_URL, with a new, empty schema as its search
// path. Without the variable the test is skipped, or fails if IDEM_REQUIRE_SERVICES is set.
//
// Cleanup drops the schema, after the cleanups that the test registers later. Sessions that still
// use the schema are ended.
func Postgres(t testing.TB) string {
	t.Helper()
	admin := service(t, "POSTGRES_URL")
	u, err := url.Parse(admin)
	require.NoError(t, err, "POSTGRES_URL")
	schema := "test_" + strings.ToLower(rand.Text())
	require.NoError(t, execPostgres(t.Context(), admin, "CREATE SCHEMA "+schema))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := dropSchema(ctx, admin, schema); err != nil {
			t.Errorf("drop the schema of the test: %v", err)
		}
	})
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

func execPostgres(ctx context.Context, url, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql, args...)
	if closeErr := conn.Close(ctx); err == nil {
		err = closeErr
	}
	return err
}

// dropSchema first ends the sessions that hold locks in the schema: a session that a test left open
// must not block the next test.
func dropSchema(ctx context.Context, url, schema string) error {
	err := execPostgres(ctx, url, `SELECT pg_terminate_backend(l.pid)
		FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		WHERE l.locktype = 'relation' AND c.relnamespace = to_regnamespace($1)
			AND l.pid <> pg_backend_pid()`, schema)
	if err != nil {
		return err
	}
	return execPostgres(ctx, url, "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
}
