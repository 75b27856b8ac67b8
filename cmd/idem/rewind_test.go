package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/groups"
	"github.com/idem-go/idem/internal/kafkalog"
	"github.com/idem-go/idem/internal/testenv"
)

// fill writes n records with times a minute apart, the last one ago.
func (w *deadLetterWorld) fill(topic string, n int, last time.Duration) {
	w.t.Helper()
	for i := range n {
		at := time.Now().Add(-last - time.Duration(n-1-i)*time.Minute)
		require.NoError(w.t, w.producer.Produce(w.t.Context(), &idem.Message{Topic: topic, Key: []byte("k"), Value: fmt.Append(nil, i), Time: at}))
	}
}

// partition is the one that fill writes to.
func (w *deadLetterWorld) partition(topic string) kafkalog.Span {
	w.t.Helper()
	spans, err := kafkalog.Spans(w.client, topic)
	require.NoError(w.t, err)
	for _, s := range spans {
		if s.End > 0 {
			return s
		}
	}
	w.t.Fatal("nothing was written to ", topic)
	return kafkalog.Span{}
}

func (w *deadLetterWorld) commit(topic string, offset int64) {
	w.t.Helper()
	w.alter(topic, map[int32]sarama.OffsetAndMetadata{w.partition(topic).Partition: {Offset: offset, LeaderEpoch: -1}})
}

// commitOffsets commits offsets of partition 0 and the next ones.
func (w *deadLetterWorld) commitOffsets(topic string, offsets ...int64) {
	w.t.Helper()
	all := map[int32]sarama.OffsetAndMetadata{}
	for partition, offset := range offsets {
		all[int32(partition)] = sarama.OffsetAndMetadata{Offset: offset, LeaderEpoch: -1}
	}
	w.alter(topic, all)
}

func (w *deadLetterWorld) alter(topic string, offsets map[int32]sarama.OffsetAndMetadata) {
	w.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(w.client)
	require.NoError(w.t, err)
	_, err = admin.AlterConsumerGroupOffsets(w.group, map[string]map[int32]sarama.OffsetAndMetadata{topic: offsets}, nil)
	require.NoError(w.t, err)
}

func (w *deadLetterWorld) committed(topic string) int64 {
	w.t.Helper()
	offsets, err := groups.Committed(w.client, w.group)
	require.NoError(w.t, err)
	return offsets[topic][w.partition(topic).Partition]
}

