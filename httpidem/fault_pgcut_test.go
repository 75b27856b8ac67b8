package httpidem_test

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
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/netproxy"
)

// cut is a moment at which a connection to Postgres breaks.
type cut int32

const (
	noCut cut = iota
	// beforeCommit: the server has received everything but COMMIT.
	beforeCommit
	// afterCommit: the server has committed and is ready for more. The client receives no byte of
	// that.
	afterCommit
)

func (c cut) String() string { return [...]string{"none", "before", "after"}[c] }

// cutter is a proxy to Postgres. It breaks the connection exactly before or exactly after the
// COMMIT of a claim.
type cutter struct {
	*netproxy.Proxy
	armed atomic.Int32 // the cut for the next COMMIT, once
	made  atomic.Int32 // cuts that happened
}

// throughCutter returns a cutter in front of the server at url, and the URL of the proxy.
func throughCutter(t testing.TB, url string) (*cutter, func(*pgxpool.Config)) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	c := &cutter{}
	c.Proxy = netproxy.Start(t, fmt.Sprintf("%s:%d", cfg.ConnConfig.Host, cfg.ConnConfig.Port),
		func() netproxy.Link {
			l := &pgLink{c: c, commits: make(map[string]bool), portals: make(map[string]bool)}
			return netproxy.Link{Up: l.up, Down: l.down}
		})
	return c, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.TLSConfig, cfg.ConnConfig.Fallbacks = nil, nil
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", c.Addr())
		}
	}
}

// pgLink is one session.
type pgLink struct {
	c       *cutter
	commits map[string]bool // prepared statements: whether they commit
	portals map[string]bool // bound portals: whether they commit
	deaf    atomic.Bool     // the client receives no answer to the current COMMIT
}

// up forwards the client's messages one by one. All but the first have a type.
func (l *pgLink) up(server io.Writer, client io.Reader) {
	in := bufio.NewReader(client)
	for first := true; ; first = false {
		m, err := readMessage(in, !first)
		if err != nil {
			return
		}
		if !first && l.commitsBy(m) {
			switch cut(l.c.armed.Swap(int32(noCut))) {
			case beforeCommit:
				l.c.made.Add(1)
				return
			case afterCommit:
				l.deaf.Store(true)
			case noCut:
			}
		}
		if _, err := server.Write(m); err != nil {
			return
		}
	}
}

// commitsBy reports whether the server commits a claim after m, a simple query or a prepared one.
func (l *pgLink) commitsBy(m []byte) bool {
	switch body := m[5:]; m[0] {
	case 'Q':
		return isCommit(text(body, 0))
	case 'P':
		l.commits[text(body, 0)] = isCommit(text(body, 1))
	case 'B':
		l.portals[text(body, 0)] = l.commits[text(body, 1)]
	case 'E':
		return l.portals[text(body, 0)]
	}
	return false
}

// isCommit recognises transactions of claims by their mark: a look-up commits too.
func isCommit(sql string) bool {
	words := strings.Fields(strings.ToLower(strings.TrimRight(sql, "; ")))
	return len(words) > 0 && words[len(words)-1] == "commit" &&
		strings.Contains(sql, "idem.session")
}

// text returns the nth text at the beginning of a message. Texts end with a zero byte.
func text(body []byte, n int) string {
	parts := bytes.SplitN(body, []byte{0}, n+2)
	return string(parts[min(n, len(parts)-1)])
}

// down forwards the server's messages. It drops the answer to a COMMIT that is to be cut, and ends
// the connection once the server is ready for more: it has committed. If the server refuses, the
// connection stays.
func (l *pgLink) down(client io.Writer, server io.Reader) {
	in := bufio.NewReader(server)
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
				l.c.made.Add(1)
				return
			case m[0] == 'Z':
				l.deaf.Store(false)
			}
		}
		if committed {
			continue
		}
		if _, err := client.Write(m); err != nil {
			return
		}
	}
}

// readMessage reads one whole message: type, length, body.
func readMessage(r *bufio.Reader, typed bool) ([]byte, error) {
	const most = 64 << 20
	head := 4
	if typed {
		head = 5
	}
	m := make([]byte, head)
	if _, err := io.ReadFull(r, m); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(m[head-4:])) - 4
	if n < 0 || n > most {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	m = slices.Grow(m, n)[:head+n]
	_, err := io.ReadFull(r, m[head:])
	return m, err
}
