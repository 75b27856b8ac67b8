package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/kafkalog"
	"github.com/idem-go/idem/internal/testenv"
)

// dlqBinary is this command, built.
func dlqBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "idem")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// newRealDeadLetterWorld is on a real Kafka.
func newRealDeadLetterWorld(t *testing.T, store dedup.Store) *deadLetterWorld {
	t.Helper()
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 2)
	admin := testenv.KafkaAdmin(t, brokers)
	for _, name := range []string{topic + ".g.dlq", topic + ".g.retry"} {
		require.NoError(t, admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false))
	}
	w := newDeadLetterWorldAt(t, brokers, store, topic)
	require.Eventually(t, func() bool {
		return w.client.RefreshMetadata(topic+".g.dlq", topic+".g.retry") == nil
	}, 20*time.Second, 50*time.Millisecond)
	return w
}

// A replay is killed again and again, while copies of it are consumed. In the end every event has
// run once. All copies of an event carry the same position, and a handled event is not published
// again (T-02, rule 6).
func TestReplayKilled(t *testing.T) {
	path := dlqBinary(t)
	for _, c := range []struct {
		name string
		open func(t *testing.T) (store dedup.Store, flags []string)
	}{
		{"postgres", func(t *testing.T) (dedup.Store, []string) {
			url := testenv.Postgres(t)
			pool, err := pgxpool.New(t.Context(), url)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			require.NoError(t, pgstore.Migrate(t.Context(), pool))
			return pgstore.New(pool), withoutPasswords(t, []string{"--store", url})
		}},
		{"redis", func(t *testing.T) (dedup.Store, []string) {
			client, prefix := testenv.Redis(t)
			o := client.Options()
			return redisstore.New(client, redisstore.Prefix(prefix)),
				[]string{"--store", fmt.Sprintf("redis://%s/%d", o.Addr, o.DB), "--redis-prefix", prefix}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, flags := c.open(t)
			w := newRealDeadLetterWorld(t, store)
			replayKilled(t, w, path, flags)
		})
	}
}

func replayKilled(t *testing.T, w *deadLetterWorld, path string, flags []string) {
	const events, nameless, kills = 300, 20, 5
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w.fail(w.events("e", events)...)
	before := w.event("done before", "")
	w.fail(before)
	w.handleReopened("done before", before)
	for range nameless {
		m := w.event("", "")
		m.Value = []byte("not json")
		w.fail(m)
	}

	args := append([]string{"dlq", "replay", "--topic", w.topic, "--group", "g", "--brokers", strings.Join(w.brokers, ","), "--yes"}, flags...)
	var ran applied
	done := map[string]int{} // copies of events that were done
	for range kills {
		killAfter(t, w, random.IntN(events/kills), append(args, "--rate", "150"), path)
		var some []*idem.Message
		for _, m := range w.copies() {
			if headerText(m, deadletter.HeaderEventID) != "" && random.IntN(2) == 0 {
				some = append(some, m)
			}
		}
		w.handle(ran.run, some...)
		for id, positions := range w.copiesByID() {
			if n, ok := done[id]; ok {
				require.Len(t, positions, n, "%s was done", id)
			} else if ran.runs[id] > 0 {
				done[id] = len(positions)
			}
		}
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), `"outcome":"done"`)

	copies := w.copiesByID()
	unnamed := len(copies[""]) // at most one too many for each kill
	require.GreaterOrEqual(t, unnamed, nameless)
	require.LessOrEqual(t, unnamed, nameless+kills)
	delete(copies, "")
	require.Len(t, copies, events)
	twice := 0
	for id, positions := range copies {
		for _, p := range positions {
			require.Equal(t, "1", p, id)
		}
		if n, ok := done[id]; ok {
			require.Len(t, positions, n, "%s was done", id)
		}
		twice += len(positions) - 1
	}
	t.Logf("%d events, %d done between kills, %d copies too many; %d without identity, %d", events, len(done), twice, nameless, unnamed-nameless)
	w.handle(ran.run, w.copies()...)
	again, err := exec.CommandContext(t.Context(), path, append(args, "--class", string(idem.ClassPermanent))...).CombinedOutput()
	require.NoError(t, err, "%s", again)
	require.Contains(t, string(again), `"replayed":0`)
	require.Len(t, ran.runs, events)
	for id, n := range ran.runs {
		require.Equal(t, 1, n, id)
	}
}

// handleReopened lets a dead event run, without the command.
func (w *deadLetterWorld) handleReopened(id string, m *idem.Message) {
	w.t.Helper()
	position, err := w.store.(dedup.Operator).Reopen(w.t.Context(), w.key(id))
	require.NoError(w.t, err)
	l := &deadletter.Event{Key: w.key(id), Group: "g", Message: m}
	c, err := l.Redrive(position)
	require.NoError(w.t, err)
	w.handle(func(string) error { return nil }, c)
}

// killAfter runs the command and kills it when n more copies are there.
func killAfter(t *testing.T, w *deadLetterWorld, n int, args []string, path string) {
	t.Helper()
	n += len(w.copies())
	cmd := exec.CommandContext(t.Context(), path, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	require.Eventually(t, func() bool {
		select {
		case err := <-ended:
			ended <- err
			return true
		default:
			return w.size(w.topic+".g.retry") > int64(n)
		}
	}, time.Minute, 5*time.Millisecond)
	_ = cmd.Process.Kill()
	err := <-ended
	var killed *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &killed, "%s", out.String())
		require.Equal(t, -1, killed.ExitCode(), "%s", out.String())
	}
}

// size counts the records of a topic by their offsets.
func (w *deadLetterWorld) size(topic string) (n int64) {
	spans, err := kafkalog.Spans(w.client, topic)
	if err != nil {
		return 0
	}
	for _, s := range spans {
		n += s.End - s.Begin
	}
	return n
}
