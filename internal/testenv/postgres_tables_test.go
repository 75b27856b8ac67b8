package testenv

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { os.Exit(DropTables(m.Run())) }

// A schema is used again if it is as create left it; the rows of its test are gone then.
func TestPostgresTables(t *testing.T) {
	service(t, "POSTGRES_URL")
	run := func(t *testing.T, url, sql string) {
		t.Helper()
		require.NoError(t, withConn(t.Context(), url, func(conn *pgx.Conn) error {
			_, err := conn.Exec(t.Context(), sql)
			return err
		}))
	}
	for name, c := range map[string]struct {
		sql  string
		made int // times that create is called for two tests
	}{
		"nothing":       {"SELECT 1", 1},
		"rows":          {"INSERT INTO events VALUES ('a'), ('b')", 1},
		"first row":     {"UPDATE versions SET n = 2", 2},
		"further row":   {"INSERT INTO versions VALUES (2)", 2},
		"row of create": {"DELETE FROM versions", 2},
		"column":        {"ALTER TABLE events ADD n int", 2},
		"constraint":    {"ALTER TABLE events DROP CONSTRAINT events_pkey", 2},
		"check":         {"ALTER TABLE events ADD CHECK (id <> '')", 2},
		"index":         {"CREATE INDEX ON events (length(id))", 2},
		"option":        {"ALTER TABLE events SET (fillfactor = 50)", 2},
		"right":         {"GRANT SELECT ON events TO public", 2},
		"right in the schema": {`DO $$ BEGIN
			EXECUTE 'GRANT USAGE ON SCHEMA ' || current_schema() || ' TO public';
		END $$`, 2},
		"trigger": {`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
			CREATE TRIGGER t BEFORE DELETE ON events FOR EACH ROW EXECUTE FUNCTION f()`, 2},
		"function":   {"CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", 2},
		"table":      {"CREATE TABLE more ()", 2},
		"view":       {"CREATE VIEW more AS SELECT 1", 2},
		"same table": {"DROP TABLE events; CREATE TABLE events (id text PRIMARY KEY)", 2},
		"no table":   {"DROP TABLE events, versions", 2},
		"no schema": {`DO $$ BEGIN
			EXECUTE 'DROP SCHEMA ' || current_schema() || ' CASCADE';
		END $$`, 2},
		"many rows": {`INSERT INTO events
			SELECT n || repeat('x', 100) FROM generate_series(1, 10000) n`, 2},
		"open transaction": {"BEGIN; INSERT INTO events VALUES ('a')", 1},
	} {
		t.Run(name, func(t *testing.T) {
			made := 0
			closeConn := func() {} // the session of the first test is open until its schema is empty
			defer func() { closeConn() }()
			tables := func(t *testing.T) string {
				return PostgresTables(t, t.Name()[:len("TestPostgresTables/")]+name, func(url string) error {
					made++
					run(t, url, `CREATE TABLE events (id text PRIMARY KEY);
						CREATE TABLE versions (n int); INSERT INTO versions VALUES (1)`)
					return nil
				})
			}
			t.Run("first", func(t *testing.T) {
				conn, err := pgx.Connect(t.Context(), tables(t))
				require.NoError(t, err)
				closeConn = func() { _ = conn.Close(context.Background()) }
				_, err = conn.Exec(t.Context(), c.sql)
				require.NoError(t, err)
			})
			t.Run("second", func(t *testing.T) {
				url := tables(t)
				require.Equal(t, c.made, made)
				run(t, url, `DO $$ BEGIN
					ASSERT (SELECT count(*) FROM events) = 0 AND (SELECT sum(n) FROM versions) = 1;
				END $$`)
				require.Empty(t, kept.schemas["TestPostgresTables/"+name], "one test at a time uses a schema")
			})
			require.Len(t, kept.schemas["TestPostgresTables/"+name], 1)
		})
	}
}
