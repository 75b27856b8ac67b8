package acls

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/ops"
	"github.com/idem-go/idem/ops/doctor"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

var errTest = errors.New("card declined")

// world has the parts that the roles share: the broker, a database with a store and an outbox, and
// the command.
type world struct {
	*broker
	url, program string
	pool         *pgxpool.Pool
	store        *pgstore.Store
	mended       atomic.Bool // events with an ID "bad..." succeed
}

func newWorld(t *testing.T, b *broker) *world {
	t.Helper()
	w := &world{broker: b, url: testenv.Postgres(t), program: filepath.Join(t.TempDir(), "idem")}
	cfg, err := pgxpool.ParseConfig(w.url)
	require.NoError(t, err)
	pgstore.Configure(cfg) // no warning of the store's own
	w.pool, err = pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(w.pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), w.pool))
	require.NoError(t, pgoutbox.Migrate(t.Context(), w.pool))
	w.store = pgstore.New(w.pool)
	out, err := exec.CommandContext(t.Context(), "go", "-C", "../../cmd/idem", "build", "-o", w.program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return w
}

// lines keeps the log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// worker is a consumer under way.
type worker struct {
	lines
	t       *testing.T
	handled sync.Map // IDs
	stop    context.CancelFunc
	ended   chan error
}

// work starts a consumer. Events with an ID that begins with "bad" fail until they are mended, and
// those with "late" fail the first time.
func (w *world) work(t *testing.T, user string, change func(*consumer.Config), options ...idem.Option) *worker {
	t.Helper()
	k := &worker{t: t, ended: make(chan error, 1)}
	cfg := w.config(user)
	cfg.Group, cfg.Topics, cfg.Store, cfg.Logger = group, []string{topic}, w.store, slog.New(slog.NewTextHandler(&k.lines, nil))
	cfg.CommitInterval, cfg.Grace = 100*time.Millisecond, time.Second
	cfg.Sarama = func(sc *sarama.Config) {
		sc.Consumer.Group.Session.Timeout, sc.Consumer.Group.Heartbeat.Interval = 6*time.Second, 300*time.Millisecond
	}
	if change != nil {
		change(&cfg)
	}
	router := idem.NewRouter()
	idem.On(router, "payment", func(_ context.Context, e idem.Event[struct{}]) error {
		switch {
		case strings.HasPrefix(e.ID, "bad") && !w.mended.Load():
			return idem.Permanent(errTest)
		case strings.HasPrefix(e.ID, "late") && e.Attempt == 1:
			return errTest
		}
		k.handled.Store(e.ID, true)
		return nil
	}, options...)
	c, err := consumer.New(cfg, router)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	k.stop = stop
	go func() { k.ended <- c.Run(ctx) }()
	t.Cleanup(stop)
	return k
}

// until waits for a condition.
func (k *worker) until(ok func() bool) {
	k.t.Helper()
	require.Eventually(k.t, ok, 30*time.Second, 20*time.Millisecond, "%s", &k.lines)
}

func (k *worker) has(id string) func() bool {
	return func() bool { _, ok := k.handled.Load(id); return ok }
}

// end stops it in order.
func (k *worker) end() {
	k.t.Helper()
	k.stop()
	require.NoError(k.t, <-k.ended, "%s", &k.lines)
}

// refused waits for Run to end by itself within seconds, with a command.
func (k *worker) refused(command string) {
	k.t.Helper()
	select {
	case err := <-k.ended:
		require.ErrorIs(k.t, err, consumer.ErrUnauthorized)
		require.ErrorContains(k.t, err, command)
	case <-time.After(15 * time.Second):
		require.Fail(k.t, "Run does not end", "%s", &k.lines)
	}
}

// committed waits until the group has committed all of a topic.
func (w *world) committed(t *testing.T, of string) {
	t.Helper()
	require.Eventually(t, func() bool {
		end, err := w.client.GetOffset(of, 0, sarama.OffsetNewest)
		require.NoError(t, err)
		offsets, err := w.admin.ListConsumerGroupOffsets(group, map[string][]int32{of: {0}})
		return err == nil && offsets.GetBlock(of, 0) != nil && offsets.GetBlock(of, 0).Offset == end
	}, 20*time.Second, 50*time.Millisecond)
}

