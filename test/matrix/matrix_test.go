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
	"slices"
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

// sideBySide is how many combinations run at the same time. Each waits for its group most of the
// time, so the number does not depend on the processors.
const sideBySide = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", sideBySide); err != nil {
		panic(err)
	}
	m.Run()
}

// TestCombinations_Idempotent runs each combination: every event comes twice and has one effect,
// with the data that the producer wrote. The combinations that pass make the table.
func TestCombinations_Idempotent(t *testing.T) {
	encoders := payloads(t)
	passed := new(results)
	t.Run("all", func(t *testing.T) {
		for _, store := range stores {
			if store.open == nil {
				continue
			}
			opened := store.open(t)
			cluster, producer := newKafka(t, store)
			for _, at := range cells(store) {
				t.Run(at.topic(), func(t *testing.T) {
					t.Parallel()
					run(t, cluster.ListenAddrs(), producer, opened, byName(encoders, at.payload), at)
					passed.add(at)
				})
			}
		}
	})
	if !t.Failed() {
		checkTable(t, passed)
	}
}

// newKafka has a topic for each combination with a store.
func newKafka(t *testing.T, s store) (*kfake.Cluster, *kgo.Client) {
	var topics []string
	for _, at := range cells(s) {
		topics = append(topics, at.topic())
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...),
		kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(producer.Close)
	return cluster, producer
}

func byName(all []payload, name string) payload {
	return all[slices.IndexFunc(all, func(p payload) bool { return p.name == name })]
}

// run produces the events of one combination twice and consumes them.
func run(
	t *testing.T, brokers []string, producer *kgo.Client, s *opened, p payload, at cell,
) {
	effects := s.effectsOf(at.shape, at.topic())
	want := make(map[string]int)
	var records []*kgo.Record
	for range 2 {
		for i := range events {
			id, value, headers := p.encode(t, i)
			want[effect(id, int64(i))] = 1
			records = append(records,
				&kgo.Record{Topic: at.topic(), Key: fmt.Append(nil, i), Value: value, Headers: headers})
		}
	}
	require.NoError(t, producer.ProduceSync(t.Context(), records...).FirstErr())
	router := idem.NewRouter(p.options...)
	p.register(router, at.shape, effects)
	again := new(duplicates)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- at.run(ctx, setup{
			brokers: brokers, topic: at.topic(), store: s.store, router: router,
			observers: []observe.Observer{again}, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
	}()
	deadline := time.After(2 * time.Minute)
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

// row is a row of the first table.
type row struct {
	store string
	shape shape
}

// cell is one combination.
type cell struct {
	row
	client  string
	payload string
}

// run runs the client of a cell.
func (c cell) run(ctx context.Context, s setup) error {
	i := slices.IndexFunc(clients, func(o client) bool { return o.name == c.client })
	return clients[i].run(ctx, s)
}

func (c cell) topic() string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, c.client+"."+c.store+"."+string(c.shape)+"."+c.payload)
}

func rows(s store) (all []row) {
	for _, as := range s.shapes {
		all = append(all, row{s.name, as})
	}
	return all
}

// cells are the combinations with a store that are tested.
func cells(s store) (all []cell) {
	for _, r := range rows(s) {
		payloads := []string{plainJSON}
		if slices.Contains(s.full, r.shape) {
			payloads = tested()
		}
		for _, c := range clients {
			for _, p := range payloads {
				all = append(all, cell{r, c.name, p})
			}
		}
	}
	return all
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
	want := 0
	for _, s := range stores {
		if s.open != nil {
			want += len(cells(s))
		}
	}
	if len(passed.all) < want {
		if os.Getenv("IDEM_REQUIRE_SERVICES") != "" {
			require.FailNow(t, "not every combination ran")
		}
		t.Skip("not every combination ran: the table is not compared")
	}
	page, err := os.ReadFile(table)
	require.NoError(t, err)
	text, err := rewrite(string(page), passed.all)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(table, []byte(text), 0o644)) //nolint:gosec // a page of the docs
		return
	}
	require.Equal(t, string(page), text, "run `go -C test/matrix test . -update` with the services up")
}

