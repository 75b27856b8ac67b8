package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/examples/internal/clitest"
	"github.com/idem-go/idem/internal/testenv"
)

// The tests of this file and the next run the program as processes of their own, on the real Kafka,
// and write to it with independent clients: kcat, or franz-go.

// asProgram makes this test binary the program, so that the worker under test has the race detector
// too.
const asProgram = "NOTIFIER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) { clitest.Main(m, asProgram, main) }

// lanes is the number of partitions of every topic here, and the maximum number of notifications in
// flight in one worker.
const lanes = 6

// setup is a topic, and the output of workers on it.
type setup struct {
	brokers []string
	topic   string
	group   string
	store   string
	prefix  string // of event IDs
	client  *kgo.Client
	admin   *kadm.Client
	stderr  *os.File

	mu    sync.Mutex
	lines []logLine
	more  chan struct{} // closed and replaced at each line
}

func newSetup(t *testing.T, store string) *setup {
	t.Helper()
	s := &setup{brokers: testenv.Kafka(t), store: store, more: make(chan struct{})}
	s.topic = testenv.CreateTopic(t, s.brokers, lanes)
	s.group, s.prefix = s.topic, s.topic
	var err error
	s.client, err = kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.DefaultProduceTopic(s.topic))
	require.NoError(t, err)
	s.admin = kadm.NewClient(s.client)
	s.stderr, err = os.Create(t.TempDir() + "/stderr")
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = s.admin.DeleteGroup(ctx, s.group)
		s.client.Close()
		if t.Failed() {
			s.tellLog(t)
		}
		_ = s.stderr.Close()
	})
	return s
}

// tellLog shows the end of the workers' log.
func (s *setup) tellLog(t *testing.T) {
	text, err := os.ReadFile(s.stderr.Name())
	require.NoError(t, err)
	t.Logf("workers logged, at the end:\n%s", text[max(0, len(text)-8000):])
}

// redisStore returns the URL of the real Redis. clean deletes the keys of the setup's events at the
// end.
func redisStore(t *testing.T) (url string, clean func(*setup)) {
	t.Helper()
	opts := testenv.RedisOptions(t)
	return os.Getenv("REDIS_URL"), func(s *setup) {
		t.Cleanup(func() {
			client := redis.NewClient(opts)
			defer client.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			for it := client.Scan(ctx, 0, "idem:*"+s.prefix+"*", 1000).Iterator(); it.Next(ctx); {
				client.Unlink(ctx, it.Val())
			}
			client.Unlink(ctx, "idem:born:"+scope, "idem:scope:"+scope)
		})
	}
}

// forEachStore runs test with a durable store of each kind.
func forEachStore(t *testing.T, test func(*testing.T, *setup)) {
	t.Run("redis", func(t *testing.T) {
		url, clean := redisStore(t)
		s := newSetup(t, url)
		clean(s)
		test(t, s)
	})
	t.Run("postgres", func(t *testing.T) {
		url := testenv.Postgres(t)
		test(t, newSetup(t, url))
	})
	t.Run("sqlite", func(t *testing.T) { // one file for all workers
		test(t, newSetup(t, "sqlite:"+filepath.Join(t.TempDir(), "notifier.db")))
	})
}

// records returns n events, copies times each. The first copies are in order under the key of their
// user. The others are in another order and under another key or no key, and so in other
// partitions.
func (s *setup) records(from, n, copies int) []*kgo.Record {
	channels := [...]string{"email", "sms", "push"}
	var all []*kgo.Record
	for c := range copies {
		order := rand.Perm(n)
		for i := range n {
			if c == 0 {
				order[i] = i
			}
			k := from + order[i]
			value := fmt.Sprintf(`{"event_id":"%s-%05d","type":%q,"user_id":"u%d","template":"welcome","data":{}}`,
				s.prefix, k, channels[k%3], k%97)
			r := &kgo.Record{Value: []byte(value)}
			switch (k + c) % 3 {
			case 0:
				r.Key = fmt.Appendf(nil, "u%d", k%97)
			case 1:
				r.Key = fmt.Appendf(nil, "retry-%d", rand.IntN(1000))
			}
			all = append(all, r)
		}
	}
	return all
}

