package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
	"github.com/idem-go/idem/internal/sqlrecord"
	"github.com/stretchr/testify/require"
)

// A plan that was made for a small table stays until autovacuum has looked at the grown one. So the
// plans for small tables find rows by their whole keys too.
func TestKeysAreLookedUpInTheIndex(t *testing.T) {
	db, log := sqlrecord.Open(t, "pgx", unusedTables(t)+"&"+postgres.Parameters)
	s := postgres.New(db)
	ctx := t.Context()
	requests := func(n int) []dedup.Request {
		all := make([]dedup.Request, n)
		for i := range all {
			all[i] = dedup.Request{Retention: time.Hour,
				Key: dedup.Key{Scope: "g", Type: fmt.Sprint("t", 2*i/n), ID: fmt.Sprintf("e-%03d", i)}}
		}
		return all
	}
	calls := map[string]func(reqs []dedup.Request) error{
		"claim": func(reqs []dedup.Request) error {
			token, answers := dedup.NewToken(), make([]dedup.Answer, len(reqs))
			if err := s.Claim(ctx, token, time.Minute, reqs, answers); err != nil {
				return err
			}
			var done []dedup.Completion
			for i := range reqs {
				if answers[i].Verdict == dedup.Fresh {
					done = append(done, dedup.Completion{Claim: reqs[i].Held(token, answers[i]),
						Retention: time.Hour})
				}
			}
			return s.Complete(ctx, done)
		},
		"claim in a transaction": func(reqs []dedup.Request) error {
			return s.ClaimTx(ctx, time.Minute, reqs, make([]dedup.Answer, len(reqs)),
				func(*sql.Tx) ([]dedup.Completion, error) { return nil, nil })
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 2, 500, 500} { // new ones, and known ones
				log.Take()
				require.NoError(t, call(requests(n)))
				looked := 0
				for _, st := range log.Take() {
					if strings.HasPrefix(st.Text, "SELECT tenant") {
						looked++
						requireKeyLookup(t, db, st)
					}
				}
				require.Positive(t, looked)
			}
		})
	}
}

// requireKeyLookup requires that st finds each row by its whole key, with the settings of a store's
// transaction.
func requireKeyLookup(t *testing.T, db *sql.DB, st sqlrecord.Statement) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	_, err = tx.ExecContext(t.Context(), "SET LOCAL enable_seqscan = off")
	require.NoError(t, err)
	rows, err := tx.QueryContext(context.WithoutCancel(t.Context()), "EXPLAIN "+st.Text, st.Args...)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var plan strings.Builder
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		plan.WriteString(line + "\n")
	}
	require.NoError(t, rows.Err())
	require.Contains(t, plan.String(), "Index Cond: ((tenant = ", st.Text)
	require.Contains(t, plan.String(), "(event_id = ", st.Text)
	require.NotContains(t, plan.String(), "Filter:", st.Text)
	require.NotContains(t, plan.String(), "Seq Scan", st.Text)
}