// rewrite returns the page with the tables of the results.
func rewrite(page string, passed map[cell]bool) (string, error) {
	const begin, end = "<!-- combinations -->\n", "<!-- end of combinations -->"
	before, rest, found := strings.Cut(page, begin)
	_, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		return "", fmt.Errorf("%s lacks a line %q or %q", table, begin, end)
	}
	return before + begin + render(passed) + end + after, nil
}

// render is a pure function of the results. The full product of stores, handlers, clients and
// payloads is in both tables together. A cell of the first says "yes" if the combination passed
// with each payload to which the second says "yes". It names the payloads if some of these are
// missing.
func render(passed map[cell]bool) string {
	known := make(map[string]bool) // payloads that passed anywhere
	for c := range passed {
		known[c.payload] = true
	}
	var b strings.Builder
	b.WriteString("\n| store | handler |")
	for _, c := range clients {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("---|", len(clients)))
	for _, s := range stores {
		for _, r := range rows(s) {
			fmt.Fprintf(&b, "| %s | %s |", r.store, r.shape)
			for _, c := range clients {
				fmt.Fprintf(&b, " %s |", mark(passed, known, r, c.name))
			}
			b.WriteByte('\n')
		}
	}
	b.WriteString("\n| payload | tested |\n|---|---|\n")
	for _, p := range payloadNames {
		answer := "no"
		if known[p] {
			answer = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", p, answer)
	}
	b.WriteByte('\n')
	return b.String()
}

// mark is a cell of the first table.
func mark(passed map[cell]bool, known map[string]bool, r row, client string) string {
	var with, without []string
	for _, p := range payloadNames {
		switch {
		case passed[cell{r, client, p}]:
			with = append(with, p)
		case known[p]:
			without = append(without, p)
		}
	}
	switch {
	case len(with) == 0:
		return "no"
	case len(without) == 0:
		return "yes"
	case len(with) < len(without):
		return "only " + strings.Join(with, "; ")
	}
	return "not with " + strings.Join(without, "; ")
}

func TestRender(t *testing.T) {
	at := func(s, c int, payload string) cell {
		return cell{row{stores[s].name, on}, clients[c].name, payload}
	}
	lines := strings.Split(render(map[cell]bool{
		at(0, 0, plainJSON): true, at(0, 0, avroData): true, at(1, 0, plainJSON): true,
		at(0, 0, jsonSchema): true, at(2, 0, plainJSON): true, at(2, 0, jsonSchema): true,
	}), "\n")
	start := "| " + stores[0].name + " | " + string(on) + " | yes | no |"
	require.True(t, strings.HasPrefix(lines[3], start), lines[3])
	start = "| " + stores[0].name + " | " + string(onBatch) + " | no |"
	require.True(t, strings.HasPrefix(lines[4], start), lines[4])
	start = "| " + stores[1].name + " | " + string(on) + " | only " + plainJSON + " | no |"
	require.True(t, strings.HasPrefix(lines[5], start), lines[5])
	start = "| " + stores[2].name + " | " + string(on) + " | not with " + avroData + " | no |"
	require.True(t, strings.HasPrefix(lines[7], start), lines[7])
	require.Contains(t, lines, "| JSON | yes |")
	require.Contains(t, lines, "| Avro | yes |")
	require.Contains(t, lines, "| Protobuf | no |")
}

// A page that claims a combination without a test differs from the one that the results make.
func TestRewrite(t *testing.T) {
	passed := map[cell]bool{{row{stores[0].name, on}, clients[0].name, plainJSON}: true}
	page, err := rewrite("a\n<!-- combinations -->\nold<!-- end of combinations -->\nb", passed)
	require.NoError(t, err)
	again, err := rewrite(page, passed)
	require.NoError(t, err)
	require.Equal(t, page, again)
	claims := strings.Replace(page, "| yes | no |", "| yes | yes |", 1)
	require.NotEqual(t, page, claims)
	again, err = rewrite(claims, passed)
	require.NoError(t, err)
	require.Equal(t, page, again)
	_, err = rewrite("a page without the lines", passed)
	require.Error(t, err)
}

func TestTopicsDiffer(t *testing.T) {
	all := make(map[string]cell)
	for _, s := range stores {
		for _, c := range cells(s) {
			other, ok := all[c.topic()]
			require.False(t, ok, "%v and %v", c, other)
			all[c.topic()] = c
		}
	}
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
