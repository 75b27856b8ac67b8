package cells

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/internal/netproxy"
)

// trap is an act of a wire that happens once.
type trap int32

const (
	noTrap    trap = iota
	cutAsk         // the next request is not forwarded, and its connection ends
	holdFirst      // the answer to the next request is held back
	holdFinal      // the answer that says that the work of the server is durable is held back
)

// wire is the way of the workers of one cell to the servers of the store, or to Kafka.
type wire struct {
	store   store // empty: the wire leads to Kafka
	through map[string]string
	trap    atomic.Int32
	sprung  chan struct{} // closed when the trap has had its work
	open    chan struct{} // closed when a held answer may go on
	drop    atomic.Bool   // the held answer is lost, with its connection

	mu    sync.Mutex
	conns map[io.Closer]bool

	ended chan struct{} // closed at the end of the cell: no answer is held longer
}

func newWire(t testing.TB, s store, addrs []string) *wire {
	w := &wire{
		store: s, through: make(map[string]string), sprung: make(chan struct{}), open: make(chan struct{}),
		conns: make(map[io.Closer]bool), ended: make(chan struct{}),
	}
	for _, addr := range addrs {
		w.through[addr] = netproxy.Start(t, addr, func() netproxy.Link {
			l := &link{w: w}
			return netproxy.Link{Up: l.up, Down: l.down}
		}).Addr()
	}
	t.Cleanup(func() { close(w.ended) }) // before the proxies wait for their connections
	return w
}

func (w *wire) set(what trap) { w.trap.Store(int32(what)) }

// springs reports whether the trap is this one. It is sprung then.
func (w *wire) springs(what trap) bool {
	if !w.trap.CompareAndSwap(int32(what), int32(noTrap)) {
		return false
	}
	close(w.sprung)
	return true
}

func (w *wire) is(what trap) bool { return trap(w.trap.Load()) == what }

// cutAll ends every connection.
func (w *wire) cutAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
}

func (w *wire) track(end any) func() {
	c, ok := end.(io.Closer)
	if !ok {
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.conns, c)
	}
}

// link is one connection.
type link struct {
	w     *wire
	inTx  bool        // MariaDB: a transaction is open
	acts  atomic.Bool // a request with an effect was forwarded since the trap was set
	asked atomic.Bool // any request
}

func (l *link) up(server io.Writer, client io.Reader) {
	defer l.w.track(client)()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		acts := l.actsBy(buf[:n])
		if (acts || l.w.store != "") && l.w.springs(cutAsk) {
			return
		}
		if l.w.is(holdFirst) || l.w.is(holdFinal) {
			l.asked.Store(true)
			if acts {
				l.acts.Store(true)
			}
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// actsBy reports whether the answer to this part of the stream may say that the work is durable.
func (l *link) actsBy(part []byte) bool {
	switch l.w.store {
	case onRedis, onCluster: // and no greeting of a new connection
		text := bytes.ToLower(part)
		return !bytes.Contains(text, []byte("hello")) && !bytes.Contains(text, []byte("setinfo")) &&
			!bytes.Contains(text, []byte("cluster"))
	case sqlMaria:
		return l.commitsBy(part)
	case "": // a request has its size and its number, which is zero for a publication
		return len(part) >= 6 && part[4] == 0 && part[5] == 0
	default:
		return true
	}
}

// commitsBy follows the transactions of a connection to MariaDB: a packet has a head of four bytes,
// a command and its text. A part has one packet or several.
func (l *link) commitsBy(part []byte) (commits bool) {
	for len(part) > 4 {
		n := int(part[0]) | int(part[1])<<8 | int(part[2])<<16
		end := min(len(part), 4+n)
		if n > 0 && l.commitsByCommand(part[4], bytes.ToUpper(part[5:max(5, min(end, 69))])) {
			commits = true
		}
		part = part[end:]
	}
	return commits
}

func (l *link) commitsByCommand(command byte, text []byte) bool {
	const query, execute = 0x03, 0x17
	is := func(word string) bool { return command == query && bytes.HasPrefix(text, []byte(word)) }
	switch {
	case is("START TRANSACTION") || is("BEGIN"):
		l.inTx = true
	case is("COMMIT") || is("ROLLBACK"):
		l.inTx = false
		return is("COMMIT")
	case command == execute || command == query && !is("SET"):
		return !l.inTx
	}
	return false
}

func (l *link) down(client io.Writer, server io.Reader) {
	defer l.w.track(server)()
	if l.w.store == pg || l.w.store == sqlPG {
		l.downPostgres(client, server)
		return
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		final := l.acts.Load() && !bytes.Contains(buf[:n], []byte("NOSCRIPT"))
		if (final && l.w.springs(holdFinal) || l.asked.Load() && l.w.springs(holdFirst)) && !l.held() {
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// held waits until the test opens the wire, and reports whether the answer may go on.
func (l *link) held() bool {
	select {
	case <-l.w.open:
		return !l.w.drop.Load()
	case <-l.w.ended: // the cell has failed
		return false
	}
}

// downPostgres carries the messages of Postgres. The answer of a command ends with its tag ('C')
// and with 'Z', which says whether a transaction is open.
func (l *link) downPostgres(client io.Writer, server io.Reader) {
	in := bufio.NewReader(server)
	var answer []byte
	tagged := false
	for {
		m, err := message(in)
		if err != nil {
			return
		}
		answer = append(answer, m...)
		tagged = tagged || m[0] == 'C'
		if m[0] == 'Z' {
			final := l.acts.Load() && tagged && m[5] == 'I'
			first := l.asked.Load() && tagged
			if (final && l.w.springs(holdFinal) || first && l.w.springs(holdFirst)) && !l.held() {
				return
			}
			tagged = false
		}
		if m[0] == 'Z' || in.Buffered() == 0 && (!tagged || !l.trapped()) {
			if _, err := client.Write(answer); err != nil {
				return
			}
			answer = answer[:0]
		}
	}
}

// trapped reports whether an answer must be seen as a whole before a part of it goes on.
func (l *link) trapped() bool { return l.w.is(holdFirst) || l.w.is(holdFinal) }

// message reads one message: type, length, body.
func message(r *bufio.Reader) ([]byte, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[1:])) - 4
	if n < 0 || n > 1<<24 {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	m := make([]byte, 5+n)
	copy(m, head)
	_, err := io.ReadFull(r, m[5:])
	return m, err
}
