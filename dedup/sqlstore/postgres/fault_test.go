package postgres_test

import (
	"bytes"
	"database/sql"
	"io"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/stretchr/testify/require"
)

func requests(ids ...string) (reqs []dedup.Request) {
	for _, id := range ids {
		reqs = append(reqs, dedup.Request{Key: dedup.Key{Scope: "s", Type: "t", ID: id}, Retention: time.Hour})
	}
	return reqs
}

// Commit and Rollback of the lent transaction reach no database: the event has neither effect nor record, and runs again.
func TestHandlerThatEndsTheTransaction(t *testing.T) {
	for name, driver := range drivers {
		for verb, end := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
			t.Run(name+"/"+verb, func(t *testing.T) {
				s := open(t, driver, newTables(t))
				answers := make([]dedup.Answer, 1)
				err := s.ClaimTx(t.Context(), time.Minute, requests("a"), answers, func(tx *sql.Tx) ([]dedup.Completion, error) {
					require.NoError(t, addEffect(t.Context(), tx, "a"))
					require.ErrorIs(t, end(tx), sqlstore.ErrTxOwned)
					require.ErrorIs(t, addEffect(t.Context(), tx, "a"), sql.ErrTxDone)
					return nil, nil
				})
				require.ErrorIs(t, err, dedup.ErrTxEnded)
				require.NotErrorIs(t, err, dedup.ErrUnavailable)
				require.Zero(t, countEffects(t, s, "a"))
				require.NoError(t, s.ClaimTx(t.Context(), time.Minute, requests("a"), answers,
					func(tx *sql.Tx) ([]dedup.Completion, error) { return nil, addEffect(t.Context(), tx, "a") }))
				require.Equal(t, dedup.Fresh, answers[0].Verdict)
				require.Equal(t, 1, countEffects(t, s, "a"))
			})
		}
	}
}

// A connection that is cut at COMMIT leaves the outcome unknown, whether or not COMMIT has arrived. The next claim has the answer.
func TestConnectionCutAtCommit(t *testing.T) {
	for name, driver := range drivers {
		for when, arrives := range map[string]bool{"before it arrives": false, "before the answer": true} {
			t.Run(name+"/"+when, func(t *testing.T) {
				direct := newTables(t)
				u, err := url.Parse(direct)
				require.NoError(t, err)
				var armed, cut atomic.Bool
				proxy := netproxy.Start(t, u.Host, func() netproxy.Link {
					return netproxy.Link{Up: func(dst io.Writer, src io.Reader) {
						buf := make([]byte, 1<<16)
						for {
							n, err := src.Read(buf)
							if err != nil {
								return
							}
							hit := armed.Load() && bytes.Contains(bytes.ToLower(buf[:n]), []byte("commit"))
							cut.Store(cut.Load() || hit)
							if hit && !arrives {
								return
							}
							if _, err := dst.Write(buf[:n]); err != nil {
								return
							}
						}
					}, Down: func(dst io.Writer, src io.Reader) {
						buf := make([]byte, 1<<16)
						for {
							n, err := src.Read(buf)
							if err != nil || cut.Load() {
								return
							}
							if _, err := dst.Write(buf[:n]); err != nil {
								return
							}
						}
					}}
				})
				u.Host = proxy.Addr()
				s := open(t, driver, u.String())
				answers := make([]dedup.Answer, 1)
				err = s.ClaimTx(t.Context(), time.Minute, requests("a"), answers, func(tx *sql.Tx) ([]dedup.Completion, error) {
					armed.Store(true)
					return nil, addEffect(t.Context(), tx, "a")
				})
				require.True(t, cut.Load())
				require.ErrorIs(t, err, dedup.ErrUnknownCommit)
				require.ErrorIs(t, err, dedup.ErrUnavailable)
				after := open(t, driver, direct)
				require.Eventually(t, func() bool {
					err := after.ClaimTx(t.Context(), time.Minute, requests("a"), answers, func(tx *sql.Tx) ([]dedup.Completion, error) {
						return nil, addEffect(t.Context(), tx, "a")
					})
					return err == nil && answers[0].Verdict != dedup.Busy
				}, 20*time.Second, 10*time.Millisecond)
				want := dedup.Fresh
				if arrives {
					want = dedup.Done
				}
				require.Equal(t, want.String(), answers[0].Verdict.String())
				require.Equal(t, 1, countEffects(t, after, "a"))
			})
		}
	}
}
