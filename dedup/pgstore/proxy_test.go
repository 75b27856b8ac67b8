package pgstore_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/internal/netproxy"
	"github.com/jackc/pgx/v5/pgxpool"
)

// cut is a moment at which a connection breaks.
type cut int32

const (
	noCut cut = iota
	// beforeCommit: the server has got everything but COMMIT.
	beforeCommit
	// afterCommit: the server has committed and is ready for more, and no answer reaches the
	// client.
	afterCommit
	// lateCommit: the client loses the connection, and the server gets COMMIT only after it has told
	// another client that a transaction is in progress.
	lateCommit
	// heldCommit: the same, but the client keeps the connection.
	heldCommit
)

func (c cut) String() string { return [...]string{"none", "before", "after", "late", "held"}[c] }

// cutter is a way to Postgres on which a connection breaks exactly before or exactly after COMMIT. It reads the messages of
// the protocol, without TLS.
type cutter struct {
	*netproxy.Proxy
	only          string       // if not empty: only statements with this in their text count as COMMIT; set it first
	armed         atomic.Int32 // a cut for the next COMMIT, once
	before, after atomic.Int32 // cuts that happened
	late          atomic.Bool  // a COMMIT is held back, or was
	told          chan struct{}
	tell          func() // closes told
	over          <-chan struct{}
}

func newCutter(t testing.TB, target string) *cutter {
	c := &cutter{told: make(chan struct{}), over: t.Context().Done()}
	c.tell = sync.OnceFunc(func() { close(c.told) })
	c.Proxy = netproxy.Start(t, target, func() netproxy.Link {
		l := &pgLink{c: c, commits: make(map[string]bool), portals: make(map[string]bool),
			ended: make(chan struct{})}
		return netproxy.Link{Up: l.up, Down: l.down}
	})
	return c
}

// throughCutter returns a cutter in front of the server that pool uses, and the setting that sends
// another pool through it.
func throughCutter(t testing.TB, direct *pgxpool.Pool) (*cutter, configure) {
	t.Helper()
	cfg := direct.Config().ConnConfig
	c := newCutter(t, fmt.Sprintf("%s:%d", cfg.Host, cfg.Port))
	return c, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.TLSConfig, cfg.ConnConfig.Fallbacks = nil, nil
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", c.Addr())
		}
	}
}

func (c *cutter) arm(what cut) { c.armed.Store(int32(what)) }

// spent reports whether the cut that was armed has been made, or begun.
func (c *cutter) spent() bool { return c.armed.Load() == int32(noCut) }

func (c *cutter) cuts() int { return int(c.before.Load() + c.after.Load()) }

// pgLink is one session.
type pgLink struct {
	c       *cutter
	commits map[string]bool // prepared statements, by whether they commit
	portals map[string]bool // bound portals, by whether they commit
	deaf    atomic.Bool     // the client is to get no answer to the COMMIT that is under way
	ended   chan struct{}   // closed when the server has no more to say
}

// up carries the messages of the client, one by one. All but the first have a type.
func (l *pgLink) up(server io.Writer, client io.Reader) {
	in, out := bufio.NewReader(client), bufio.NewWriter(server)
	for first := true; ; first = false {
		m, err := readMessage(in, !first)
		if err != nil {
			return
		}
		if first && l.c.late.Load() && isCancel(m) {
			return // a lost client cancels nothing
		}
		if !first && l.commitsBy(m) {
			switch cut(l.c.armed.Swap(int32(noCut))) {
			case beforeCommit:
				_ = out.Flush() // the server may be gone: that is a cut too
				l.c.before.Add(1)
				return
			case afterCommit:
				l.deaf.Store(true)
			case lateCommit:
				l.commitLate(out, m, client.(io.Closer))
				return
			case heldCommit:
				l.commitLate(out, m, io.NopCloser(nil))
				return
			case noCut:
			}
		}
		if _, err := out.Write(m); err != nil {
			return
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// commitLate closes client, and carries m to the server later. No answer reaches the client.
func (l *pgLink) commitLate(out *bufio.Writer, m []byte, client io.Closer) {
	l.deaf.Store(true)
	l.c.late.Store(true)
	_ = client.Close()
	wait(l.c.told, l.c.over)
	_, _ = out.Write(m)
	_ = out.Flush()
	wait(l.ended, l.c.over)
}

// wait waits for an event, or for the end of the test.
func wait(event, over <-chan struct{}) {
	select {
	case <-event:
	case <-over:
	}
}

// isCancel reports whether the first message of a connection is a cancel request.
func isCancel(m []byte) bool {
	return len(m) == 16 && binary.BigEndian.Uint32(m[4:]) == 80877102
}

// commitsBy reports whether the server commits when it gets m: a simple query, or the execution of
// a prepared statement, with COMMIT as the last command.
func (l *pgLink) commitsBy(m []byte) bool {
	switch body := m[5:]; m[0] {
	case 'Q':
		return l.c.isCommit(text(body, 0))
	case 'P':
		l.commits[text(body, 0)] = l.c.isCommit(text(body, 1))
	case 'B':
		l.portals[text(body, 0)] = l.commits[text(body, 1)]
	case 'E':
		return l.portals[text(body, 0)]
	}
	return false
}

func (c *cutter) isCommit(sql string) bool {
	words := strings.Fields(strings.ToLower(strings.TrimRight(sql, "; ")))
	return len(words) > 0 && words[len(words)-1] == "commit" && strings.Contains(sql, c.only)
}

// text returns the nth of the texts that a message begins with, each of which ends with a zero byte.
func text(body []byte, n int) string {
	parts := bytes.SplitN(body, []byte{0}, n+2)
	return string(parts[min(n, len(parts)-1)])
}

// down carries the messages of the server, one by one. If a COMMIT is to be cut, no message gets
// through from its answer on. The connection ends once the server is ready for more: it has
// committed. If the server refuses, the connection is not cut.
func (l *pgLink) down(client io.Writer, server io.Reader) {
	defer close(l.ended)
	in, out := bufio.NewReader(server), bufio.NewWriter(client)
	committed := false
	for {
		m, err := readMessage(in, true)
		if err != nil {
			return
		}
		if l.deaf.Load() {
			switch {
			case m[0] == 'C' && text(m[5:], 0) == "COMMIT":
				committed = true
			case m[0] == 'Z' && committed:
				l.c.after.Add(1)
				return
			case m[0] == 'Z':
				l.deaf.Store(false)
			}
		}
		if committed {
			continue
		}
		if l.c.late.Load() && m[0] == 'D' && bytes.Contains(m, []byte("in progress")) {
			l.c.tell()
		}
		if _, err := out.Write(m); err != nil {
			return
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

const maxMessage = 64 << 20

// readMessage reads one whole message: type, length, body.
func readMessage(r *bufio.Reader, typed bool) ([]byte, error) {
	head := 4
	if typed {
		head = 5
	}
	m := make([]byte, head)
	if _, err := io.ReadFull(r, m); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(m[head-4:])) - 4
	if n < 0 || n > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	m = slices.Grow(m, n)[:head+n]
	_, err := io.ReadFull(r, m[head:])
	return m, err
}