func (w *world) consumer(t *testing.T) {
	w.produce(topic, "p-1")
	w.produce(topic, "bad-1")
	w.produce(topic, "bad-2")
	k := w.work(t, "consumer", nil)
	k.until(k.has("p-1"))
	k.until(func() bool { return strings.Count(k.String(), "event dead-lettered") == 2 })
	w.committed(t, topic)
	k.end()
	require.Equal(t, 1, strings.Count(k.String(), "level=WARN"), "%s", &k.lines)
	require.Contains(t, k.String(), "retry topics must not be read")
	require.Contains(t, k.String(), "--allow-principal User:consumer --operation Read --topic "+replays)

	for right, command := range map[string]string{
		"Read topic " + topic:        "--operation Read --topic " + topic,
		"Read group " + group:        "--operation Read --group " + group,
		"Write topic " + deadLetters: "--operation Write --topic " + deadLetters,
	} {
		w.without("consumer", right, func() { w.work(t, "consumer", nil).refused("--allow-principal User:consumer " + command) })
	}
	w.allow("consumer", "Describe topic "+replays, func() { // Describe alone is no help, and no harm
		w.produce(topic, "p-2")
		k := w.work(t, "consumer", nil)
		k.until(k.has("p-2"))
		w.committed(t, topic)
		k.end()
		require.Contains(t, k.String(), "retry topics must not be read")
		require.NotContains(t, k.String(), "committing offsets fails")
	})
}

func (w *world) retries(t *testing.T) {
	later := idem.RetryTopics(time.Second)
	once := idem.Retry(idem.RetryPolicy{MaxAttempts: 1})
	w.produce(topic, "late-1")
	k := w.work(t, "consumer", nil, later, once)
	k.until(k.has("late-1"))
	w.committed(t, topic)
	w.committed(t, delayed)
	k.end()
	require.NotContains(t, k.String(), "grant", "no right is missing")

	both := "--allow-principal User:consumer --operation Read --operation Write --topic " + delayed
	w.without("consumer", "Read topic "+replays, func() {
		w.work(t, "consumer", nil, later, once).refused(both)
		w.produce(topic, "p-3")
		k := w.work(t, "consumer", nil) // no handler needs it
		k.until(k.has("p-3"))
		k.end()
		require.Contains(t, k.String(), "retry topics must not be read")
	})
	w.without("consumer", "Write topic "+replays, func() { w.work(t, "consumer", nil, later, once).refused(both) })
	w.without("consumer", "DescribeConfigs topic "+replays, func() {
		k := w.work(t, "consumer", nil, later, once)
		k.until(func() bool { return strings.Contains(k.String(), "partitions assigned") })
		k.end()
		require.Contains(t, k.String(), "--allow-principal User:consumer --operation DescribeConfigs --topic "+delayed)
	})
}

func (w *world) creator(t *testing.T) {
	later := idem.RetryTopics(time.Second)
	create := func(c *consumer.Config) { c.CreateDeadLetterTopics = &consumer.TopicSpec{} }
	start := func(options ...idem.Option) *worker { return w.work(t, "creator", create, options...) }
	starts := func() string {
		k := start(later)
		k.until(func() bool { return strings.Contains(k.String(), "partitions assigned") })
		k.end()
		return k.String()
	}
	own, prefix := []string{deadLetters, replays, delayed}, "topic "+topic+"."+group+"."
	command := "--allow-principal User:creator --operation "
	w.deleteTopics(own...)
	w.without("creator", "Create "+prefix, func() {
		start().refused("--create --topic " + deadLetters)
		start(later).refused(command + "Create --topic " + delayed)
	})
	w.without("creator", "AlterConfigs "+prefix, func() {
		require.Contains(t, starts(), command+"DescribeConfigs --topic "+delayed)
		w.deleteTopics(own...)
		w.allow("creator", "DescribeConfigs topic "+delayed, func() { require.Contains(t, starts(), command+"AlterConfigs --topic "+delayed) })
	})
	w.deleteTopics(own...)
	said := starts()
	require.NotContains(t, said, "level=WARN")
	for _, name := range own {
		require.Contains(t, said, "topic="+name)
	}
	w.without("creator", "Read "+prefix, func() { start(later).refused(command + "Read --operation Write --topic " + delayed) })
	w.without("creator", "Write "+prefix, func() { start().refused(command + "Write --topic " + deadLetters) })
	w.without("creator", "Read topic "+topic, func() { start(later).refused(command + "Read --topic " + topic) })
	w.without("creator", "Read group "+group, func() { start(later).refused(command + "Read --group " + group) })
}

