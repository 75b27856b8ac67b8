package defertest

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/internal/sqlrecord"
	"github.com/stretchr/testify/require"
)

// PlanSite is a database with empty tables, and a record of all statements.
type PlanSite struct {
	DB    *sql.DB
	Log   *sqlrecord.Log
	Store *sqlstore.Store
	// Analyze makes the server read the statistics of the tables.
	Analyze string
	// Problems returns the parts of a plan that read more rows than they need. Problems explains s
	// in tx, which is rolled back.
	Problems func(t testing.TB, tx *sql.Tx, s sqlrecord.Statement) []string
}

const (
	planQueues = 400 // in the partition
	planLong   = 500 // events in the long queue
)

// Plans looks at the plan of each statement of [dedup.Deferrer] but INSERT. The tables have many
// queues, a long queue, and events of another partition and topic. Each statement finds its rows in
// an index, with statistics of the tables and without (rule 4).
func Plans(t *testing.T, site PlanSite) {
	s := site.Store
	part := dedup.DeferredPartition{Scope: scope, Topic: topic}
	fillQueues(t, s, part)
	event := deferred
	next := 0 // of the short queues
	queue := func() (name, id string) {
		next++
		return fmt.Sprintf("queue-%03d", next), fmt.Sprintf("queue-%03d/0", next)
	}
	calls := map[string]func(context.Context) error{
		"defer": func(ctx context.Context) error {
			next++
			return s.Defer(ctx, part, []dedup.Deferred{event("long", fmt.Sprint("more-", next))})
		},
		"due": func(ctx context.Context) error {
			heads, _, err := s.Due(ctx, part, 10)
			require.Len(t, heads, 10)
			return err
		},
		"first": func(ctx context.Context) error {
			first, err := s.First(ctx, part, "long", 3)
			require.Len(t, first, 3)
			return err
		},
		"queues": func(ctx context.Context) error {
			queues, err := s.Queues(ctx, part, "", 10)
			require.Len(t, queues, 10)
			return err
		},
		"queues after": func(ctx context.Context) error {
			queues, err := s.Queues(ctx, part, "queue-300", 10)
			require.Len(t, queues, 10)
			return err
		},
		"postpone": func(ctx context.Context) error {
			e := event(queue())
			e.Position.Retry, e.Wait = 1, time.Second
			moved, err := s.Postpone(ctx, part, e)
			require.True(t, moved || err != nil)
			return err
		},
		"remove": func(ctx context.Context) error {
			name, id := queue()
			empty, err := s.Remove(ctx, part, name, event(name, id))
			require.False(t, empty)
			return err
		},
		"remove all": func(ctx context.Context) error {
			name, id := queue()
			second := strings.TrimSuffix(id, "0") + "1"
			empty, err := s.Remove(ctx, part, name, event(name, id), event(name, second))
			require.True(t, empty || err != nil)
			return err
		},
		"delay": func(ctx context.Context) error {
			a, _ := queue()
			b, _ := queue()
			return s.Delay(ctx, part, time.Second, a, b)
		},
		"deferred of": func(ctx context.Context) error {
			found, err := s.DeferredOf(ctx, scope, topic, event("", "long/7").Key,
				event("", "queue-350/1").Key, event("", "unknown").Key)
			require.Len(t, found, 2)
			return err
		},
		"find deferred": func(ctx context.Context) error {
			_, _, ok, err := s.FindDeferred(ctx, scope, topic, event("", "long/7").Key)
			require.True(t, ok)
			return err
		},
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			_, err := site.DB.ExecContext(t.Context(), site.Analyze)
			require.NoError(t, err)
		}
		for name, call := range calls {
			t.Run(fmt.Sprintf("%s/%v", name, analyzed), func(t *testing.T) {
				site.Log.Take()
				require.NoError(t, call(t.Context()))
				site.look(t, site.Log.Take())
			})
		}
	}
	t.Run("control", func(t *testing.T) {
		require.NotEmpty(t, site.problems(t, nil, sqlrecord.Statement{
			Text: "SELECT seq FROM deferred_events p WHERE event_id > 'x' ORDER BY event_id"}))
		require.NotEmpty(t, site.problems(t, nil, sqlrecord.Statement{
			Text: "SELECT head_seq FROM deferred_queues WHERE next_seq > 5"}))
	})
}

// look explains the statements of one call that read the tables of deferred events.
func (site PlanSite) look(t *testing.T, all []sqlrecord.Statement) {
	t.Helper()
	var settings []sqlrecord.Statement
	looked := 0
	for _, s := range all {
		verb, _, _ := strings.Cut(s.Text, " ")
		switch {
		case strings.Contains(s.Text, "set_config("): // until the end of a transaction
			settings = append(settings, s)
		case strings.Contains(s.Text, "deferred_") &&
			slices.Contains([]string{"SELECT", "UPDATE", "DELETE"}, verb):
			looked++
			require.Empty(t, site.problems(t, settings, s), s.Text)
		}
	}
	require.Positive(t, looked, "no statement was seen: %v", all)
}