// command runs the command against this Kafka.
func (w *deadLetterWorld) command(args ...string) (code int, out, said string) {
	w.t.Helper()
	var o, e bytes.Buffer
	code = runCommand(w.t.Context(), append(args, "--brokers", strings.Join(w.brokers, ","), "--group", w.group), strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// A stopped group goes back, never forward, with its retry topics (P-18).
func TestRewind(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fill("orders", 60, 0)
	w.fill("orders.g.retry", 60, 0)
	w.commit("orders", 55)
	w.commit("orders.g.retry", 60)

	code, _, said := w.command("rewind", "--to", "30m30s")
	require.Equal(t, exitFound, code, "without a yes: %s", said)
	require.EqualValues(t, 55, w.committed("orders"))

	code, out, said := w.command("rewind", "--to", "30m30s", "--yes", "-o", "json")
	require.Zero(t, code, said)
	rows := decodeJSON[rewindView](t, strings.NewReader(out)).Partitions
	require.Len(t, rows, 2)
	require.EqualValues(t, 29, w.committed("orders"))
	require.EqualValues(t, 29, w.committed("orders.g.retry"))
	require.EqualValues(t, 26, rows[0].Events)
	require.EqualValues(t, 31, rows[1].Events)
	require.Contains(t, said, `"audit":"rewind"`)
	require.Contains(t, said, `"events":57`)
	require.Contains(t, said, "without --store")

	code, _, said = w.command("rewind", "--to", "10m", "--yes") // forward
	require.Zero(t, code)
	require.Contains(t, said, "no offsets to rewind")
	require.EqualValues(t, 29, w.committed("orders"))

	code, _, said = w.command("rewind", "--to", "40m30s", "--topic", "orders", "--yes", "--retention", "20m")
	require.Zero(t, code, said)
	require.Contains(t, said, "the store remembers since")
	require.EqualValues(t, 19, w.committed("orders"))
	require.EqualValues(t, 19, w.committed("orders.g.retry"), "belongs to orders")

	code, _, said = w.command("rewind", "--to", "90m", "--yes")
	require.Zero(t, code, said)
	require.EqualValues(t, 0, w.committed("orders"))

	for _, args := range [][]string{{}, {"--to", "soon"}, {"--to", "1m", "--before-failover", "1m"}} {
		code, _, said = w.command(append([]string{"rewind"}, args...)...)
		require.Equal(t, exitUsage, code, said)
	}
	code, _, said = w.command("rewind", "--to", "1m", "--topic", "nowhere")
	require.Equal(t, exitFound, code, said)
}

// The records that a late group consumed in the last minutes are older than those minutes. A rewind
// by the clock alone would find no record, and the effects that a failover lost would stay lost
// (P-18).
func TestRewindOfAGroupThatIsBehind(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fill("orders", 60, 2*time.Hour)
	w.commit("orders", 50) // consumed just now: records from more than two hours ago
	code, out, said := w.command("rewind", "--before-failover", "10m30s", "--yes", "-o", "json")
	require.Zero(t, code, said)
	rows := decodeJSON[rewindView](t, strings.NewReader(out)).Partitions
	require.EqualValues(t, 11, rows[0].Events)
	require.Contains(t, rows[0].Note, "the last consumed record is older")
	require.EqualValues(t, 39, w.committed("orders"))

	code, out, said = w.command("rewind", "--to", "10m", "--yes", "-o", "json")
	require.Zero(t, code, said)
	require.Contains(t, decodeJSON[rewindView](t, strings.NewReader(out)).Partitions[0].Note, "all that was consumed is older")
	require.EqualValues(t, 39, w.committed("orders"))
}

// abort writes n records two hours old in a transaction, and aborts it. They have offsets, and so
// has the mark of the transaction.
func (w *deadLetterWorld) abort(topic string, n int) {
	w.t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(w.brokers...), kgo.TransactionalID("tx-"+topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	require.NoError(w.t, err)
	defer client.Close()
	require.NoError(w.t, client.BeginTransaction())
	at, partition := time.Now().Add(-2*time.Hour), w.partition(topic).Partition
	for range n {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte("aborted"), Timestamp: at}
		require.NoError(w.t, client.ProduceSync(w.t.Context(), r).FirstErr())
	}
	require.NoError(w.t, client.EndTransaction(w.t.Context(), kgo.TryAbort))
}

// The offsets just below the committed one may have no record that can be read, such as those of an
// aborted transaction. The last consumed record is further back (P-18).
func TestRewindBehindAnAbortedTransaction_P18(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fill("orders", 30, 2*time.Hour)
	w.abort("orders", 20)
	w.commit("orders", w.partition("orders").End)
	w.fill("orders", 5, 0)
	code, out, said := w.command("rewind", "--before-failover", "10m30s", "--yes", "-o", "json")
	require.Zero(t, code, said)
	row := decodeJSON[rewindView](t, strings.NewReader(out)).Partitions[0]
	require.Contains(t, row.Note, "the last consumed record is older")
	require.EqualValues(t, 19, row.To)
	require.EqualValues(t, 19, w.committed("orders"))
}

// The windows reach to the begin of the log, or to a bound, and do not overlap.
func TestRewindWindows(t *testing.T) {
	for _, c := range []struct {
		begin, end int64
		want       [][2]int64
	}{
		{0, 0, nil},
		{50, 40, nil},
		{0, 10, [][2]int64{{0, 10}}},
		{90, 100, [][2]int64{{90, 100}}},
		{0, 51, [][2]int64{{35, 51}, {0, 35}}},
		{0, 300, [][2]int64{{284, 300}, {44, 284}, {0, 44}}},
		{0, 2 << 20, [][2]int64{
			{2<<20 - 16, 2 << 20}, {2<<20 - 256, 2<<20 - 16}, {2<<20 - 4096, 2<<20 - 256},
			{2<<20 - 65536, 2<<20 - 4096}, {1 << 20, 2<<20 - 65536},
		}},
	} {
		var got [][2]int64
		for w := range windows(kafkalog.Span{Begin: c.begin, End: c.end}) {
			got = append(got, [2]int64{w.Begin, w.End})
		}
		require.Equal(t, c.want, got, "%d to %d", c.begin, c.end)
	}
}

// A partition of which the last record is not known does not stay where it is without a word: the
// command refuses (P-18).
func TestRewindAim_P18(t *testing.T) {
	now := time.Now()
	old, young, to := now.Add(-2*time.Hour), now.Add(-time.Minute), now.Add(-10*time.Minute)
	for name, c := range map[string]struct {
		last     *time.Time
		searched bool
		before   time.Duration
		want     time.Time // zero: not known
		says     string
	}{
		"keeps up":             {&young, true, 10 * time.Minute, to, ""},
		"is behind":            {&old, true, 10 * time.Minute, old.Add(-10 * time.Minute), "is older than 10m"},
		"no records":           {nil, true, 10 * time.Minute, to, ""},
		"not found":            {nil, false, 10 * time.Minute, time.Time{}, "not known"},
		"a time is given":      {&old, true, 0, to, "all that was consumed is older"},
		"a time, none found":   {nil, false, 0, to, ""},
		"a time, and keeps up": {&young, true, 0, to, ""},
	} {
		got := aim(c.last, c.searched, to, c.before)
		require.Equal(t, c.want, got.to, name)
		require.Equal(t, c.want.IsZero(), got.unknown, name)
		require.Contains(t, got.note, c.says, name)
	}
	require.NoError(t, refuseUnknown([]rewindRow{{Topic: "orders"}}))
	err := refuseUnknown([]rewindRow{{Topic: "orders"}, {Topic: "orders", Partition: 7, unknown: true}})
	require.ErrorContains(t, err, "orders/7: give --to")
	require.Equal(t, exitFound, new(app).exitOf(err).code)
}

// While a person looks at the question, another one rewinds further. The answer yes does not move
// the group forward.
func TestRewindAfterAnotherRewind_P18(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fill("orders", 60, 0)
	w.commit("orders", 60)
	var said bytes.Buffer
	seen := &onWrite{substring: "Go on?", then: func() { w.commit("orders", 0) }}
	a := &app{stdin: strings.NewReader("y\n"), stdout: io.Discard, stderr: io.MultiWriter(&said, seen)}
	code := a.run(t.Context(), []string{"rewind", "--to", "30m30s", "--brokers", strings.Join(w.brokers, ","), "-G", "g"})
	require.Zero(t, w.committed("orders"), "it went forward")
	require.Equal(t, exitFound, code, &said)
	require.Contains(t, said.String(), "have changed")
	require.Equal(t, "refused", auditLines(t, said.String())[0]["outcome"])
}

// A rewind that is interrupted before it sets offsets has changed nothing, and has not failed.
func TestRewindInterrupted_P18(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fill("orders", 60, 0)
	w.commit("orders", 60)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var said bytes.Buffer
	seen := &onWrite{substring: "COMMITTED", then: cancel}
	a := &app{stdin: strings.NewReader(""), stdout: seen, stderr: &said}
	code := a.run(ctx, []string{"rewind", "--to", "30m30s", "--brokers", strings.Join(w.brokers, ","), "-G", "g", "--yes"})
	require.Equal(t, exitFailure, code, &said)
	require.EqualValues(t, 60, w.committed("orders"))
	line := auditLines(t, said.String())[0]
	require.Equal(t, "interrupted", line["outcome"])
	require.NotContains(t, line, "unknown")
}

// Without an answer of the broker, the offsets may have been set. A refusal of a partition is an
// answer.
func TestRewindUnanswered_P18(t *testing.T) {
	for name, c := range map[string]struct {
		answer  func(req *kmsg.OffsetCommitRequest) (kmsg.Response, error)
		unknown any
	}{
		"no answer": {func(*kmsg.OffsetCommitRequest) (kmsg.Response, error) { return nil, io.ErrUnexpectedEOF }, true},
		"refused":   {refuseCommits(kerr.UnknownMemberID.Code), nil},
		"timed out": {refuseCommits(kerr.RequestTimedOut.Code), true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			w := newDeadLetterWorldAt(t, cluster.ListenAddrs(), memstore.New(memstore.Volatile()), "orders")
			w.fill("orders", 60, 0)
			w.commit("orders", 60)
			cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				resp, err := c.answer(req.(*kmsg.OffsetCommitRequest))
				return resp, err, true
			})
			code, _, said := w.command("rewind", "--to", "30m30s", "--yes")
			require.Equal(t, exitFailure, code, said)
			line := auditLines(t, said)[0]
			require.Equal(t, "failed", line["outcome"])
			require.Equal(t, c.unknown, line["unknown"], said)
			require.Equal(t, c.unknown != nil, strings.Contains(said, "may have been set: see idem lag"), said)
		})
	}
}