func (w *world) relay(t *testing.T) {
	w.without("relay", "Write topic shipments", func() {
		_, err := consumer.OpenProducer(w.config("relay"))
		require.ErrorIs(t, err, consumer.ErrUnauthorized)
		require.ErrorContains(t, err, "--allow-principal User:relay --operation Write --topic")
	})
	producer, err := consumer.OpenProducer(w.config("relay"))
	require.NoError(t, err)
	defer producer.Close()
	box, said := pgoutbox.New(w.pool), &lines{}
	r, err := outbox.NewRelay(outbox.RelayConfig{Store: box, Producer: producer, Interval: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(said, nil))})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	add := func(id string) {
		t.Helper()
		tx, err := w.pool.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, box.Add(t.Context(), tx, outbox.Entry{Topic: "shipments", Key: id, ID: id, Type: "shipped", Payload: []byte("{}")}))
		require.NoError(t, tx.Commit(t.Context()))
	}
	sent := func() bool {
		b, err := box.Backlog(t.Context(), 10)
		return err == nil && b.Waiting == 0
	}
	add("s-1")
	require.Eventually(t, sent, 30*time.Second, 20*time.Millisecond, "%s", said)
	w.without("relay", "Write topic shipments", func() {
		add("s-2")
		require.Eventually(t, func() bool {
			return strings.Contains(said.String(), "event of the outbox was not taken, trying again") && strings.Contains(said.String(), "authorized")
		}, 30*time.Second, 20*time.Millisecond, "%s", said)
	})
	require.Eventually(t, sent, 30*time.Second, 20*time.Millisecond, "%s", said)
	stop()
	require.NoError(t, <-ended)
}

// command runs the command as a user.
func (w *world) command(t *testing.T, user string, args ...string) (code int, said string) {
	t.Helper()
	args = append(slices.Clone(args), "--brokers", w.address, "-G", group, "--sasl-mechanism", "PLAIN", "--sasl-user", user, "--allow-insecure")
	if slices.ContainsFunc(args, func(word string) bool { return word == "replay" || word == "purge" || word == "rewind" }) {
		args = append(args, "--yes")
	}
	cmd := exec.CommandContext(t.Context(), w.program, args...)
	cmd.Env = append(os.Environ(), "IDEM_SASL_PASSWORD="+password, "IDEM_STORE="+w.url)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), string(out)
	}
	require.NoError(t, err)
	return 0, string(out)
}

// worked wants a verb to have succeeded, with a text in the output.
func (w *world) worked(t *testing.T, user string, want string, args ...string) {
	t.Helper()
	code, said := w.command(t, user, args...)
	require.Zero(t, code, "%v: %s", args, said)
	require.Contains(t, said, want, "%v", args)
	require.NotContains(t, said, "authorized", "%v", args)
}

// failed wants it to have been refused.
func (w *world) failed(t *testing.T, user string, args ...string) {
	t.Helper()
	code, said := w.command(t, user, args...)
	require.Equal(t, 3, code, "%v: %s", args, said)
	require.Contains(t, said, "authorized", "%v", args)
	t.Logf("%v: %s", args, said)
}

