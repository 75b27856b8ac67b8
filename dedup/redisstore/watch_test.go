package redisstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rule 50: a server that was started again is another one, and Watch reports that once.
func TestWatch_Rule50(t *testing.T) {
	b := onServer(t, testenv.RedisServer(t, "--enable-debug-command", "yes", "--appendonly", "yes"))
	_, err := b.Check(t.Context())
	require.NoError(t, err)
	before := b.uptime()
	warns := func() []string {
		t.Helper()
		warnings, err := b.Watch(t.Context())
		require.NoError(t, err)
		return warnings
	}
	require.Empty(t, warns())
	b.crash()
	told := warns()
	require.Len(t, told, 1)
	require.Contains(t, told[0], "another server answers than before")
	require.Contains(t, told[0], "run_id "+b.uptime()+", before "+before)
	require.Empty(t, warns(), "each change is told once")

	set := func(policy string) {
		t.Helper()
		require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
	}
	for range 2 { // as Check would refuse it
		set("allkeys-lru")
		told = warns()
		require.Len(t, told, 1)
		require.Contains(t, told[0], "CONFIG SET maxmemory-policy noeviction")
		require.Empty(t, warns())
		set("noeviction")
		require.Empty(t, warns())
	}
	require.NoError(t, b.rdb.ConfigSet(t.Context(), "appendonly", "no").Err())
	told = warns()
	require.Len(t, told, 1)
	require.Contains(t, told[0], "appendonly is no")
}

// Without a call of Check, the first call of Watch cannot compare servers. An outage is no change.
func TestWatchWithoutCheck_Rule50(t *testing.T) {
	info := "run_id:a\r\nredis_version:7.2.4\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"
	down := false
	s := New(newFake(t, func(cmd []string) string {
		if down {
			return "-LOADING Redis is loading\r\n"
		}
		return atItsTime(func([]string) string { return bulk(info) })(cmd)
	}))
	watch := func() []string {
		t.Helper()
		warnings, err := s.Watch(t.Context())
		require.NoError(t, err)
		return warnings
	}
	require.Empty(t, watch())
	down = true
	_, err := s.Watch(t.Context())
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	down = false
	require.Empty(t, watch(), "the server of before")
	info = "run_id:b\r\n" + info[len("run_id:a\r\n"):]
	require.Len(t, watch(), 1)
}

func TestSince_Rule50(t *testing.T) {
	for name, c := range map[string]struct {
		last, now []string
		told      bool
	}{
		"the same":          {[]string{"a", "b"}, []string{"a", "b"}, false},
		"a cluster grows":   {[]string{"a", "b"}, []string{"a", "b", "c"}, false},
		"a cluster shrinks": {[]string{"a", "b"}, []string{"b"}, false},
		"a replica leads":   {[]string{"a", "b"}, []string{"b", "c"}, true},
		"all are restarted": {[]string{"a", "b"}, []string{"c", "d"}, true},
		"INFO is forbidden": {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			told := servers{lives: c.now}.since(servers{lives: c.last})
			require.Equal(t, c.told, len(told) == 1, told)
		})
	}
}

// deadLetters keeps the classes of the dead letters of a processor.
type deadLetters struct {
	mu      sync.Mutex
	classes []string
}

func (d *deadLetters) Produce(_ context.Context, all ...*idem.Message) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range all {
		for _, h := range m.Headers {
			if h.Key == "idem-error-class" {
				d.classes = append(d.classes, string(h.Value))
			}
		}
	}
	return nil
}

// Rule 50: a snapshot is taken while handlers run, and is restored after they have ended. Their
// claims come back. Copies of these events wait for the lease, and are uncertain then. A handler
// that must not repeat an effect is not run. Another handler runs with the same idempotency key and
// a higher fence. An event that was done before the snapshot stays done.
func TestRestoredSnapshot_Rule50(t *testing.T) {
	b := onServer(t, testenv.RedisServer(t, "--enable-debug-command", "yes"))
	type run struct {
		key   string
		fence uint64
	}
	var mu sync.Mutex
	runs := map[string][]run{}
	begun, goOn := make(chan string, 3), make(chan struct{})
	note := func(_ context.Context, e idem.Event[struct{}]) error {
		mu.Lock()
		runs[e.ID] = append(runs[e.ID], run{e.IdempotencyKey(), e.Fence()})
		mu.Unlock()
		if e.ID != "done" {
			begun <- e.ID
			<-goOn
		}
		return nil
	}
	letters := &deadLetters{}
	router := idem.NewRouter()
	idem.On(router, "careful", note, idem.WhenUncertain(idem.DeadLetterUncertain))
	idem.On(router, "repeats", note)
	p, err := idem.NewProcessor(router, idem.Config{
		Store: b.Store, Scope: "restored", Lease: 3 * time.Second, BusyWait: 30 * time.Second, Producer: letters,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	handle := func(id, name string) {
		m := &idem.Message{Topic: "orders", Value: []byte(`{"event_id":"` + id + `","type":"` + name + `"}`)}
		assert.NoError(t, p.Handle(t.Context(), m), id)
	}
	_, err = b.Check(t.Context())
	require.NoError(t, err)

	handle("done", "careful")
	var running sync.WaitGroup
	running.Go(func() { handle("once", "careful") })
	running.Go(func() { handle("twice", "repeats") })
	<-begun
	<-begun
	require.NoError(t, b.rdb.Save(t.Context()).Err())
	close(goOn)
	running.Wait()
	require.Len(t, runs, 3)
	require.Empty(t, letters.classes)

	b.crash() // it starts with the snapshot
	told, err := b.Watch(t.Context())
	require.NoError(t, err)
	require.Len(t, told, 1)
	handle("done", "careful")
	handle("once", "careful")
	handle("twice", "repeats")
	require.Len(t, runs["done"], 1)
	require.Len(t, runs["once"], 1, "the effect may have happened, and it has")
	require.Equal(t, []string{"uncertain"}, letters.classes, "a person decides")
	require.Len(t, runs["twice"], 2)
	require.Equal(t, runs["twice"][0].key, runs["twice"][1].key)
	require.Greater(t, runs["twice"][1].fence, runs["twice"][0].fence)
}
