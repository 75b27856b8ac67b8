package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/internal/testenv/rawkafka"
)

// Every verb that destroys puts on record that it was refused, too: in a line of its own, also
// where standard input is /dev/null, as it is for jobs.
func TestRefusalsAreOnRecord(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.events("e", 2)...)
	w.fill("orders", 10, time.Hour)
	w.commit("orders", 7)
	require.NoError(t, w.store.(dedup.Operator).Forget(t.Context(), w.key("e0")))
	require.NoError(t, w.store.(dedup.Operator).Discard(t.Context(), w.key("e0"), time.Hour, "no"))
	require.NoError(t, w.store.(dedup.Operator).Discard(t.Context(), w.key("e1"), time.Hour, "no"))
	ledgers := map[string]*openedStore{inMemory: {name: "memory", store: w.store}}
	for verb, args := range map[string][]string{
		"dlq replay": {"dlq", "replay", "-t", "orders"}, "dlq purge": {"dlq", "purge", "-t", "orders"}, "rewind": {"rewind", "--to", "2h"},
	} {
		null, err := os.Open(os.DevNull)
		require.NoError(t, err)
		defer null.Close()
		r := commandIn(t.Context(), t, ledgers, null, append(args, "--brokers", w.brokers[0], "-G", "g", "--store", inMemory)...)
		r.failed(t, exitFound, "not confirmed")
		var lines []string
		for _, line := range strings.Split(r.stderr, "\n") {
			if strings.HasPrefix(line, "{") {
				lines = append(lines, line)
			}
		}
		audits := auditLines(t, strings.Join(lines, "\n"))
		require.Len(t, audits, 1, "%s: %s", verb, r.stderr)
		require.Equal(t, verb, audits[0]["audit"])
		require.Equal(t, "refused", audits[0]["outcome"])
	}
}

// A replay without a dead letter has a result in JSON too.
func TestReplayOfNothingIsJSON(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("e", ""))
	s := w.open()
	require.NoError(t, s.replay(t.Context(), w.producer, deadletters.Filter{ID: "no"}, replayFlags{}))
	got := decodeJSON[deadletters.Result](t, s.out)
	require.Equal(t, 1, got.Scanned)
	require.Zero(t, got.Replayed)
	require.Equal(t, "done", got.Outcome)
}

// Text of others reaches the terminal escaped, in errors and in notes, and on one line (G-04).
func TestErrorsAreEscaped(t *testing.T) {
	w := newDeadLetterWorld(t)
	r := command(t, "lag", "--brokers", "\x1b[31mred:1")
	r.failed(t, exitFailure, "\\u001b[31mred")
	require.NotContains(t, r.stderr, "\x1b")
	s := w.open()
	s.app.note("warning: %s", "a\x1b[2J\nb")
	require.Equal(t, "warning: a\\u001b[2J; b\n", s.err.String())
}

// Instants before 1970 are the beginning of the log, not the special values that negative times are
// in Kafka.
func TestRewindBeforeTheEpoch(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fill("orders", 10, time.Hour)
	for _, to := range []string{"1960-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.998Z"} {
		w.commit("orders", 7)
		code, _, said := w.command("rewind", "--to", to, "--yes")
		require.Zero(t, code, said)
		require.Zero(t, w.committed("orders"), to)
	}
}

// A group that is misspelt in a monitoring job is not one that is never behind.
func TestLagOfNoGroup(t *testing.T) {
	w := newDeadLetterWorld(t)
	code, _, said := w.command("lag", "--max", "10")
	require.Equal(t, exitFound, code)
	require.Contains(t, said, "neither members nor committed offsets")
}

// A committed offset beyond the end of the log is not a lag of zero.
func TestLagBeyondTheEnd_K28(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fill("orders", 20, 0)
	w.commit("orders", 1000)
	const warning = "is beyond the end 20: was the topic made anew?"
	code, out, said := w.command("lag", "-o", "json")
	require.Zero(t, code, said)
	require.Contains(t, said, "warning: group g: the committed offset 1000 of orders/")
	require.Contains(t, said, warning)
	beyond := 0
	for _, r := range decodeJSON[[]lagRow](t, strings.NewReader(out)) {
		if r.Beyond {
			beyond++
			require.EqualValues(t, 20, *r.Lag)
			require.NotNil(t, r.Oldest, "the age is that of the first record")
		}
	}
	require.Equal(t, 1, beyond)

	code, _, said = w.command("lag", "--max", "1000")
	require.Equal(t, exitFound, code, said)
	require.Contains(t, said, warning)

	w.commit("orders", 20)
	code, _, said = w.command("lag", "--max", "0")
	require.Zero(t, code, said)
	require.NotContains(t, said, "warning")
}