// refuseCommits answers each partition of a commit with an error.
func refuseCommits(code int16) func(*kmsg.OffsetCommitRequest) (kmsg.Response, error) {
	return func(req *kmsg.OffsetCommitRequest) (kmsg.Response, error) {
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, asked := range req.Topics {
			topic := kmsg.NewOffsetCommitResponseTopic()
			topic.Topic = asked.Topic
			for _, p := range asked.Partitions {
				one := kmsg.NewOffsetCommitResponseTopicPartition()
				one.Partition, one.ErrorCode = p.Partition, code
				topic.Partitions = append(topic.Partitions, one)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil
	}
}

// join lets a member of the group read a topic until the test ends.
func (w *deadLetterWorld) join(topics ...string) {
	w.t.Helper()
	w.joinWith(nil, func(m groups.Member) bool { return len(m.Assigned) == len(topics) }, topics...)
}

// joinNextGeneration is join with the protocol of KIP-848. The fake Kafka names no assigned topics.
func (w *deadLetterWorld) joinNextGeneration(topics ...string) {
	w.t.Helper()
	opts := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer())}
	w.joinWith(opts, func(groups.Member) bool { return true }, topics...)
}

func (w *deadLetterWorld) joinWith(opts []kgo.Opt, joined func(groups.Member) bool, topics ...string) {
	w.t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(w.brokers...), kgo.ConsumerGroup(w.group), kgo.ConsumeTopics(topics...), kgo.ClientID("worker-7"), kgo.DisableAutoCommit())...)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			client.PollFetches(ctx)
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done; client.Close() })
	require.Eventually(w.t, func() bool {
		members, err := groups.Members(w.client, w.group)
		return err == nil && len(members) == 1 && joined(members[0])
	}, 20*time.Second, 20*time.Millisecond)
}

