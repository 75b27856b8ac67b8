package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/payments/provider"
	"github.com/idem-go/idem/internal/netproxy"
)

// cutter is a proxy of Postgres that breaks a connection exactly before or exactly after the COMMIT
// of a payment.
type cutter struct {
	before, after atomic.Int32 // number of the next COMMITs to cut
	cuts          atomic.Int32
}

// link carries one connection. It reads the messages of the protocol, without TLS.
func (c *cutter) link() netproxy.Link {
	var deaf atomic.Bool // answers no longer reach the client
	up := func(server io.Writer, client io.Reader) {
		in := bufio.NewReader(client)
		for typed := false; ; typed = true { // the first message has no type
			m, err := readMessage(in, typed)
			if err != nil {
				return
			}
			if typed && m[0] == 'Q' && bytes.Contains(m, []byte("idem.session")) && bytes.Contains(m, []byte("; commit")) {
				if c.before.Add(-1) >= 0 {
					c.cuts.Add(1)
					return
				}
				deaf.Store(c.after.Add(-1) >= 0)
			}
			if _, err := server.Write(m); err != nil {
				return
			}
		}
	}
	down := func(client io.Writer, server io.Reader) {
		in, committed := bufio.NewReader(server), false
		for {
			m, err := readMessage(in, true)
			if err != nil {
				return
			}
			if deaf.Load() {
				committed = committed || bytes.HasPrefix(m[5:], []byte("COMMIT\x00"))
				if m[0] == 'Z' && committed {
					c.cuts.Add(1)
					return
				}
				continue
			}
			if _, err := client.Write(m); err != nil {
				return
			}
		}
	}
	return netproxy.Link{Up: up, Down: down}
}

// readMessage reads one message: type, length, body.
func readMessage(r *bufio.Reader, typed bool) ([]byte, error) {
	m := make([]byte, 4, 512)
	if typed {
		m = m[:5]
	}
	if _, err := io.ReadFull(r, m); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(m[len(m)-4:])) - 4
	if n < 0 || n > 1<<20 {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	m = append(m, make([]byte, n)...)
	_, err := io.ReadFull(r, m[len(m)-n:])
	return m, err
}

// newCutShop opens a shop behind a cutter.
func newCutShop(t testing.TB) (*shop, *cutter) {
	c := &cutter{}
	return newShop(t, func(cfg *pgxpool.Config) {
		p := netproxy.Start(t, fmt.Sprintf("%s:%d", cfg.ConnConfig.Host, cfg.ConnConfig.Port), c.link)
		cfg.ConnConfig.TLSConfig, cfg.ConnConfig.Fallbacks = nil, nil
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", p.Addr())
		}
	}), c
}

// H-23, P-11: the connection breaks exactly at the COMMIT of a payment that has been charged. The
// answer is sent after the commit, so it is true. Cut before the commit, the transaction runs again
// and asks the provider with the same key. Cut after the commit, the answer is the stored one. The
// request may be sent again at any time.
func TestCutsAtCommit_Idempotent(t *testing.T) {
	for name, c := range map[string]struct {
		arm      func(*cutter)
		attempts int
		replayed bool
	}{
		"before": {func(c *cutter) { c.before.Store(1) }, 2, false},
		"after":  {func(c *cutter) { c.after.Store(1) }, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, cutter := newCutShop(t)
			for i := range 10 {
				key, order := fmt.Sprint("k-", i), fmt.Sprint("o-", i)
				c.arm(cutter)
				a := s.post("shop", key, wish(order, "ada", 995))
				require.Equal(t, a.id(t), s.provider.Charges()[i].Reference)
				require.Equal(t, c.replayed, a.replayed)
				require.EqualValues(t, i+1, cutter.cuts.Load(), "nothing was cut")
				require.Equal(t, c.attempts, s.provider.Attempts(s.provider.Charges()[i].Key))
				again := s.post("shop", key, wish(order, "ada", 995))
				require.Equal(t, answer{a.status, a.body, true}, again)
				s.require(i+1, i+1, i+1)
			}
		})
	}
}

// The connection breaks at every COMMIT. The client gets an error and may send the request again.
func TestCutsAtEveryCommit_Idempotent(t *testing.T) {
	s, cutter := newCutShop(t)
	cutter.before.Store(1000)
	a := s.post("shop", "k-1", wish("o-1", "ada", 995))
	require.GreaterOrEqual(t, a.status, 500, a.body)
	require.GreaterOrEqual(t, cutter.cuts.Load(), int32(1))
	s.require(0, 1, 0)
	cutter.before.Store(0)
	a = s.post("shop", "k-1", wish("o-1", "ada", 995))
	require.Equal(t, a.id(t), s.provider.Charges()[0].Reference)
	s.require(1, 1, 1)
}

// The provider declines, and the connection breaks at the COMMIT of the decline. The payment stays
// declined, without any other effect.
func TestCutsAtCommitOfDecline(t *testing.T) {
	s, cutter := newCutShop(t)
	s.faults.set(func(r provider.Request) provider.Fault { return provider.Fault{Decline: r.Attempt == 1} })
	cutter.before.Store(1)
	a := s.post("shop", "k-1", wish("o-1", "ada", 995))
	require.Equal(t, 402, a.status, a.body)
	require.EqualValues(t, 1, cutter.cuts.Load(), "nothing was cut")
	s.require(0, 0, 1)
}
