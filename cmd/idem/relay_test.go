package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
)

// buffer may be read while a command writes to it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// runningCommand is a command under way.
type runningCommand struct {
	stdout, stderr buffer
	stop           context.CancelFunc
	done           chan struct{}
	code           int
}

func startRelay(t *testing.T, args ...string) *runningCommand {
	t.Helper()
	return startCommand(t, nil, append([]string{"relay"}, args...)...)
}

// startCommand starts a command that runs until interrupted, with stores that are there already.
func startCommand(t *testing.T, known map[string]*openedStore, args ...string) *runningCommand {
	t.Helper()
	args = withoutPasswords(t, args)
	ctx, stop := context.WithCancel(context.Background())
	r := &runningCommand{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		a := &app{stdin: strings.NewReader(""), stdout: &r.stdout, stderr: &r.stderr, known: known}
		r.code = a.run(ctx, args)
	}()
	t.Cleanup(func() {
		stop()
		<-r.done
		if t.Failed() {
			t.Log(r.stdout.String(), r.stderr.String())
		}
	})
	return r
}

// end stops the command as SIGTERM does, and returns its last line.
func (r *runningCommand) end(t *testing.T) string {
	t.Helper()
	r.stop()
	<-r.done
	require.Equal(t, exitOK, r.code, r.stderr.String())
	lines := strings.Split(strings.TrimSpace(r.stdout.String()), "\n")
	return lines[len(lines)-1]
}

const soon, poll = 30 * time.Second, 20 * time.Millisecond

// topicOf reads a topic from its beginning, by event ID in the order of partitions.
func topicOf(t *testing.T, brokers []string, topic string) (ids []string) {
	t.Helper()
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	require.NoError(t, err)
	defer consumer.Close()
	parts, err := client.Partitions(topic)
	require.NoError(t, err)
	for _, id := range parts {
		end, err := client.GetOffset(topic, id, sarama.OffsetNewest)
		require.NoError(t, err)
		if end == 0 {
			continue
		}
		pc, err := consumer.ConsumePartition(topic, id, sarama.OffsetOldest)
		require.NoError(t, err)
		for m := range pc.Messages() {
			require.Equal(t, outbox.HeaderID, string(m.Headers[0].Key))
			ids = append(ids, string(m.Headers[0].Value))
			if m.Offset == end-1 {
				break
			}
		}
		require.NoError(t, pc.Close())
	}
	return ids
}

// TestRelay_EndToEnd: committed rows arrive in the order of their aggregates. Probes show the state
// of the relay. SIGTERM ends the relay with a line that counts the rows.
func TestRelay_EndToEnd(t *testing.T) {
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 3)
	o := newTestOutbox(t)
	for i := range 30 {
		o.add(event(topic, fmt.Sprint("key-", i%3), fmt.Sprintf("%d-%02d", i%3, i)))
	}
	health := testenv.FreeAddr(t)
	r := startRelay(t, "--outbox", o.url, "--brokers", strings.Join(brokers, ","), "--interval", "50ms", "--health", health, "-o", "json")
	require.Eventually(t, func() bool { return o.backlog().Waiting == 0 }, soon, poll)
	o.add(event(topic, "key-0", "0-99")) // found by the next poll
	require.Eventually(t, func() bool { return o.backlog().Waiting == 0 }, soon, poll)
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + health + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	code, text := get("/healthz")
	require.Equal(t, 200, code, text)
	code, text = get("/readyz")
	require.Equal(t, 200, code, text)
	var name string
	require.NoError(t, o.pool.QueryRow(t.Context(), "SELECT application_name FROM pg_stat_activity WHERE application_name = 'idem-relay' LIMIT 1").Scan(&name))
	var v outboxView
	command(t, "outbox", "status", "--outbox", o.url, "-o", "json").json(t, &v)
	require.Len(t, v.Relays, 1)
	require.Len(t, v.Relays[0].Shards, outbox.Shards)
	require.True(t, v.Relays[0].Alive)

	var last map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.end(t)), &last))
	require.Equal(t, "stopped", last["relay"])
	require.InDelta(t, 31, last["sent"], 0)
	for _, line := range strings.Split(strings.TrimSpace(r.stderr.String()), "\n") {
		require.True(t, json.Valid([]byte(line)), line)
	}
	_, err := http.Get("http://" + health + "/healthz")
	require.Error(t, err, "the health server has ended")
	ids := topicOf(t, brokers, topic)
	require.Len(t, ids, 31)
	before := map[byte]string{}
	for _, id := range ids {
		require.Less(t, before[id[0]], id, "%v", ids)
		before[id[0]] = id
	}
	command(t, "outbox", "status", "--outbox", o.url, "-o", "json").json(t, &v)
	require.Len(t, v.Relays, 1)
	require.Empty(t, v.Relays[0].Relay, "the shards are free at once")
}

