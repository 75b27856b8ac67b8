package cells

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafka is the broker of one cell, in the test process.
type kafka struct {
	t    testing.TB
	addr string
	fake *kfake.Cluster

	door *door // nil: the broker is never restarted
	opts []kfake.Opt
	dir  string // of its data
}

// away is how long a broker that is restarted is away.
const away = time.Second

// startKafka starts a broker. One that will be restarted keeps its data in files.
func startKafka(t testing.TB, restarts bool, opts ...kfake.Opt) *kafka {
	t.Helper()
	k := &kafka{t: t, opts: append(opts, kfake.NumBrokers(1))}
	if restarts {
		k.dir, k.door = t.TempDir(), newDoor(t)
		k.opts = append(k.opts, kfake.DataDir(k.dir), kfake.ListenFn(k.door.listen))
	}
	k.start()
	k.addr = k.fake.ListenAddrs()[0]
	t.Cleanup(func() { k.fake.Close() })
	return k
}

func (k *kafka) start() {
	k.t.Helper()
	var err error
	k.fake, err = kfake.NewCluster(k.opts...)
	require.NoError(k.t, err)
}

// restart cuts every connection, ends the broker, and starts it again on its data after some time.
// As in Kafka, records, committed offsets, members of groups and numbers of producers are kept.
// Sessions of fetches are lost, which kfake would keep.
func (k *kafka) restart() {
	k.t.Helper()
	k.door.shut()
	k.fake.Close()
	path := filepath.Join(k.dir, "session_state.json")
	text, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) { // there were no members and no sessions
		require.NoError(k.t, err)
		var state map[string]json.RawMessage
		require.NoError(k.t, json.Unmarshal(text, &state))
		delete(state, "fetchSessions")
		text, err = json.Marshal(state)
		require.NoError(k.t, err)
		require.NoError(k.t, os.WriteFile(path, text, 0o600))
	}
	time.Sleep(away)
	k.start()
	k.door.unlock()
}

// door has the port of a broker for as long as the cell runs. No other process can get the port
// while the broker is away. A connection ends at once then.
type door struct {
	l     net.Listener
	conns chan net.Conn
	ended chan struct{} // closed at the end of the cell

	mu     sync.Mutex
	locked bool
	inside []net.Conn
}

func newDoor(t testing.TB) *door {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &door{l: l, conns: make(chan net.Conn), ended: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.serve()
	}()
	t.Cleanup(func() {
		close(d.ended)
		_ = l.Close()
		<-done
		d.shut()
	})
	return d
}

func (d *door) serve() {
	for {
		c, err := d.l.Accept()
		if err != nil {
			return // the cell ends
		}
		if !d.enter(c) {
			continue
		}
		select {
		case d.conns <- c:
		case <-d.ended:
			return
		}
	}
}

func (d *door) enter(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locked {
		_ = c.Close()
		return false
	}
	d.inside = append(d.inside, c)
	return true
}

// shut ends every connection, and lets no new one in.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.locked = true
	for _, c := range d.inside {
		_ = c.Close()
	}
	d.inside = nil
}

func (d *door) unlock() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.locked = false
}

// listen returns the listener of one run of the broker.
func (d *door) listen(_, _ string) (net.Listener, error) {
	return &entrance{door: d, closed: make(chan struct{})}, nil
}

type entrance struct {
	door   *door
	once   sync.Once
	closed chan struct{}
}

func (e *entrance) Accept() (net.Conn, error) {
	select {
	case c := <-e.door.conns:
		return c, nil
	case <-e.closed:
		return nil, net.ErrClosed
	}
}

func (e *entrance) Close() error {
	e.once.Do(func() { close(e.closed) })
	return nil
}

func (e *entrance) Addr() net.Addr { return e.door.l.Addr() }

// A restarted broker has its records, its offsets and the members of its groups.
func TestKafkaRestarts(t *testing.T) {
	g := newGroup(t, "restarted", 1, true)
	g.produce()
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(g.broker), kgo.ClientID("first"), kgo.ConsumerGroup(g.name),
		kgo.ConsumeTopics(g.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	require.NoError(t, err)
	defer consumer.Close()
	require.Len(t, poll(t, consumer), 1)
	require.NoError(t, consumer.CommitUncommittedOffsets(t.Context()))
	g.waitMembers(1)
	before, _ := g.members(t.Context())

	g.kafka.restart()
	after, stable := g.members(t.Context())
	require.True(t, stable)
	require.Equal(t, before, after)
	require.True(t, g.settled())
	require.Equal(t, int64(1), recordsIn(t, g.client, g.name, 1))
	g.produce()
	require.Len(t, poll(t, consumer), 1, "the member goes on")
}

// poll returns the next records of a consumer. A restart may end a fetch with an error before.
func poll(t *testing.T, consumer *kgo.Client) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		fetches := consumer.PollFetches(ctx)
		if records := fetches.Records(); len(records) > 0 || ctx.Err() != nil {
			return records
		}
		t.Log("a poll without records:", fetches.Errors())
	}
}