// A group that runs would commit its own offsets over these.
func TestRewindRefusesMembers(t *testing.T) {
	for name, join := range map[string]func(*deadLetterWorld, ...string){
		"classic": (*deadLetterWorld).join, "next generation": (*deadLetterWorld).joinNextGeneration,
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeadLetterWorld(t)
			w.fill("orders", 10, 0)
			w.commit("orders", 10)
			join(w, "orders")
			code, _, said := w.command("rewind", "--to", "5m", "--yes")
			require.Equal(t, exitFound, code, said)
			require.Contains(t, said, "worker-7")
			require.Contains(t, said, `"outcome":"refused"`)
			require.EqualValues(t, 10, w.committed("orders"))
		})
	}
}

// lag shows the offsets of a group, its members, its lag, and the number of dead letters.
func TestLag(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fill("orders", 10, time.Hour)
	w.commit("orders", 7)
	w.fail(w.events("e", 3)...)
	w.join("orders")
	code, out, said := w.command("lag", "-o", "json")
	require.Zero(t, code, said)
	lag := map[groups.Kind]int64{}
	for _, r := range decodeJSON[[]lagRow](t, strings.NewReader(out)) {
		lag[r.Kind] += *r.Lag
		switch {
		case r.Kind == groups.Source && *r.Lag > 0:
			require.EqualValues(t, 7, *r.Committed)
			require.InDelta(t, (time.Hour + 2*time.Minute).Seconds(), time.Since(*r.Oldest).Seconds(), 30)
			require.Contains(t, r.Member, "worker-7")
		case r.Kind == groups.Retry:
			require.Empty(t, r.Member)
		}
	}
	require.Equal(t, map[groups.Kind]int64{groups.Source: 3, groups.Retry: 0, groups.DeadLetters: 3}, lag)

	for flag, want := range map[string]int{"--max=2": exitFound, "--max=3": exitOK, "--max-dead-letters=2": exitFound, "--max-dead-letters=3": exitOK} {
		code, _, said = w.command("lag", flag)
		require.Equal(t, want, code, "%s: %s", flag, said)
	}
	var all, e bytes.Buffer
	require.Zero(t, runCommand(t.Context(), []string{"lag", "--brokers", w.brokers[0]}, strings.NewReader(""), &all, &e))
	require.Contains(t, all.String(), "orders.g.dlq")

	// The warning before a replay: its copies would wait.
	_, said = w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Contains(t, said, "no member of group g reads orders.g.retry")
}

