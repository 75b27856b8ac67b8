// Package cuttest cuts the connections of stores of sqlstore while a COMMIT is under way.
package cuttest

import (
	"bytes"
	"context"
	"database/sql"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/stretchr/testify/require"
)

// Site is a database with the tables of one test.
type Site struct {
	// Addr is the address of the server, as host:port.
	Addr string
	// Open returns a store that reaches the server at another address.
	Open func(t testing.TB, addr string) *sqlstore.Store
	// Insert adds an effect of an event.
	Insert func(ctx context.Context, tx *sql.Tx, id string) error
	// Count counts the effects of an event, through a store that [Site].Open has returned.
	Count func(t testing.TB, s *sqlstore.Store, id string) int
}

// AtCommit cuts a connection before COMMIT reaches the server, and before the answer reaches the
// store. The store reports an unknown outcome. The next claim of the event finds the outcome, and
// the event has taken effect once (P-11).
func AtCommit(t *testing.T, newSite func(testing.TB) Site) {
	t.Run("before it arrives", func(t *testing.T) { atCommit(t, newSite(t), &cutter{}) })
	t.Run("before the answer", func(t *testing.T) {
		atCommit(t, newSite(t), &cutter{arrives: true})
	})
}

// Unanswered holds back a COMMIT, and the connection stays open. The store reports an unknown
// outcome after ten seconds, and closes the connection (P-16).
func Unanswered(t *testing.T, newSite func(testing.TB) Site) {
	cutter := &cutter{stays: true, closed: make(chan struct{})}
	atCommit(t, newSite(t), cutter)
	select {
	case <-cutter.closed:
	case <-time.After(10 * time.Second):
		require.Fail(t, "the connection stays open")
	}
}

func atCommit(t *testing.T, site Site, cutter *cutter) {
	proxy := netproxy.Start(t, site.Addr, func() netproxy.Link {
		return netproxy.Link{Up: cutter.up, Down: cutter.down}
	})
	s := site.Open(t, proxy.Addr())
	req := []dedup.Request{{
		Key: dedup.Key{Scope: "s", Type: "t", ID: "a"}, Retention: time.Hour,
	}}
	answers := make([]dedup.Answer, 1)
	err := s.ClaimTx(t.Context(), time.Minute, req, answers,
		func(tx *sql.Tx) ([]dedup.Completion, error) {
			cutter.armed.Store(true)
			return nil, site.Insert(t.Context(), tx, "a")
		})
	require.True(t, cutter.cut.Load(), "no COMMIT was seen")
	require.ErrorIs(t, err, dedup.ErrUnknownCommit)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	after := site.Open(t, site.Addr)
	require.Eventually(t, func() bool {
		err := after.ClaimTx(t.Context(), time.Minute, req, answers,
			func(tx *sql.Tx) ([]dedup.Completion, error) {
				return nil, site.Insert(t.Context(), tx, "a")
			})
		return err == nil && answers[0].Verdict != dedup.Busy
	}, 20*time.Second, 10*time.Millisecond)
	want := dedup.Fresh
	if cutter.arrives {
		want = dedup.Done
	}
	require.Equal(t, want.String(), answers[0].Verdict.String())
	require.Equal(t, 1, site.Count(t, after, "a"))
}

// cutter ends a connection at the first COMMIT after it was armed.
type cutter struct {
	arrives    bool // COMMIT reaches the server, and the answer is held back
	stays      bool // the connection stays open, and COMMIT does not reach the server
	armed, cut atomic.Bool
	closed     chan struct{} // with stays: closed when the store closes the connection
}

func (c *cutter) up(dst io.Writer, src io.Reader) {
	buf := make([]byte, 1<<16)
	for {
		n, err := src.Read(buf)
		if err != nil {
			return
		}
		if c.armed.Load() && bytes.Contains(bytes.ToLower(buf[:n]), []byte("commit")) {
			c.cut.Store(true)
			if c.stays {
				_, _ = io.Copy(io.Discard, src)
				close(c.closed)
			}
			if !c.arrives {
				return
			}
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (c *cutter) down(dst io.Writer, src io.Reader) {
	buf := make([]byte, 1<<16)
	for {
		n, err := src.Read(buf)
		if err != nil || c.cut.Load() {
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}
