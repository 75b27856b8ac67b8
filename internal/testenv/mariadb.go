package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// MariaDB returns the DSN of a new, empty database in the MariaDB of IDEM_MARIADB_DSN. Without the
// variable the test is skipped, or fails if IDEM_REQUIRE_SERVICES is set. The test must import
// github.com/go-sql-driver/mysql, which the root module does not require.
//
// Cleanup drops the database, after the cleanups that the test registers later.
func MariaDB(t testing.TB) string {
	t.Helper()
	return MariaDBAt(t, service(t, "IDEM_MARIADB_DSN"))
}

// MariaDBAt is [MariaDB] for the server of another DSN, such as one that the test may stop.
func MariaDBAt(t testing.TB, dsn string) string {
	t.Helper()
	admin, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, admin.Close()) })
	name := "test_" + strings.ToLower(rand.Text())
	_, err = admin.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := admin.ExecContext(ctx, "DROP DATABASE "+name); err != nil {
			t.Errorf("drop the database of the test: %v", err)
		}
	})
	server, _, found := strings.Cut(dsn, ")/")
	require.True(t, found, "the DSN must have the form user:password@tcp(host:port)/")
	return server + ")/" + name
}
