package sqlite_test

import (
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/stretchr/testify/require"
)

func request(id string) []dedup.Request {
	return []dedup.Request{{Key: dedup.Key{Scope: "s", Type: "t", ID: id}, Retention: time.Hour}}
}

// Commit and Rollback of the lent transaction reach no database: the event has neither effect nor record, and runs again.
func TestHandlerThatEndsTheTransaction(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
		t.Run(name, func(t *testing.T) {
			s := newTxStore(t)
			answers := make([]dedup.Answer, 1)
			for range 2 {
				err := s.ClaimTx(t.Context(), time.Minute, request("a"), answers, func(tx *sql.Tx) ([]dedup.Completion, error) {
					require.NoError(t, addEffect(t.Context(), tx, "a"))
					require.ErrorIs(t, end(tx), sqlstore.ErrTxOwned)
					require.ErrorIs(t, addEffect(t.Context(), tx, "a"), sql.ErrTxDone)
					return nil, nil
				})
				require.ErrorIs(t, err, dedup.ErrTxEnded)
				require.NotErrorIs(t, err, dedup.ErrUnavailable)
			}
			require.Zero(t, countEffects(t, s, "a"))
			require.NoError(t, s.ClaimTx(t.Context(), time.Minute, request("a"), answers,
				func(tx *sql.Tx) ([]dedup.Completion, error) { return nil, addEffect(t.Context(), tx, "a") }))
			require.Equal(t, dedup.Fresh, answers[0].Verdict)
			require.Equal(t, 1, countEffects(t, s, "a"))
		})
	}
}

// A process that is killed inside a transaction leaves only its earlier commits.
func TestKilledProcessKeepsWhatWasCommitted(t *testing.T) {
	if path := os.Getenv("IDEM_TEST_CHILD"); path != "" {
		child(t, path)
		return
	}
	s := newTxStore(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcessKeepsWhatWasCommitted$")
	cmd.Env = append(os.Environ(), "IDEM_TEST_CHILD="+pathOf(t, s))
	require.Error(t, cmd.Run(), "the child kills itself")
	require.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	answers := make([]dedup.Answer, 1)
	run := func(id string) dedup.Verdict {
		require.NoError(t, s.ClaimTx(t.Context(), time.Minute, request(id), answers,
			func(tx *sql.Tx) ([]dedup.Completion, error) { return nil, addEffect(t.Context(), tx, id) }))
		return answers[0].Verdict
	}
	require.Equal(t, dedup.Done, run("before"))
	require.Equal(t, 1, countEffects(t, s, "before"))
	require.Equal(t, 0, countEffects(t, s, "during"))
	require.Equal(t, dedup.Fresh, run("during"))
	require.Equal(t, 1, countEffects(t, s, "during"))
	require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, request("claimed"), answers))
	require.Equal(t, dedup.Busy, answers[0].Verdict, "its lease is alive")
}

// child commits one event, claims another, and kills its process between the mark and the commit of a third.
func child(t *testing.T, path string) {
	s := openStore(t, filepath.Clean(path)).(dedup.TxStore[*sql.Tx])
	answers := make([]dedup.Answer, 1)
	require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, request("claimed"), answers))
	for _, id := range []string{"before", "during"} {
		require.NoError(t, s.ClaimTx(t.Context(), time.Minute, request(id), answers, func(tx *sql.Tx) ([]dedup.Completion, error) {
			err := addEffect(t.Context(), tx, id)
			if id == "during" {
				require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
				select {}
			}
			return nil, err
		}))
	}
}
