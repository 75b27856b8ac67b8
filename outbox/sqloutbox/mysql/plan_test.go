package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/sqlrecord"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/sqloutbox/mysql"
)

// fill inserts n rows in a state, with a number of keys. The shards are those of the keys modulo
// 64, which is enough for plans. It returns the number of the first row.
func fill(t *testing.T, db *sql.DB, n, state, keys int) (first int64) {
	t.Helper()
	require.NoError(t, exec(t.Context(), db, fmt.Sprintf(`INSERT INTO idem_outbox
		(shard, state, topic, `+"`key`"+`, event_id, event_type, payload, ended_at, error)
		SELECT seq %% %d %% 64, %d, 'orders', seq %% %d, seq, 't', repeat('p', 200),
			IF(%d IN (1, 2), UTC_TIMESTAMP(6) - INTERVAL 1 DAY, NULL), IF(%d = 2, 'e', NULL)
		FROM seq_1_to_%d`, keys, state, keys, state, state, n)))
	require.NoError(t, db.QueryRowContext(t.Context(),
		"SELECT max(seq) - ? + 1 FROM idem_outbox", n).Scan(&first))
	return first
}

// rowID is the row of the event whose ID is a number.
func rowID(seq, event int64) outbox.RowID {
	return outbox.RowID{Seq: seq, EventID: strconv.FormatInt(event, 10)}
}

// TestPlans looks at the plan of each statement of writers, relays and operators, with many kept,
// parked and blocked rows in the table. No statement scans the table or an index of it, and no
// statement sorts its rows, but the list of parked rows. The plans hold with and without statistics
// of the rows.
func TestPlans(t *testing.T) {
	db, log := sqlrecord.Open(t, "mysql", testenv.MariaDB(t))
	require.NoError(t, mysql.Migrate(t.Context(), db))
	box := mysql.New(db)
	fill(t, db, 50_000, 1, 1000)
	firstParked := fill(t, db, 300, 2, 1000)
	fill(t, db, 5_000, 3, 1000)
	first := fill(t, db, 3_000, 0, 300) // of keys with parked rows
	parked, waiting := firstParked, first
	held, err := box.Hold(t.Context(), "relay", time.Hour, true)
	require.NoError(t, err)
	require.Len(t, held, outbox.Shards)
	settle := func(of func(waiting []outbox.RowID) outbox.Settlement) func(context.Context) error {
		return func(ctx context.Context) error {
			var rows []outbox.RowID
			for range 100 {
				rows = append(rows, rowID(waiting, waiting-first+1))
				waiting++
			}
			_, err := box.Settle(ctx, "relay", held, of(rows))
			return err
		}
	}
	fetch := func(f outbox.Fetch) func(context.Context) error {
		return func(ctx context.Context) error {
			found, err := box.Fetch(ctx, f)
			require.NotEmpty(t, found)
			return err
		}
	}
	one := []outbox.Lease{held[8]}
	// The names end with a statement that the call must send.
	calls := map[string]func(context.Context) error{
		"add SELECT": func(ctx context.Context) error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			err = box.Add(ctx, tx, entry("A", "1"), entry("B", "2"))
			return errors.Join(err, tx.Rollback())
		},
		"fetch one SELECT": fetch(outbox.Fetch{Shards: one, Limit: 100, Bytes: 1 << 20, Halt: true}),
		"fetch SELECT":     fetch(outbox.Fetch{Shards: held, Limit: 100, Bytes: 1 << 20, Halt: true}),
		"fetch all SELECT": fetch(outbox.Fetch{Shards: held, Limit: 100, Bytes: 1 << 20}),
		"fetch, skip SELECT": fetch(outbox.Fetch{
			Shards: held, Limit: 100, Bytes: 1 << 20, Halt: true,
			Skip: []outbox.Aggregate{{Topic: "orders", Key: "7"}}, SkipRows: []int64{5},
		}),
		"settle sent DELETE": settle(func(rows []outbox.RowID) outbox.Settlement {
			return outbox.Settlement{Sent: rows}
		}),
		"settle kept UPDATE": settle(func(rows []outbox.RowID) outbox.Settlement {
			return outbox.Settlement{Sent: rows, Keep: true}
		}),
		"settle parked UPDATE": settle(func(rows []outbox.RowID) outbox.Settlement {
			return outbox.Settlement{Parked: map[outbox.RowID]string{rows[0]: "e"}}
		}),
		"settle blocked UPDATE": settle(func(rows []outbox.RowID) outbox.Settlement {
			return outbox.Settlement{Blocked: rows}
		}),
		"purge DELETE": func(ctx context.Context) error {
			n, err := box.Purge(ctx, time.Hour, 100)
			require.EqualValues(t, 100, n)
			return err
		},
		"backlog SELECT": func(ctx context.Context) error {
			_, err := box.Backlog(ctx, 100)
			return err
		},
		"parked SELECT": func(ctx context.Context) error {
			found, err := box.Parked(ctx, 100)
			require.Len(t, found, 100)
			return err
		},
		"retry UPDATE": func(ctx context.Context) error {
			parked++
			return box.Retry(ctx, rowID(parked, parked-firstParked+1))
		},
		"skip DELETE": func(ctx context.Context) error {
			parked++
			return box.Skip(ctx, rowID(parked, parked-firstParked+1))
		},
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			require.NoError(t, exec(t.Context(), db, "ANALYZE TABLE idem_outbox"))
		}
		for name, call := range calls {
			t.Run(fmt.Sprintf("%s/%v", name, analyzed), func(t *testing.T) {
				log.Take()
				require.NoError(t, call(t.Context()))
				want := name[strings.LastIndex(name, " ")+1:]
				looked := map[string]int{}
				for _, s := range log.Take() {
					verb, _, _ := strings.Cut(s.Text, " ")
					if !slices.Contains([]string{"SELECT", "UPDATE", "DELETE"}, verb) ||
						!strings.Contains(s.Text, "FROM idem_outbox") &&
							!strings.Contains(s.Text, "JOIN idem_outbox") &&
							!strings.Contains(s.Text, "UPDATE idem_outbox") {
						continue
					}
					looked[verb]++
					problems := planProblems(t, db, s, name == "parked SELECT")
					require.Empty(t, problems, s.Text)
				}
				require.Positive(t, looked[want], "the statement was not seen: %v", looked)
			})
		}
	}
}