// TestRelay_Poison_O10: a row that no broker takes is parked, and others flow: those of its key
// wait for a person. When the limit is raised and the row retried, it comes, and they after it. A
// skipped row never comes.
func TestRelay_Poison_O10(t *testing.T) {
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 2, map[string]string{"max.message.bytes": "100000"})
	o := newTestOutbox(t)
	large := event(topic, "bad", "bad-1")
	large.Payload = bytes.Repeat([]byte("x"), 2<<20)
	drop := event(topic, "drop", "drop-1")
	drop.Payload = large.Payload
	o.add(large, drop)
	o.add(event(topic, "bad", "bad-2"), event(topic, "drop", "drop-2"))
	for i := range 20 {
		o.add(event(topic, fmt.Sprint("good-", i), fmt.Sprint("good-", i)))
	}
	o.add(event(topic+"-missing", "lost", "lost-1"))
	r := startRelay(t, "--outbox", o.url, "--brokers", strings.Join(brokers, ","), "--interval", "50ms", "--max-attempts", "2")
	require.Eventually(t, func() bool {
		b := o.backlog()
		return b.Waiting == 0 && b.Parked == 3 && b.Blocked == 2
	}, soon, poll)
	require.Len(t, topicOf(t, brokers, topic), 20)
	var parked []parkedRowView
	command(t, "outbox", "parked", "--outbox", o.url, "-o", "json").json(t, &parked)
	seqs := map[string]string{}
	for _, p := range parked {
		seqs[p.ID] = fmt.Sprint(p.Seq)
	}
	require.Len(t, seqs, 3)
	require.Contains(t, command(t, "outbox", "parked", "--outbox", o.url).ok(t), "too large")

	command(t, "outbox", "skip", seqs["drop-1"], seqs["lost-1"], "--outbox", o.url, "-y").ok(t)
	require.Eventually(t, func() bool { return len(topicOf(t, brokers, topic)) == 21 }, soon, poll)
	limit := "5000000"
	require.NoError(t, testenv.KafkaAdmin(t, brokers).AlterConfig(sarama.TopicResource, topic, map[string]*string{"max.message.bytes": &limit}, false))
	command(t, "outbox", "retry", seqs["bad-1"], "--outbox", o.url, "-y").ok(t)
	require.Eventually(t, func() bool { return o.backlog() == outbox.Backlog{} }, soon, poll)
	last := r.end(t)
	require.Contains(t, last, "23 sent")
	require.Contains(t, last, "3 parked")
	ids := topicOf(t, brokers, topic)
	require.Len(t, ids, 23)
	text := strings.Join(ids, " ")
	require.Contains(t, text, "drop-2")
	require.NotContains(t, text, "drop-1")
	require.Less(t, strings.Index(text, "bad-1"), strings.Index(text, "bad-2"))
}

// TestRelay_BrokerAway: a missing broker is an error after the time of --setup-wait. A bad address
// of --health is an error too.
func TestRelay_BrokerAway(t *testing.T) {
	o := newTestOutbox(t)
	away := testenv.FreeAddr(t)
	began := time.Now()
	r := command(t, "relay", "--outbox", o.url, "--brokers", away)
	r.failed(t, exitFailure, "kafka "+away)
	require.GreaterOrEqual(t, time.Since(began), defaultSetupWait, "it tries again")
	require.Less(t, time.Since(began), soon)
	require.Empty(t, r.stdout)
	cluster, _ := fakeKafka(t, 1)
	r = command(t, "relay", "--outbox", o.url, "--brokers", cluster.ListenAddrs()[0], "--health", "nowhere.invalid:1")
	r.failed(t, exitFailure, "--health")
}

// TestRelay_BrokerComes: for the time of --setup-wait, a relay waits for a Kafka that refuses
// connections, and begins when Kafka is there.
func TestRelay_BrokerComes(t *testing.T) {
	o := newTestOutbox(t)
	kafka, health := testenv.FreeAddr(t), testenv.FreeAddr(t)
	r := startRelay(t, "--outbox", o.url, "--brokers", kafka, "--interval", "50ms", "--setup-wait", "10m", "--health", health)
	reason := func() string {
		resp, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(text)
	}
	require.Eventually(t, func() bool { return strings.Contains(reason(), "kafka "+kafka) }, soon, poll)
	require.Eventually(t, func() bool { return strings.Contains(r.stderr.String(), "Kafka cannot be reached") }, soon, poll)
	require.Empty(t, r.stdout.String())
	_, port, err := net.SplitHostPort(kafka)
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	fakeKafka(t, 1, kfake.Ports(n))
	require.Eventually(t, func() bool { return strings.Contains(r.stdout.String(), "relay started: ") }, soon, poll)
	require.Contains(t, r.end(t), "0 sent")
	require.Contains(t, r.stderr.String(), "Kafka can be reached")

	away := testenv.FreeAddr(t)
	r = startRelay(t, "--outbox", o.url, "--brokers", away, "--setup-wait", "10m", "--health", health)
	require.Eventually(t, func() bool { return strings.Contains(reason(), "kafka "+away) }, soon, poll)
	require.Contains(t, r.end(t), "0 sent", "an interruption of the wait is no failure")
}