// A record with a time that JSON does not have has no age. The lag is known and judged all the same,
// and it is judged too if the rows cannot be printed.
func TestLagOfATimeBeyondTheYear9999(t *testing.T) {
	w := newDeadLetterWorld(t)
	for range 2 {
		rawkafka.ProduceAt(t, w.brokers, "orders", 1.7e15, "{}")
	}
	w.commit("orders", 0)
	code, out, said := w.command("lag", "-o", "json", "--max", "1")
	require.Equal(t, exitFound, code, said)
	require.Contains(t, said, "2 records behind")
	rows := decodeJSON[[]lagRow](t, strings.NewReader(out))
	require.EqualValues(t, 2, *rows[0].Lag)
	require.Nil(t, rows[0].Oldest)
	_, out, _ = w.command("lag")
	require.Regexp(t, `orders +0 +source +0 +2 +2 +-\s`, out)

	var e bytes.Buffer
	code = runCommand(t.Context(), []string{"lag", "--brokers", w.brokers[0], "-G", w.group, "--max", "1"}, strings.NewReader(""), fullDisk{}, &e)
	require.Equal(t, exitFound, code, e.String())
	require.Contains(t, e.String(), "2 records behind")
	require.Contains(t, e.String(), errBroken.Error())
	code = runCommand(t.Context(), []string{"lag", "--brokers", w.brokers[0], "-G", w.group}, strings.NewReader(""), fullDisk{}, &e)
	require.Equal(t, exitFailure, code)
}

// fullDisk takes no output.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errBroken }

// A dead-letter topic that the user may not describe does not count as empty (rule 46).
func TestLagOfHiddenDeadLetters(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		topics := req.(*kmsg.MetadataRequest).Topics
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		if len(topics) != 1 || *topics[0].Topic != "orders.g.dlq" {
			return nil, nil, false
		}
		one := kmsg.NewMetadataResponseTopic()
		one.Topic, one.ErrorCode = topics[0].Topic, kerr.TopicAuthorizationFailed.Code
		resp.Topics = append(resp.Topics, one)
		return resp, nil, true
	})
	w := newDeadLetterWorldAt(t, cluster.ListenAddrs(), memstore.New(memstore.Volatile()), "orders")
	w.fill("orders", 3, 0)
	w.commit("orders", 2)
	code, out, said := w.command("lag", "-o", "json")
	require.Zero(t, code, said)
	require.Contains(t, said, "warning: the number of dead letters is not known: topic orders.g.dlq")
	require.Contains(t, said, "grant Describe")
	rows := decodeJSON[[]lagRow](t, strings.NewReader(out))
	at := slices.IndexFunc(rows, func(r lagRow) bool { return r.Topic == "orders.g.dlq" })
	require.GreaterOrEqual(t, at, 0)
	require.Nil(t, rows[at].Lag)
	require.NotEmpty(t, rows[at].Problem)
	_, out, _ = w.command("lag")
	require.Regexp(t, `orders\.g\.dlq +- +dead-letters +- +unknown +unknown`, out)
	code, _, said = w.command("lag", "--max-dead-letters", "1000")
	require.Equal(t, exitFailure, code, said)
	require.Contains(t, said, "--max-dead-letters")
	code, _, said = w.command("lag", "--max", "1000")
	require.Zero(t, code, said)
}

// An import reads while it writes: a URL for workers with one connection does not stop it.
func TestImportWithOneConnection(t *testing.T) {
	url := testenv.Postgres(t)
	command(t, "migrate", "up", "--store", url).ok(t)
	one := url + "&pool_max_conns=1"
	if !strings.Contains(url, "?") {
		one = url + "?pool_max_conns=1"
	}
	r := command(t, "import", "-G", "billing", "--store", one, "-y", "-o", "json", "--type", "paid",
		"--from-table", "SELECT n AS event_id FROM generate_series(1, 1500) n")
	r.ok(t)
	var c imported
	r.json(t, &c)
	require.Equal(t, int64(1500), c.Added)
}

// Bytes that are no UTF-8, and line separators that are no control characters, do not reach a
// terminal either (G-04).
func TestPlainEscapesBytes(t *testing.T) {
	require.Equal(t, "a\uFFFD2Jb\\u2028c", plain("a\x9b2Jb\u2028c"))
	require.Equal(t, "\uFFFD\\u001b", plain("\xff\x1b"))
	require.Equal(t, "größe ✓", plain("größe ✓"))
	require.Equal(t, "a:\n b \\u0007", plainLines("a:\n\tb\t\a"))
	require.Equal(t, "a: b \\u0007; c: d", oneLine("\na:\n\tb\t\a\r\n\n\tc:\n\td\n"))
	require.Empty(t, oneLine(" \n\t"))
}
