package matrix

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
)

var update = flag.Bool("update", false, "write the table of docs/combinations.md")

const (
	events     = 12 // of each combination; every event is delivered twice
	partitions = 3
	table      = "../../docs/combinations.md"
)

// TestCombinations_Idempotent runs each combination: every event comes twice and has one effect,
// with the data that the producer wrote. The combinations that pass make the table.
func TestCombinations_Idempotent(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics()...),
		kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(producer.Close)
	encoders := payloads(t)
	passed := new(results)
	t.Run("all", func(t *testing.T) {
		for _, store := range stores {
			opened := store.open(t)
			for _, client := range clients {
				for _, p := range encoders {
					at := cell{client.name, store.name, p.name}
					t.Run(at.topic(), func(t *testing.T) {
						t.Parallel()
						run(t, cluster.ListenAddrs(), producer, client, opened, p, at)
						passed.add(at)
					})
				}
			}
		}
	})
	if !t.Failed() {
		checkTable(t, passed)
	}
}

// run produces the events of one combination twice and consumes them.
func run(
	t *testing.T, brokers []string, producer *kgo.Client, c client, s *opened, p payload, at cell,
) {
	effects := s.newEffects(t, at.topic())
	want := make(map[string]int)
	for range 2 {
		for i := range events {
			id, value, headers := p.encode(t, i)
			want[effect(id, int64(i))] = 1
			r := &kgo.Record{Topic: at.topic(), Key: fmt.Append(nil, i), Value: value, Headers: headers}
			require.NoError(t, producer.ProduceSync(t.Context(), r).FirstErr())
		}
	}
	router := idem.NewRouter(p.options...)
	p.register(router, effects)
	again := new(duplicates)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- c.run(ctx, setup{
			brokers: brokers, topic: at.topic(), store: s.store, router: router,
			observers: []observe.Observer{again}, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
	}()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for again.count() < events {
		select {
		case err := <-ended:
			require.FailNow(t, "the consumer ended", "%v", err)
		case <-deadline:
			require.FailNow(t, "too slow", "%d duplicates, effects %v", again.count(), effects.all(t))
		case <-tick.C:
		}
	}
	stop()
	require.NoError(t, <-ended)
	require.Equal(t, want, effects.all(t))
	require.Equal(t, events, again.count())
}

// effect names an effect: the event, and a part of its data.
func effect(id string, amount int64) string { return fmt.Sprintf("%s has %d", id, amount) }

// duplicates counts deliveries that a store knew.
type duplicates struct {
	mu sync.Mutex
	n  int
}

func (d *duplicates) ObserveDuplicate(context.Context, observe.DuplicateEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
}

func (d *duplicates) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// cell is one combination.
type cell struct{ client, store, payload string }

func (c cell) topic() string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, c.client+"."+c.store+"."+c.payload)
}

func topics() (names []string) {
	for _, s := range stores {
		for _, c := range clients {
			for _, p := range payloadNames {
				names = append(names, cell{c.name, s.name, p}.topic())
			}
		}
	}
	return names
}

// results has the combinations that passed.
type results struct {
	mu  sync.Mutex
	all map[cell]bool
}

func (r *results) add(c cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[cell]bool)
	}
	r.all[c] = true
}

// checkTable compares the table in the docs with the combinations that passed, or writes it.
func checkTable(t *testing.T, passed *results) {
	if len(passed.all) < len(clients)*len(stores)*len(payloadNames) {
		if os.Getenv("IDEM_REQUIRE_SERVICES") != "" {
			require.FailNow(t, "not every combination ran")
		}
		t.Skip("not every combination ran: the table is not compared")
	}
	page, err := os.ReadFile(table)
	require.NoError(t, err)
	const begin, end = "<!-- combinations -->\n", "<!-- end of combinations -->"
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found, "%s has no line %q", table, begin)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found, "%s has no line %q", table, end)
	text := before + begin + render(passed.all) + end + after
	if *update {
		require.NoError(t, os.WriteFile(table, []byte(text), 0o644)) //nolint:gosec // a page of the docs
		return
	}
	require.Equal(t, string(page), text, "run `go -C test/matrix test . -update` with the services up")
}

// render is a pure function of the results.
func render(passed map[cell]bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n| store | client | %s |\n|---|---|%s\n", strings.Join(payloadNames, " | "),
		strings.Repeat("---|", len(payloadNames)))
	for _, s := range stores {
		for _, c := range clients {
			fmt.Fprintf(&b, "| %s | %s |", s.name, c.name)
			for _, p := range payloadNames {
				mark := "no"
				if passed[cell{c.name, s.name, p}] {
					mark = "yes"
				}
				fmt.Fprintf(&b, " %s |", mark)
			}
			b.WriteByte('\n')
		}
	}
	b.WriteByte('\n')
	return b.String()
}

func TestRender(t *testing.T) {
	all := make(map[cell]bool)
	for _, s := range stores {
		for _, p := range payloadNames {
			all[cell{clients[0].name, s.name, p}] = true
		}
	}
	missing := cell{clients[0].name, stores[0].name, payloadNames[0]}
	delete(all, missing)
	lines := strings.Split(strings.TrimSpace(render(all)), "\n")
	require.Len(t, lines, 2+len(stores)*len(clients))
	require.True(t, strings.HasPrefix(lines[2], "| "+missing.store+" | "+missing.client+" | no | yes |"), lines[2])
	require.Len(t, slicesUnique(topics()), len(stores)*len(clients)*len(payloadNames), "topics differ")
}

func slicesUnique(names []string) map[string]bool {
	all := make(map[string]bool)
	for _, n := range names {
		all[n] = true
	}
	return all
}

// memory has the effects of handlers without a transaction.
type memory struct {
	mu  sync.Mutex
	got map[string]int
}

func (m *memory) add(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.got == nil {
		m.got = make(map[string]int)
	}
	m.got[name]++
}

func (m *memory) all(*testing.T) map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.got)
}

var errStopped = errors.New("stopped")
