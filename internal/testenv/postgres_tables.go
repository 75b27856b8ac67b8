package testenv

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// kept are the schemas that ended tests left empty, by the name of their tables.
var kept struct {
	sync.Mutex
	admin   string
	schemas map[string][]keptSchema
}

type keptSchema struct {
	name string
	// objects and rows are the answers of objectsOf and rowsOf when create had returned.
	objects string
	rows    map[string]string
}

// mostGrown is the size above which a schema is dropped: deleted rows stay in its files.
const mostGrown = 1 << 20

// PostgresTables returns the URL of a schema with the tables that create makes, and with no other
// rows than those that create inserts. Only one test at a time uses a schema. A test may get the
// schema of an ended test with the same name of tables: CREATE TABLE costs more than most tests.
// Its sequences go on.
//
// A test may change the tables. Cleanup drops a schema that no longer is as create left it. The
// package's TestMain must call [DropTables].
func PostgresTables(t testing.TB, tables string, create func(url string) error) string {
	t.Helper()
	admin := service(t, "POSTGRES_URL")
	schema, found := takeSchema(tables)
	if !found {
		schema.name = newSchema(t, admin)
	}
	keep := found
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var err error
		if keep {
			keep, err = emptySchema(ctx, admin, schema)
		}
		switch {
		case err != nil:
			t.Errorf("empty the schema of the test: %v", err)
		case keep:
			keepSchema(admin, tables, schema)
			return
		}
		if err := dropSchema(ctx, admin, schema.name); err != nil {
			t.Errorf("drop the schema of the test: %v", err)
		}
	})
	// Sessions of the test have a name that begins with that of the schema.
	named := inSchema(t, admin, schema.name) + "&application_name=" + schema.name
	if !found {
		require.NoError(t, create(named))
		require.NoError(t, withConn(t.Context(), admin, func(conn *pgx.Conn) (err error) {
			if err := stopVacuum(t.Context(), conn, schema.name); err != nil {
				return err
			}
			if schema.objects, err = objectsOf(t.Context(), conn, schema.name); err != nil {
				return err
			}
			schema.rows, err = rowsOf(t.Context(), conn, schema.name)
			return err
		}))
		keep = schema.objects != ""
	}
	return named
}

// DropTables drops the schemas of [PostgresTables]. It returns code, that of m.Run, or 1 if a
// schema cannot be dropped. It is called once, at the end of TestMain.
func DropTables(code int) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, schemas := range kept.schemas {
		for _, s := range schemas {
			if err := dropSchema(ctx, kept.admin, s.name); err != nil {
				fmt.Fprintf(os.Stderr, "drop the schema %s of ended tests: %v\n", s.name, err)
				code = max(code, 1)
			}
		}
	}
	return code
}

func takeSchema(tables string) (s keptSchema, found bool) {
	kept.Lock()
	defer kept.Unlock()
	free := kept.schemas[tables]
	if len(free) == 0 {
		return s, false
	}
	last := len(free) - 1
	kept.schemas[tables] = free[:last]
	return free[last], true
}

func keepSchema(admin, tables string, s keptSchema) {
	kept.Lock()
	defer kept.Unlock()
	if kept.schemas == nil {
		kept.schemas = make(map[string][]keptSchema)
	}
	kept.admin = admin
	kept.schemas[tables] = append(kept.schemas[tables], s)
}

// objectsSQL returns a checksum of the objects of schema $1, and the size of its files. The objects
// are relations with their columns, rights and options, indexes, constraints, triggers, functions.
// A table that was made again has another number. The numbers come as arrays, for plans that read
// an index.
const objectsSQL = `
	WITH c AS MATERIALIZED (SELECT * FROM pg_class WHERE relnamespace = to_regnamespace($1))
	SELECT coalesce(md5(string_agg(line, ';' ORDER BY line)), ''),
		(SELECT coalesce(sum(pg_relation_size(oid)), 0)::bigint FROM c)
	FROM (
		SELECT concat_ws(',', 'class', oid, relname, relkind, relacl, reloptions, relowner,
			relrowsecurity, relhastriggers, reltablespace, relpersistence) FROM c
		UNION ALL
		SELECT concat_ws(',', 'column', attrelid, attnum, attname, atttypid, atttypmod, attnotnull,
			atthasdef, attcollation, attisdropped, attacl)
			FROM pg_attribute WHERE attrelid = ANY (ARRAY(SELECT oid FROM c)) AND attnum > 0
		UNION ALL
		SELECT concat_ws(',', 'index', indexrelid, indrelid, indisvalid, indkey) FROM pg_index
			WHERE indrelid = ANY (ARRAY(SELECT oid FROM c))
		UNION ALL
		SELECT concat_ws(',', 'constraint', oid, conname, convalidated) FROM pg_constraint
			WHERE conrelid = ANY (ARRAY(SELECT oid FROM c))
		UNION ALL
		SELECT concat_ws(',', 'trigger', oid, tgname, tgenabled) FROM pg_trigger
			WHERE tgrelid = ANY (ARRAY(SELECT oid FROM c))
		UNION ALL
		SELECT concat_ws(',', 'function', oid, proname) FROM pg_proc
			WHERE pronamespace = to_regnamespace($1)
		UNION ALL
		SELECT concat_ws(',', 'rights', nspacl) FROM pg_namespace WHERE oid = to_regnamespace($1)
	) AS lines (line)`