func (w *world) reader(t *testing.T) {
	list, get := []string{"dlq", "ls", "-t", topic}, []string{"event", "get", "bad-1", "--type", "payment", "--dead-letters"}
	w.worked(t, "reader", "bad-1", list...)
	w.worked(t, "reader", "bad-1", "dlq", "show", "0/0", "-t", topic)
	w.worked(t, "reader", "dead", "dlq", "plan", "-t", topic)
	w.worked(t, "reader", "dead", get...)
	w.worked(t, "reader", topic, "lag")
	dryRun := []string{"import", "--from-topic", topic, "--to-committed", "--dry-run", "--type-header", "event-type", "--id-header", "event-id"}
	w.worked(t, "reader", "", dryRun...)
	examine := []string{"doctor", "--topics", topic, "--retry-delays", "1s"}
	_, said := w.command(t, "reader", examine...)
	require.NotContains(t, said, "authorized", "no check is blind")

	w.without("reader", "Read topic "+deadLetters, func() {
		w.failed(t, "reader", list...)
		w.worked(t, "reader", "no dead-letter topic of the group that this user may describe", get...)
	})
	w.without("reader", "Describe group "+group, func() { w.failed(t, "reader", "lag") })
	for right, resource := range map[string]string{
		"DescribeConfigs topic " + topic: "--topic " + topic, "DescribeConfigs topic " + deadLetters: "--topic " + deadLetters,
		"DescribeConfigs topic " + replays: "--topic " + replays, "DescribeConfigs cluster kafka-cluster": "--cluster",
	} {
		w.without("reader", right, func() {
			_, said := w.command(t, "reader", examine...)
			require.Contains(t, said, "authorized", right)
			require.Contains(t, said, "--operation DescribeConfigs "+resource)
		})
	}
	_, said = w.command(t, "reader", "lag")
	require.Contains(t, said, replays)
	w.without("reader", "Describe topic "+replays, func() {
		_, said := w.command(t, "reader", "lag")
		require.NotContains(t, said, replays)
	})
	w.produce(topic, "p-4")
	w.without("reader", "Read topic "+topic, func() {
		w.failed(t, "reader", dryRun...)
		code, said := w.command(t, "reader", "lag")
		require.Equal(t, 1, code, said)
		require.Contains(t, said, "neither members nor committed offsets on topics that this user may describe")
		w.allow("reader", "Describe topic "+topic, func() { // Describe alone: all but the ages
			code, said := w.command(t, "reader", "lag")
			require.Zero(t, code, said)
			require.Contains(t, said, "grant Read on topic "+topic)
		})
	})
}

func (w *world) replayer(t *testing.T) {
	w.mended.Store(true)
	at := func(id string) []string { return []string{"dlq", "replay", "-t", topic, "--id", id} }
	w.without("replayer", "Write topic "+replays, func() { w.failed(t, "replayer", at("bad-1")...) })
	w.without("replayer", "Read topic "+deadLetters, func() { w.failed(t, "replayer", at("bad-1")...) })
	w.worked(t, "replayer", "replayed", at("bad-1")...)
	k := w.work(t, "consumer", nil)
	k.until(k.has("bad-1"))
	w.committed(t, replays)
	k.end()
	w.without("replayer", "Delete topic "+deadLetters, func() { w.failed(t, "replayer", "dlq", "purge", "-t", topic) })
	w.worked(t, "replayer", "", "dlq", "purge", "-t", topic)
	begin, err := w.client.GetOffset(deadLetters, 0, sarama.OffsetOldest)
	require.NoError(t, err)
	require.EqualValues(t, 1, begin, "the first dead letter is settled and deleted, the second one is not")
	for _, right := range []string{"Read group " + group, "Read topic " + replays} {
		w.without("replayer", right, func() { w.failed(t, "replayer", "rewind", "--to", "1h") })
	}
	w.without("replayer", "Read topic "+topic, func() {
		_, said := w.command(t, "replayer", "rewind", "--to", "1h")
		require.Contains(t, said, "topic "+topic+" is not rewound: the group has no committed offsets there, or this user may not describe the topic")
	})
	w.worked(t, "replayer", topic+" ", "rewind", "--to", "1h")
}