func (s *setup) produce(t *testing.T, records []*kgo.Record) {
	t.Helper()
	require.NoError(t, s.client.ProduceSync(t.Context(), records...).FirstErr())
}

// process is a running worker.
type process struct {
	cmd  *exec.Cmd
	read sync.WaitGroup
}

// start runs the program and reads its output until it ends.
func (s *setup) start(t *testing.T, more ...string) *process {
	t.Helper()
	args := append([]string{
		"-brokers", strings.Join(s.brokers, ","), "-topic", s.topic, "-group", s.group, "-store", s.store,
		"-sender", "log", "-instance-id", "one", "-lease", "2s",
	}, more...)
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &process{cmd: exec.Command(exe, args...)}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stderr = s.stderr
	_, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	p.read.Go(func() { s.read(t, out) })
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.kill()
		}
	})
	return p
}

func (s *setup) read(t *testing.T, out io.Reader) {
	for in := bufio.NewScanner(out); in.Scan(); {
		var l logLine
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Errorf("not a line of JSON: %q", in.Text())
			return
		}
		s.mu.Lock()
		s.lines = append(s.lines, l)
		close(s.more)
		s.more = make(chan struct{})
		s.mu.Unlock()
	}
}

// kill sends SIGKILL and waits until all output is read.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	p.read.Wait()
	_ = p.cmd.Wait()
}

// terminate sends SIGTERM and returns the exit code.
func (p *process) terminate(t *testing.T) int {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	return p.wait()
}

// wait returns the exit code of a process that ends by itself. It kills a process that does not
// end, and returns -1.
func (p *process) wait() int {
	late := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	p.read.Wait()
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func (s *setup) printed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines)
}

// await waits until n lines were printed in all.
func (s *setup) await(t *testing.T, n int) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		s.mu.Lock()
		have, more := len(s.lines), s.more
		s.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-more:
		case <-timeout:
			require.Failf(t, "worker is stuck", "%d lines printed, %d wanted", have, n)
		}
	}
}

// awaitCommits waits until the group has committed all records.
func (s *setup) awaitCommits(t *testing.T) {
	t.Helper()
	d := &demo{admin: s.admin, topic: s.topic, group: s.group}
	require.Eventually(t, func() bool {
		done, err := d.committed(t.Context())
		return err == nil && done
	}, 90*time.Second, 50*time.Millisecond, "the group does not get to the end of the topic")
}

// figures are the results.
type figures struct{ sent, repeats int }

// check reads the output: events 0 to n-1 were all sent, no event was dead-lettered, and a repeat
// has the same key.
func (s *setup) check(t *testing.T, n int) figures {
	t.Helper()
	keys := make(map[event]string)
	for _, l := range s.lines {
		e := event{l.Type, l.EventID}
		if first, again := keys[e]; again {
			require.Equal(t, first, l.IdempotencyKey, "a repeat carries the same key (rule 38)")
		}
		keys[e] = l.IdempotencyKey
	}
	channels := [...]string{"email", "sms", "push"}
	lost := 0
	for k := range n {
		if _, sent := keys[event{channels[k%3], fmt.Sprintf("%s-%05d", s.prefix, k)}]; !sent {
			lost++
		}
	}
	require.Zero(t, lost, "events lost of %d", n)
	require.Len(t, keys, n)
	d := &demo{admin: s.admin, topic: s.topic, group: s.group, addrs: s.brokers}
	letters, err := d.deadLetters(t.Context())
	require.NoError(t, err)
	require.Empty(t, letters)
	return figures{sent: n, repeats: len(s.lines) - n}
}