// TestPlansOfASmallTable looks at the plans of the statements that end sent rows, in a table that has
// few others. Reading the whole table looks cheap there, and waits for each row that a writer has not
// committed. So MariaDB must look each row up by its number.
func TestPlansOfASmallTable(t *testing.T) {
	for name, keep := range map[string]bool{"DELETE": false, "UPDATE": true} {
		for _, analyzed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, analyzed), func(t *testing.T) {
				db, log := sqlrecord.Open(t, "mysql", testenv.MariaDB(t))
				require.NoError(t, mysql.Migrate(t.Context(), db))
				box := mysql.New(db)
				fill := func() {
					require.NoError(t, exec(t.Context(), db, "DELETE FROM idem_outbox"))
					require.NoError(t, exec(t.Context(), db, `INSERT INTO idem_outbox
						(seq, shard, state, topic, `+"`key`"+`, event_id, event_type, payload)
						SELECT seq, seq % 64, 0, 'orders', seq, seq, 't', repeat('p', 200) FROM seq_1_to_110`))
					if analyzed {
						require.NoError(t, exec(t.Context(), db, "ANALYZE TABLE idem_outbox"))
					}
				}
				fill()
				held, err := box.Hold(t.Context(), "relay", time.Hour, true)
				require.NoError(t, err)
				writer, err := db.BeginTx(t.Context(), nil) // does not commit
				require.NoError(t, err)
				defer func() { _ = writer.Rollback() }() // no effect at the end
				require.NoError(t, box.Add(t.Context(), writer, entry("A", "late")))
				var sent []outbox.RowID
				for seq := range int64(100) {
					sent = append(sent, rowID(seq+1, seq+1))
				}
				log.Take()
				began := time.Now()
				_, err = box.Settle(t.Context(), "relay", held, outbox.Settlement{Sent: sent, Keep: keep})
				require.NoError(t, err)
				require.Less(t, time.Since(began), 5*time.Second, "the relay waits for the writer")
				ended := slices.DeleteFunc(log.Take(), func(s sqlrecord.Statement) bool {
					return !strings.HasPrefix(s.Text, name) || !strings.Contains(s.Text, "idem_outbox ")
				})
				require.Len(t, ended, 1)
				require.NoError(t, writer.Rollback())
				fill() // the plan depends on the rows
				require.Empty(t, planProblems(t, db, ended[0], false), ended[0].Text)
			})
		}
	}
}

// TestPlansFindScans is the control of TestPlans: a statement without its index is found.
func TestPlansFindScans(t *testing.T) {
	db := newDB(t)
	fill(t, db, 20_000, 1, 1000)
	for _, text := range []string{
		"SELECT seq FROM idem_outbox WHERE event_id = '5'",
		"SELECT seq FROM idem_outbox FORCE INDEX (PRIMARY) WHERE state = 0 ORDER BY seq LIMIT 10",
		"SELECT seq FROM idem_outbox FORCE INDEX (idem_outbox_state) WHERE state = 1 ORDER BY seq",
	} {
		require.NotEmpty(t, planProblems(t, db, sqlrecord.Statement{Text: text}, false), text)
	}
}

// planProblems returns the lines of a plan that scan the rows of the outbox, or sort them. The lists
// of shards and relays are short, and so are derived tables, which have limits.
func planProblems(
	t *testing.T, db *sql.DB, s sqlrecord.Statement, sorts bool,
) (problems []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN "+s.Text, s.Args...)
	require.NoError(t, err, s.Text)
	defer func() { require.NoError(t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		line := make(map[string]*sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i, c := range columns {
			line[c] = &sql.NullString{}
			into[i] = line[c]
		}
		require.NoError(t, rows.Scan(into...))
		table, access, extra := line["table"].String, line["type"].String, line["Extra"].String
		if !slices.Contains([]string{"idem_outbox", "idem_outbox_locks", "o", "p", "b"}, table) {
			continue
		}
		if access == "ALL" || access == "index" || !line["key"].Valid ||
			!sorts && (strings.Contains(extra, "filesort") || strings.Contains(extra, "temporary")) {
			problems = append(problems, fmt.Sprintf("%s: %s, key %q, %s rows, %s", table, access,
				line["key"].String, line["rows"].String, extra))
		}
	}
	require.NoError(t, rows.Err())
	return problems
}
