package soak

import (
	"io"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/netproxy"
)

// loss is the part of an exchange that a proxy loses once.
type loss int32

const (
	nothing    loss = iota
	theRequest      // the server does not act
	theAnswer       // the server acts, and the worker does not learn it
)

// wire is the way of one worker to the servers of its store. The processes of a worker that is
// killed and replaced share it.
type wire struct {
	through map[string]string
	commits bool // a request counts only if it is a COMMIT
	next    atomic.Int32
	lost    atomic.Int64 // requests and answers
}

func newWire(t testing.TB, addrs []string, commits bool) *wire {
	t.Helper()
	w := &wire{through: make(map[string]string), commits: commits}
	for _, addr := range addrs {
		w.through[addr] = netproxy.Start(t, addr, func() netproxy.Link { return netproxy.Link{Up: w.up} }).Addr()
	}
	return w
}

// lose makes the proxy lose something once, of any connection.
func (w *wire) lose(what loss) { w.next.Store(int32(what)) }

// up forwards requests. It ends both directions of its connection when it returns, so that the
// answer to the last request is lost.
func (w *wire) up(server io.Writer, client io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		what := nothing
		if now := loss(w.next.Load()); now != nothing && w.counts(buf[:n]) && w.next.CompareAndSwap(int32(now), int32(nothing)) {
			what = now
			w.lost.Add(1)
		}
		if what == theRequest {
			return
		}
		if _, err := server.Write(buf[:n]); err != nil || what == theAnswer {
			return
		}
	}
}

func (w *wire) counts(request []byte) bool { return !w.commits || isCommit(request) }

// commitWord finds COMMIT as a word: it is also a part of names, and of isolation levels.
var commitWord = regexp.MustCompile(`(?i)(^|[^a-z_])commit([^a-z_]|$)`)

// isCommit reports whether a request has the statement COMMIT.
func isCommit(request []byte) bool { return commitWord.Match(request) }

// Requests of Postgres and of MariaDB.
func TestIsCommit(t *testing.T) {
	for request, want := range map[string]bool{
		"Q\x00\x00\x00\x0bcommit\x00":                                                true,
		"Q\x00\x00\x00\x30select 1 / (true)::int; commit\x00":                        true,
		"C\x00\x00\x00\x06S\x00P\x00\x00\x00\x0e\x00commit\x00\x00\x00":              true,
		"\x07\x00\x00\x00\x03COMMIT":                                                 true,
		"\x30\x00\x00\x00\x03SET TRANSACTION ISOLATION LEVEL READ COMMITTED":         false,
		"Q\x00\x00\x00\x28begin isolation level read committed\x00":                  false,
		"Q\x00\x00\x00\x30select set_config('synchronous_commit', 'on', true)\x00":   false,
		"Q\x00\x00\x00\x22SET LOCAL synchronous_commit = on\x00":                     false,
		"\x30\x00\x00\x00\x03SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@port": false,
		"Q\x00\x00\x00\x0drollback\x00":                                              false,
	} {
		require.Equal(t, want, isCommit([]byte(request)), "%q", request)
	}
}