func (site PlanSite) problems(
	t *testing.T, settings []sqlrecord.Statement, s sqlrecord.Statement,
) []string {
	t.Helper()
	tx, err := site.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	for _, set := range settings {
		_, err := tx.ExecContext(t.Context(), set.Text, set.Args...)
		require.NoError(t, err, set.Text)
	}
	return site.Problems(t, tx, s)
}

func deferred(queue, id string) dedup.Deferred {
	return dedup.Deferred{Key: dedup.Key{Scope: scope, Type: "t", ID: id}, Queue: queue,
		Data: []byte("x")}
}

// fillQueues defers two events in each short queue, the events of the long queue, and those of
// another partition and of another topic.
func fillQueues(t *testing.T, s *sqlstore.Store, part dedup.DeferredPartition) {
	t.Helper()
	var events []dedup.Deferred
	for i := range planQueues {
		name := fmt.Sprintf("queue-%03d", i)
		events = append(events, deferred(name, name+"/0"), deferred(name, name+"/1"))
	}
	for i := range planLong {
		events = append(events, deferred("long", fmt.Sprint("long/", i)))
	}
	require.NoError(t, s.Defer(t.Context(), part, events))
	other := part
	other.Topic = "refunds"
	require.NoError(t, s.Defer(t.Context(), other, events))
	for i := range events {
		events[i].Key.ID += "/elsewhere"
		events[i].Queue += "/elsewhere"
	}
	other = part
	other.Partition = 1
	require.NoError(t, s.Defer(t.Context(), other, events))
}

// PostgresProblems are sequential scans, filters that remove rows, and nodes with more rows than
// the long queue has.
func PostgresProblems(t testing.TB, tx *sql.Tx, s sqlrecord.Statement) (problems []string) {
	t.Helper()
	lines := column(t, tx, 0, "EXPLAIN (ANALYZE, TIMING off) "+s.Text, s.Args)
	for _, line := range lines {
		m := actualRows.FindStringSubmatch(line)
		many := false
		if m != nil {
			rows, err := strconv.ParseFloat(m[1], 64)
			require.NoError(t, err, line)
			loops, err := strconv.ParseFloat(m[2], 64)
			require.NoError(t, err, line)
			many = rows*loops > planLong+100
		}
		if many || strings.Contains(line, "Seq Scan on deferred_") ||
			strings.Contains(line, "Rows Removed by") {
			problems = append(problems, strings.Join(lines, "\n"))
		}
	}
	return problems
}

var actualRows = regexp.MustCompile(`actual rows=([0-9.]+) loops=([0-9]+)`)

// SQLiteProblems are scans of a table or an index. Derived tables have limits.
func SQLiteProblems(t testing.TB, tx *sql.Tx, s sqlrecord.Statement) (problems []string) {
	t.Helper()
	lines := column(t, tx, 3, "EXPLAIN QUERY PLAN "+s.Text, s.Args)
	due := strings.Contains(s.Text, "deferred_queues_due") // sorts the few rows of its subquery
	for _, line := range lines {
		if strings.Contains(line, "SCAN deferred_") || strings.Contains(line, "SCAN p") ||
			strings.Contains(line, "TEMP B-TREE") && !due {
			problems = append(problems, strings.Join(lines, "\n"))
		}
	}
	return problems
}

// MariaDBProblems are scans of a table or an index, and sorts of their rows. Derived tables have
// limits.
func MariaDBProblems(t testing.TB, tx *sql.Tx, s sqlrecord.Statement) (problems []string) {
	t.Helper()
	const table, access, key, extra = 2, 3, 5, 9
	tables := column(t, tx, table, "EXPLAIN "+s.Text, s.Args)
	accesses := column(t, tx, access, "EXPLAIN "+s.Text, s.Args)
	keys := column(t, tx, key, "EXPLAIN "+s.Text, s.Args)
	extras := column(t, tx, extra, "EXPLAIN "+s.Text, s.Args)
	for i, name := range tables {
		if !slices.Contains([]string{"deferred_queues", "deferred_events", "k", "p"}, name) {
			continue
		}
		if accesses[i] == "ALL" || accesses[i] == "index" || keys[i] == "" ||
			strings.Contains(extras[i], "filesort") || strings.Contains(extras[i], "temporary") {
			problems = append(problems, fmt.Sprintf("%s: %s, key %q, %s", name, accesses[i], keys[i],
				extras[i]))
		}
	}
	return problems
}

// column returns a column of the rows of a query, null as "".
func column(t testing.TB, tx *sql.Tx, at int, text string, args []any) (all []string) {
	t.Helper()
	rows, err := tx.QueryContext(t.Context(), text, args...)
	require.NoError(t, err, text)
	defer func() { require.NoError(t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(t, rows.Scan(into...))
		all = append(all, values[at].String)
	}
	require.NoError(t, rows.Err())
	return all
}
