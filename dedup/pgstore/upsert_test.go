package pgstore_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// upsertSQL is the upsert of docs/stores.md, word by word.
func upsertSQL(t testing.TB) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/stores.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```sql\n(INSERT INTO accounts AS a.*?)```").FindSubmatch(doc)
	require.NotNil(t, found, "the upsert is not where it was")
	return string(found[1])
}

// The documented statements about an upsert that only goes forward, and about xmax, are true on
// this server.
func TestUpsertGoesForward(t *testing.T) {
	t.Parallel()
	_, pool := newStore(t)
	ctx := t.Context()
	const columns = " (id text PRIMARY KEY, balance int NOT NULL, version int NOT NULL)"
	_, err := pool.Exec(ctx, "CREATE TABLE accounts"+columns)
	require.NoError(t, err)
	upsert := func(balance, version int) (inserted bool, err error) {
		err = pool.QueryRow(ctx, upsertSQL(t), "a", balance, version).Scan(&inserted)
		return inserted, err
	}
	state := func() (balance, version int, none bool) {
		require.NoError(t, pool.QueryRow(ctx, "SELECT balance, version, xmax = 0 FROM accounts WHERE id = 'a'").
			Scan(&balance, &version, &none))
		return balance, version, none
	}
	inserted, err := upsert(100, 1)
	require.NoError(t, err)
	require.True(t, inserted)
	inserted, err = upsert(200, 3)
	require.NoError(t, err)
	require.False(t, inserted, "updated")
	for _, stale := range []int{2, 3} {
		_, err = upsert(999, stale)
		require.ErrorIs(t, err, pgx.ErrNoRows, "refused by the guard")
	}
	balance, version, _ := state()
	require.Equal(t, []int{200, 3}, []int{balance, version})

	_, err = pool.Exec(ctx, "UPDATE accounts SET balance = 201") // later it lies: updated, without
	require.NoError(t, err)
	_, _, none := state()
	require.True(t, none)
	_, err = pool.Exec(ctx, "DELETE FROM accounts")
	require.NoError(t, err)
	inserted, err = upsert(100, 1)
	require.NoError(t, err)
	require.True(t, inserted)
	_, err = pool.Exec(ctx, "SELECT FROM accounts FOR UPDATE") // never updated, with
	require.NoError(t, err)
	_, _, none = state()
	require.False(t, none)

	_, err = pool.Exec(ctx, `DROP TABLE accounts; CREATE TABLE accounts`+columns+` PARTITION BY HASH (id);
		CREATE TABLE accounts_0 PARTITION OF accounts FOR VALUES WITH (MODULUS 1, REMAINDER 0)`)
	require.NoError(t, err)
	_, err = upsert(100, 1)
	require.Error(t, err, "a partitioned table has no xmax to return")
	require.NotErrorIs(t, err, pgx.ErrNoRows)
}
