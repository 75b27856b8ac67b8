package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/internal/testenv"
)

// A table of the application with the name of one of the store's is not taken for the store's.
func TestMigrate_TableOfAnotherProgram(t *testing.T) {
	db, err := sql.Open("mysql", testenv.MariaDB(t))
	require.NoError(t, err)
	defer db.Close()
	exec := func(text string) {
		_, err := db.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	exec("CREATE TABLE processed_events (id varchar(100) PRIMARY KEY)")
	err = mysql.Migrate(t.Context(), db)
	var setup *dedup.SetupError
	require.ErrorAs(t, err, &setup)
	require.ErrorContains(t, err, "the database has processed_events of another program: choose another database")
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&n))
	require.Equal(t, 1, n, "no table was added")
	exec("RENAME TABLE processed_events TO handled")
	require.NoError(t, mysql.Migrate(t.Context(), db))
	require.NoError(t, mysql.Migrate(t.Context(), db))
}
