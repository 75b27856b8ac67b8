package main

import (
	"net/http"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/examples/internal/clitest"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/testenv"
)

func TestUsage(t *testing.T) {
	t.Setenv("POSTGRES_URL", "")
	t.Setenv("REDIS_URL", "")
	clitest.Usage(t, run, []clitest.Case{
		{Args: []string{"-h"}, Want: cli.ExitOK, Says: "Usage of transfer"},
		{Args: []string{"-nonsense"}, Want: cli.ExitUsage, Says: "not defined"},
		{Args: []string{"-redis", "redis://x"}, Want: cli.ExitUsage, Says: "-postgres is missing"},
		{Args: []string{"-postgres", "postgres://x"}, Want: cli.ExitUsage, Says: "-redis is missing"},
		{Args: []string{"-postgres", "postgres://x", "-redis", "redis://x", "-seed", "-1"}, Want: cli.ExitUsage, Says: "-seed must be between"},
		{Args: []string{"-postgres", "postgres://x", "-redis", "redis://x", "now"}, Want: cli.ExitUsage, Says: `unexpected argument "now"`},
		{Args: []string{"-postgres", "postgres://127.0.0.1:1/none", "-redis", "redis://x"}, Want: cli.ExitError, Says: "migrate"},
	})
}

// Every process prepares the database at its start: several at once, and repeatedly. Existing rows
// stay.
func TestMigrateAndSeed_Idempotent(t *testing.T) {
	url := testenv.Postgres(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			pool, err := openPool(t.Context(), url)
			if err != nil {
				t.Error(err)
				return
			}
			defer pool.Close()
			if err := migrate(t.Context(), pool); err != nil {
				t.Error(err)
			}
			if _, err := seed(t.Context(), pool, 100); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	pool, err := openPool(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	v := &vault{bank: &bank{pool}, t: t, url: url}
	v.decided(naturalKey{"anna", "k"}, rent)
	before, err := readIdentity(t.Context(), pool)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(before.secret), 32)

	require.NoError(t, migrate(t.Context(), pool))
	added, err := seed(t.Context(), pool, 101)
	require.NoError(t, err)
	require.EqualValues(t, 1, added)
	after, err := readIdentity(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.EqualValues(t, 75_000, v.balance(1))
	require.EqualValues(t, 101*seedBalance, v.number(`SELECT sum(balance)::bigint FROM accounts`))
	v.requireSound()
}

// A process that gets SIGTERM finishes the requests that it has accepted.
func TestStopsInGoodOrder(t *testing.T) {
	v := newVault(t, 2)
	p := startProcess(t, v.url, "redis://"+testenv.RedisServer(t))
	client, answered := &http.Client{Transport: &httpidem.Transport{Attempts: 1}}, make(chan error, 1)
	blocker, err := v.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), `SELECT FROM accounts WHERE id = 1 FOR UPDATE`)
	require.NoError(t, err)
	go func() {
		status, _, err := p.post(t.Context(), client, "k", rentBody)
		if err == nil && status != http.StatusCreated {
			err = http.ErrAbortHandler
		}
		answered <- err
	}()
	v.waitForLock("transactionid")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.waitFor(func() bool { // it refuses new connections
		return !p.healthy()
	})
	require.NoError(t, blocker.Rollback(t.Context()))
	require.NoError(t, <-answered)
	require.NoError(t, p.cmd.Wait())
	require.EqualValues(t, 75_000, v.balance(1))
	v.requireSound()
}

func TestHelp_ShowsNoPassword_G04(t *testing.T) {
	clitest.HelpShowsNoPassword(t, run)
}