func get(t *testing.T, server *httptest.Server, path string) (body, at string) {
	t.Helper()
	res, err := server.Client().Get(server.URL + path)
	require.NoError(t, err)
	return read(t, res)
}

func post(t *testing.T, server *httptest.Server, path string, form url.Values) (body, at string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := server.Client().Do(req)
	require.NoError(t, err)
	return read(t, res)
}

// read returns an answer and the address it came from, after redirects.
func read(t *testing.T, res *http.Response) (body, at string) {
	t.Helper()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text), res.Request.URL.String()
}

func (w *world) page(t *testing.T) {
	cfg := w.config("ops")
	cfg.Group, cfg.Topics, cfg.Store = group, []string{topic}, w.store
	handler, err := ops.NewHandler(ops.Config{
		Loopback: true, AllowReplay: true, Timeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler), Consumer: cfg,
	})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	defer server.Close()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		require.NoError(t, handler.Close(ctx))
	}()
	soon := func(path string, ok func(body string) bool) { // the page may show older data for some seconds
		t.Helper()
		require.Eventually(t, func() bool {
			body, _ := get(t, server, path)
			return ok(body)
		}, 15*time.Second, 200*time.Millisecond, path)
	}
	shows := func(path, text string) {
		t.Helper()
		soon(path, func(body string) bool { return strings.Contains(body, text) })
	}
	lacks := func(path, text string) {
		t.Helper()
		soon(path, func(body string) bool { return !strings.Contains(body, text) })
	}
	section := func(of string) string { return `aria-label="Topic ` + of + `"` }
	shows("/dead-letters", "1 dead letter")
	shows("/dead-letters", "bad-2")
	shows("/event?id=bad-2&type=payment", "No. It was given up")
	shows("/event?id=bad-2&type=payment", "Dead letter: permanent")
	shows("/partitions", section(topic))
	shows("/partitions", section(delayed))
	w.without("ops", "Read topic "+deadLetters, func() { shows("/dead-letters", "authorized") })
	w.without("ops", "Describe group "+group, func() { shows("/partitions", "authorized") })
	w.without("ops", "Describe topic "+topic, func() { lacks("/partitions", section(topic)) })
	w.without("ops", "Describe topic "+replays, func() { lacks("/partitions", section(delayed)) })
	w.examine(t, cfg)

	plan := func() string {
		t.Helper()
		_, at := post(t, server, "/plan", url.Values{"topic": {deadLetters}, "at": {"0/1"}})
		return regexp.MustCompile(`id=([^&]+)`).FindStringSubmatch(at)[1]
	}
	w.without("ops", "Write topic "+replays, func() {
		body, _ := post(t, server, "/replay", url.Values{"id": {plan()}})
		require.NotContains(t, body, "1 of 1 replayed")
	})
	body, _ := post(t, server, "/replay", url.Values{"id": {plan()}})
	require.Contains(t, body, "1 of 1 replayed")
	k := w.work(t, "consumer", nil)
	k.until(k.has("bad-2"))
	k.end()
}

// examine asks the page's doctor. The page would keep the findings for a minute.
func (w *world) examine(t *testing.T, cfg consumer.Config) {
	find := doctor.New(doctor.Config{Consumer: cfg, RetryDelays: []time.Duration{time.Second}})
	blind := func() (all string) {
		t.Helper()
		found, err := find(t.Context())
		require.NoError(t, err)
		for _, f := range found {
			if strings.Contains(f.Detail, "authorized") {
				all += f.Remedy + "\n"
			}
		}
		return all
	}
	require.Empty(t, blind(), "no check is blind")
	for _, of := range []string{topic, deadLetters, replays} {
		w.without("ops", "DescribeConfigs topic "+of, func() { require.Contains(t, blind(), "--operation DescribeConfigs --topic "+of) })
	}
	w.without("ops", "DescribeConfigs cluster kafka-cluster", func() { require.Contains(t, blind(), "--operation DescribeConfigs --cluster") })
}
