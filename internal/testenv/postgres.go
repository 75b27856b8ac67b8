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
	schema := newSchema(t, admin)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := dropSchema(ctx, admin, schema); err != nil {
			t.Errorf("drop the schema of the test: %v", err)
		}
	})
	return inSchema(t, admin, schema)
}

func newSchema(t testing.TB, admin string) (schema string) {
	t.Helper()
	schema = "test_" + strings.ToLower(rand.Text())
	require.NoError(t, withConn(t.Context(), admin, func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), "CREATE SCHEMA "+schema)
		return err
	}))
	return schema
}

// inSchema returns the URL with the schema as the search path.
func inSchema(t testing.TB, admin, schema string) string {
	t.Helper()
	u, err := url.Parse(admin)
	require.NoError(t, err, "POSTGRES_URL")
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// dropSchema first ends the sessions that use the schema: a session that a test left open must not
// block the next test.
func dropSchema(ctx context.Context, admin, schema string) error {
	return withConn(ctx, admin, func(conn *pgx.Conn) error {
		if err := endSessions(ctx, conn, schema); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
		return err
	})
}

// withConn calls fn with a connection, and closes it.
func withConn(ctx context.Context, url string, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	err = fn(conn)
	if closeErr := conn.Close(ctx); err == nil {
		err = closeErr
	}
	return err
}
