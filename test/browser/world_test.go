package browser

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// world is a program with its page, and all that it talks to.
type world struct {
	t                         testing.TB
	url                       string // of the page, with a slash at its end
	signIn                    string
	topic, group, deadLetters string
	postgres                  string
	provider                  *provider
	producer                  sarama.SyncProducer
	client                    sarama.Client
}

func newWorld(t testing.TB) *world {
	t.Helper()
	topic := testenv.CreateTopic(t, testenv.Kafka(t), 2)
	return worldOf(t, topic, topic+"-shop")
}

func worldOf(t testing.TB, topic, group string) *world {
	t.Helper()
	brokers := testenv.Kafka(t)
	w := &world{t: t, signIn: rand.Text(), postgres: testenv.Postgres(t), topic: topic, group: group, provider: newProvider(t)}
	w.deadLetters = deadletter.Topic(w.group)(w.topic)
	cfg := testenv.KafkaConfig()
	cfg.Version = sarama.V2_8_0_0
	var err error
	w.client, err = sarama.NewClient(brokers, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.client.Close() })
	w.producer, err = sarama.NewSyncProducerFromClient(w.client)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.producer.Close() })
	w.start(strings.Join(brokers, ","))
	return w
}

// start builds the program and runs it until the end of the test.
func (w *world) start(brokers string) {
	w.t.Helper()
	w.url = run(w.t, exec.Command(built(w.t, ".", "./page"), "-brokers", brokers, "-postgres", w.postgres, "-topic", w.topic, "-group", w.group,
		"-provider", w.provider.URL, "-sign-in", w.signIn, "-title", "staging"), w.provider.releaseAll)
}

// built builds a program of the module in a folder, and returns its path.
func built(t testing.TB, folder, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, pkg)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// run runs a program until the end of the test, and returns the first line that it prints. The
// program ends when its standard input does. Before that, the test calls release.
func run(t testing.TB, cmd *exec.Cmd, release func()) (line string) {
	t.Helper()
	stdin, err := cmd.StdinPipe() // it ends with us, however we end
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	lines := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		all := bufio.NewReader(stdout)
		line, _ := all.ReadString('\n')
		lines <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, all)
	}()
	t.Cleanup(func() {
		release()
		_ = stdin.Close()
		limit := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		<-read
		err := cmd.Wait()
		limit.Stop()
		assert.NoError(t, err, "the end of the program")
		if t.Failed() {
			t.Logf("the program said:\n%s", clip(stderr.String(), 20_000))
		}
	})
	select {
	case line = <-lines:
	case <-time.After(patience):
	}
	require.NotEmpty(t, line, "the program says where its page is")
	return line
}

// record is one to be produced.
type record struct {
	id, typ, key, value string
	headers             [][2]string
}

// produce writes records to a topic, and returns when they are there.
func (w *world) produce(topic string, records ...record) {
	w.t.Helper()
	var all []*sarama.ProducerMessage
	for _, r := range records {
		m := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(r.value)}
		if r.key != "" {
			m.Key = sarama.StringEncoder(r.key)
		}
		own := [][2]string{{"event-id", r.id}, {"event-type", r.typ}}
		for _, h := range append(own, r.headers...) {
			if h[1] != "" {
				m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h[0]), Value: []byte(h[1])})
			}
		}
		all = append(all, m)
	}
	require.NoError(w.t, w.producer.SendMessages(all))
}

// send produces events of a type with a plain payload.
func (w *world) send(typ string, ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		w.produce(w.topic, record{id: id, typ: typ, key: "customer-" + id, value: fmt.Sprintf(`{"order":%q,"amount":4200,"currency":"EUR"}`, id)})
	}
}

// handled waits until events had their effect.
func (w *world) handled(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		require.Eventually(w.t, func() bool { return w.provider.effects(id) > 0 }, patience, 20*time.Millisecond, "%s has its effect", id)
	}
}

// deadLetterCount waits until there are as many dead letters.
func (w *world) deadLetterCount(n int64) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.size(w.deadLetters) >= n }, patience, 20*time.Millisecond, "%d dead letters", n)
}

// retries is the topic that copies of replayed dead letters go to.
func (w *world) retries() string { return deadletter.RetryTopic(w.topic, w.group, 0) }

// size is how many records were written to a topic.
func (w *world) size(topic string) (n int64) {
	if w.client.RefreshMetadata(topic) != nil {
		return 0
	}
	partitions, err := w.client.Partitions(topic)
	if err != nil {
		return 0
	}
	for _, p := range partitions {
		if end, err := w.client.GetOffset(topic, p, sarama.OffsetNewest); err == nil {
			n += end
		}
	}
	return n
}

// fillOutbox adds entries that no relay publishes.
func (w *world) fillOutbox(ids ...string) {
	w.t.Helper()
	ctx := w.t.Context()
	conn, err := pgx.Connect(ctx, w.postgres)
	require.NoError(w.t, err)
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, id := range ids {
			if err := pgoutbox.New(nil).Add(ctx, tx, outbox.Entry{Topic: w.topic, Key: id, ID: id, Type: "order.paid", Payload: []byte(`{}`)}); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(w.t, err)
}

// provider is the server that events are posted to. It decides about the result of each.
type provider struct {
	*httptest.Server

	mu      sync.Mutex
	answers map[string]reply
	count   map[string]int
	held    map[string]chan struct{}
}

type reply struct {
	code int
	text string
}

func newProvider(t testing.TB) *provider {
	p := &provider{answers: make(map[string]reply), count: make(map[string]int), held: make(map[string]chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(func() {
		p.releaseAll()
		p.Close()
	})
	return p
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	id, _ := url.QueryUnescape(r.Header.Get("Event"))
	p.mu.Lock()
	held := p.held[id]
	p.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.answers[id]; ok {
		w.WriteHeader(a.code)
		_, _ = io.WriteString(w, a.text)
		return
	}
	p.count[id]++ // the effect
}

// answer sets the answer to these events from now on. Zero: they have their effect.
func (p *provider) answer(code int, text string, ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if delete(p.answers, id); code != 0 {
			p.answers[id] = reply{code, text}
		}
	}
}

func (p *provider) effects(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[id]
}

// hold lets requests for an event wait until the release.
func (p *provider) hold(id string) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan struct{})
	p.held[id] = c
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.held[id] == c {
			close(c)
			delete(p.held, id)
		}
	}
}

func (p *provider) releaseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.held {
		close(c)
		delete(p.held, id)
	}
}
