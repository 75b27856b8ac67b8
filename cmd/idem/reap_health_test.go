package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/idem-go/idem/internal/testenv"
)

// --watch is ready after its first run, and while the last run did not fail.
func TestReapHealth(t *testing.T) {
	h := newReapHealth(time.Minute)
	require.ErrorIs(t, h.ready(), errNoRun)
	h.note(nil)
	require.NoError(t, h.ready())
	h.note(errors.New("no database"))
	require.ErrorContains(t, h.ready(), "the last run failed: no database")
	h.note(nil)
	require.NoError(t, h.ready())
}

// A run that neither ends nor deletes a batch makes --watch unready. The pause between two runs and a
// run with many batches do not.
func TestReapHealthOfAStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newReapHealth(time.Hour)
		time.Sleep(24 * time.Hour)
		require.ErrorIs(t, h.ready(), errNoRun)
		h.note(nil)
		time.Sleep(time.Hour + reapSlack)
		require.NoError(t, h.ready())
		h.heard()
		time.Sleep(time.Hour + reapSlack)
		require.NoError(t, h.ready())
		time.Sleep(time.Second)
		require.ErrorContains(t, h.ready(), "1h10m1s ago")
		h.note(nil)
		require.NoError(t, h.ready())
		h.note(errors.New("no database"))
		time.Sleep(24 * time.Hour)
		require.ErrorContains(t, h.ready(), "no database")
	})
}

// slowLister is a store with lists that last until the test ends them.
type slowLister struct {
	*sqlstore.Store
	asked, goOn chan struct{}
}

func (s *slowLister) List(
	ctx context.Context, _ dedup.Filter, _ int, _ func(dedup.Record) bool,
) error {
	close(s.asked)
	select {
	case <-s.goOn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The check of --wall-clock reads whole tables. The command answers probes meanwhile: it lives, and
// it is not ready.
func TestReapHealthDuringCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	opener := new(app)
	t.Cleanup(opener.close)
	l, err := opener.openSQLite(t.Context(), path)
	require.NoError(t, err)
	slow := &slowLister{Store: l.sql, asked: make(chan struct{}), goOn: make(chan struct{})}
	l.store = slow

	health := testenv.FreeAddr(t)
	r := startCommand(
		t, map[string]*openedStore{"sqlite:shop": l}, "reap", "--watch", "--store", "sqlite:shop",
		"--wall-clock", "http", "--yes", "--health", health,
	)
	<-slow.asked
	for path, code := range map[string]int{
		"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable,
	} {
		resp, err := http.Get("http://" + health + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, code, resp.StatusCode, path)
	}
	close(slow.goOn)
	require.Eventually(t, func() bool {
		return strings.Contains(r.stdout.String(), "0 events")
	}, soon, poll)
	r.end(t)
	require.Contains(t, r.stderr.String(), "the store has no record of scope")
}

// The process answers probes, and ends in order at SIGTERM: with code 0, after its audit line.
func TestReapWatchProcess(t *testing.T) {
	dir := t.TempDir()
	program, store := filepath.Join(dir, "idem"), filepath.Join(dir, "shop.db")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	s, err := sqlite.Open(t.Context(), store, sqlite.NoReaper())
	require.NoError(t, err)
	require.NoError(t, s.Close())

	var stdout, stderr buffer
	health := testenv.FreeAddr(t)
	cmd := exec.CommandContext(t.Context(), program, "reap", "--watch", "--interval", "50ms", "--yes", "--output", "json", "--store", "sqlite:"+store, "--health", health)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	get := func(path string) int {
		resp, err := http.Get("http://" + health + path)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	require.Eventually(t, func() bool { return get("/readyz") == http.StatusOK }, soon, poll, "%s", &stderr)
	require.Equal(t, http.StatusOK, get("/healthz"))
	require.Eventually(t, func() bool { return strings.Count(stdout.String(), `"events":0`) > 1 }, soon, poll)

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "%s", &stderr)
	require.Contains(t, stderr.String(), `"audit":"reap"`)
	require.Contains(t, stderr.String(), `"outcome":"done"`)
	require.Zero(t, get("/healthz"))
}