// A real Kafka answers as the one of these tests does: offsets, members, the deletion of records.
func TestOperationsOnKafka(t *testing.T) {
	w := newRealDeadLetterWorld(t, memstore.New(memstore.Volatile()))
	w.fail(w.events("e", 8)...)
	for _, m := range w.deadLetters() {
		require.NoError(t, w.store.(dedup.Operator).Discard(t.Context(), w.key(headerText(m, deadletter.HeaderEventID)), time.Hour, "no"))
	}
	require.NoError(t, w.open().purge(t.Context(), false))
	require.Empty(t, w.deadLetters())
	require.EqualValues(t, 0, w.size(w.topic+".g.dlq"))

	w.group = w.topic // of this test only
	w.fill(w.topic, 60, 0)
	code, _, said := w.command("rewind", "--to", "30m")
	require.Equal(t, exitFound, code, said)
	require.Contains(t, said, "no committed offsets")
	w.commit(w.topic, 55)
	code, _, said = w.command("rewind", "--to", "30m30s", "--yes")
	require.Zero(t, code, said)
	require.EqualValues(t, 29, w.committed(w.topic))

	w.join(w.topic)
	code, out, said := w.command("lag", "-o", "json")
	require.Zero(t, code, said)
	lag := int64(0)
	for _, r := range decodeJSON[[]lagRow](t, strings.NewReader(out)) {
		lag += *r.Lag
		require.Contains(t, r.Member, "worker-7")
	}
	require.EqualValues(t, 31, lag)
	code, _, said = w.command("rewind", "--to", "50m", "--yes")
	require.Equal(t, exitFound, code, said)
	require.Contains(t, said, "worker-7")
}

// A rewind beyond the memory of the store warns: older events meet the policy of their handler
// (rule 8).
func TestRewindWarnsOfTheHorizon(t *testing.T) {
	w := newDeadLetterWorld(t)
	url := testenv.Postgres(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	w.fill("orders", 60, 0)
	rewind := func() string {
		w.commit("orders", 60)
		code, _, said := w.command(withoutPasswords(t, []string{"rewind", "--to", "30m", "--yes", "--store", url})...)
		require.Zero(t, code, said)
		return said
	}
	require.Contains(t, rewind(), "cannot read how far the store remembers", "no tables")
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	require.NotContains(t, rewind(), "warning")
	_, err = pool.Exec(t.Context(), "INSERT INTO idem_horizons (scope, before) VALUES ('g', now() - interval '40 minutes')")
	require.NoError(t, err)
	require.NotContains(t, rewind(), "warning")
	_, err = pool.Exec(t.Context(), "UPDATE idem_horizons SET before = now() - interval '20 minutes'")
	require.NoError(t, err)
	require.Contains(t, rewind(), "but the store remembers since")
}