// TestRelay_BrokerGoes_O15: the relay waits for a Kafka that goes away later. Readiness reports
// that after a lease, and no row is parked.
func TestRelay_BrokerGoes_O15(t *testing.T) {
	o := newTestOutbox(t)
	cluster, _ := fakeKafka(t, 1)
	brokers := cluster.ListenAddrs()
	require.NoError(t, testenv.KafkaAdmin(t, brokers).CreateTopic("orders", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	health := testenv.FreeAddr(t)
	o.add(event("orders", "1", "a"))
	r := startRelay(t, "--outbox", o.url, "--brokers", strings.Join(brokers, ","), "--interval", "50ms", "--lease", "1s", "--health", health,
		"--keep", "1h", "--wake")
	require.Eventually(t, func() bool { return o.backlog().Waiting == 0 }, soon, poll)
	cluster.Close()
	o.add(event("orders", "1", "b"))
	ready := func() int {
		resp, err := http.Get("http://" + health + "/readyz")
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	require.Eventually(t, func() bool { return ready() == http.StatusServiceUnavailable }, soon, poll)
	require.Equal(t, outbox.Backlog{Waiting: 1}, func() outbox.Backlog { b := o.backlog(); b.Oldest = 0; return b }())
	began := time.Now()
	require.Contains(t, r.end(t), "1 sent")
	require.Less(t, time.Since(began), soon)
	var kept int
	require.NoError(t, o.pool.QueryRow(t.Context(), "SELECT count(*) FROM idem_outbox WHERE state = 1").Scan(&kept))
	require.Equal(t, 1, kept)
}

// A topic that is missing at the start ends the command, which names the way out.
func TestRelay_MissingTopic(t *testing.T) {
	brokers := testenv.Kafka(t)
	o := newTestOutbox(t)
	began := time.Now()
	r := startRelay(t, "--outbox", o.url, "--brokers", strings.Join(brokers, ","), "--topics", "no-such-topic")
	<-r.done
	require.Equal(t, exitFailure, r.code)
	require.Less(t, time.Since(began), 10*time.Second)
	require.Contains(t, r.stderr.String(), "--create --topic no-such-topic")
}

// A relay waits for tables for the time of --setup-wait, and begins when they are there.
func TestRelay_SetupWait(t *testing.T) {
	f := relayFlags{
		setupWait: time.Hour, interval: 1, batch: 1, batchBytes: 1, lease: time.Minute, maxAttempts: 1,
		whenParked: outbox.Halt.String(),
	}
	cfg, err := f.config()
	require.NoError(t, err)
	require.Equal(t, time.Hour, cfg.SetupWait)

	cluster, _ := fakeKafka(t, 1)
	p := newPgSchema(t)
	args := []string{"--outbox", p.url, "--brokers", strings.Join(cluster.ListenAddrs(), ",")}
	short := startRelay(t, append(args, "--setup-wait", "1ms")...)
	<-short.done
	require.Equal(t, exitFailure, short.code)
	require.Empty(t, short.stdout.String(), "it did not start")
	require.Equal(t, 1, strings.Count(short.stderr.String(), "WARN"), &short.stderr)
	require.NotContains(t, short.stderr.String(), "ERROR")
	require.Contains(t, short.stderr.String(), "idem: outbox: ")
	require.Contains(t, short.stderr.String(), "idem migrate up --outbox")

	health := testenv.FreeAddr(t)
	long := startRelay(t, append(args, "--setup-wait", "10m", "--interval", "50ms", "--health", health)...)
	ready := func(address string) string { // the reason, or "ready"
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		if resp.StatusCode == http.StatusOK {
			return "ready"
		}
		return string(text)
	}
	require.Eventually(t, func() bool { return strings.Contains(ready(health), "idem migrate up --outbox") }, soon, poll)
	require.Empty(t, long.stdout.String(), "it has not started")
	command(t, "migrate", "up", "--outbox", "--store", p.url).ok(t)
	require.Eventually(t, func() bool { return ready(health) == "ready" }, soon, poll)
	require.Eventually(t, func() bool { return strings.Contains(long.stdout.String(), "relay started: ") }, soon, poll)
	require.Contains(t, long.end(t), "0 sent")

	health = testenv.FreeAddr(t)
	long = startRelay(t, append(args, "--setup-wait", "10m", "--topics", "no-such-topic", "--health", health)...)
	require.Eventually(t, func() bool { return strings.Contains(ready(health), "--create --topic no-such-topic") }, soon, poll)
	require.Contains(t, long.end(t), "0 sent")
}