// emptySchema deletes the rows of a schema that are not those of create. It reports whether the
// schema is as create left it. No session of the test is left then.
func emptySchema(ctx context.Context, admin string, s keptSchema) (same bool, err error) {
	err = withConn(ctx, admin, func(conn *pgx.Conn) error {
		if err := endSessions(ctx, conn, s.name); err != nil {
			return err
		}
		objects, err := objectsOf(ctx, conn, s.name)
		if err != nil || objects != s.objects {
			return err
		}
		var deletes strings.Builder
		for table, sum := range s.rows {
			if sum == "" {
				fmt.Fprintf(&deletes, "DELETE FROM %s;", pgx.Identifier{s.name, table}.Sanitize())
			}
		}
		if _, err := conn.Exec(ctx, deletes.String()); err != nil {
			return err
		}
		rows, err := rowsOf(ctx, conn, s.name)
		same = maps.Equal(rows, s.rows)
		return err
	})
	return same && err == nil, err
}

// endSessions ends the sessions that locks or their names connect with the schema, and waits until
// they are gone. Each try waits for at most a second.
func endSessions(ctx context.Context, conn *pgx.Conn, schema string) error {
	for range 30 {
		var left int
		err := conn.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid, 1000))
			FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND (starts_with(application_name, $1) OR pid IN (
				SELECT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
				WHERE l.locktype = 'relation' AND c.relnamespace = to_regnamespace($1)))`, schema).
			Scan(&left)
		if err != nil || left == 0 {
			return err
		}
	}
	return fmt.Errorf("sessions of schema %s do not end", schema)
}

// stopVacuum keeps autovacuum from the tables. It would note that they are empty, and statements
// would then scan tables that another test fills.
func stopVacuum(ctx context.Context, conn *pgx.Conn, schema string) error {
	_, err := conn.Exec(ctx, `DO $$ DECLARE name text; BEGIN
		FOR name IN SELECT oid::regclass FROM pg_class
			WHERE relnamespace = '`+schema+`'::regnamespace AND relkind = 'r'
		LOOP EXECUTE 'ALTER TABLE ' || name || ' SET (autovacuum_enabled = off)'; END LOOP;
	END $$`)
	return err
}

// objectsOf returns the checksum of [objectsSQL].
func objectsOf(ctx context.Context, conn *pgx.Conn, schema string) (sum string, err error) {
	var size int64
	err = conn.QueryRow(ctx, objectsSQL, schema).Scan(&sum, &size)
	if size > mostGrown {
		return "", err
	}
	return sum, err
}

// rowsOf returns the checksum of the rows of each table. It is empty for a table without rows.
func rowsOf(ctx context.Context, conn *pgx.Conn, schema string) (map[string]string, error) {
	rows, err := conn.Query(ctx, `SELECT relname FROM pg_class
		WHERE relnamespace = to_regnamespace($1) AND relkind = 'r'`, schema)
	if err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	sums := make(map[string]string, len(tables))
	if len(tables) == 0 {
		return sums, nil
	}
	queries := make([]string, len(tables))
	for i, table := range tables {
		queries[i] = "SELECT coalesce(md5(string_agg(t::text, chr(10) ORDER BY t::text)), '') FROM " +
			pgx.Identifier{schema, table}.Sanitize() + " t"
	}
	rows, err = conn.Query(ctx, strings.Join(queries, " UNION ALL "))
	if err != nil {
		return nil, err
	}
	answers, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for i, sum := range answers {
		sums[tables[i]] = sum
	}
	return sums, err
}
