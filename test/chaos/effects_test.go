package chaos

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/pgstore"
	mystore "github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/internal/testenv"
)

// effects is a database of laneworkers, with a store and the table effects. Queries write "key" in
// quotes, which every database takes.
type effects struct {
	db    *sql.DB
	flags []string // of a laneworker
	load  int      // the number of events of a short test
}

// effectsStores are the stores of laneworkers that defer events.
var effectsStores = map[string]func(testing.TB) *effects{
	"pgstore":              inPgstore,
	"sqlstore on postgres": inSQLStorePostgres,
	"sqlstore on mariadb":  inSQLStoreMariaDB,
}

// inPgstore has a store of package pgstore.
func inPgstore(t testing.TB) *effects {
	t.Helper()
	url := testenv.Postgres(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	e := openEffects(t, "pgx", url, `CREATE TABLE effects
		(id bigserial PRIMARY KEY, key int, seq int, worker text, kind text)`)
	e.flags, e.load = []string{"-postgres", url}, 6_000
	return e
}

// inSQLStorePostgres has a store of package sqlstore/postgres.
func inSQLStorePostgres(t testing.TB) *effects {
	t.Helper()
	e := inPgstore(t)
	e.flags, e.load = append(e.flags, "-sqlstore"), 2_000 // takes a statement for each step
	return e
}

// inSQLStoreMariaDB has a store of package sqlstore/mysql.
func inSQLStoreMariaDB(t testing.TB) *effects {
	t.Helper()
	dsn := testenv.MariaDB(t)
	e := openEffects(t, "mysql", dsn+"?sql_mode=%27ANSI_QUOTES%27", `CREATE TABLE effects
		(id bigint AUTO_INCREMENT PRIMARY KEY, "key" int, seq int, worker varchar(255),
		kind varchar(255)) ENGINE = InnoDB`)
	require.NoError(t, mystore.Migrate(t.Context(), e.db))
	e.flags, e.load = []string{"-mariadb", dsn}, 2_000 // as on Postgres
	return e
}

// openEffects opens a database and creates the table effects.
func openEffects(t testing.TB, driver, dsn, table string) *effects {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(4)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), table)
	require.NoError(t, err)
	return &effects{db: db}
}

// count returns the number that a query selects.
func (e *effects) count(t testing.TB, query string) (n int) {
	t.Helper()
	require.NoError(t, e.db.QueryRowContext(t.Context(), query).Scan(&n), query)
	return n
}
