package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// event skip reads the identity of the record that --topic, --partition and --offset name, and
// gives that event up, and no other.
func TestEventSkip_ByRecord(t *testing.T) {
	w := newDeadLetterWorld(t)
	s, known := memory()
	publish := func(value string, headers ...idem.Header) int64 {
		t.Helper()
		require.NoError(t, w.producer.Produce(t.Context(), &idem.Message{Topic: "orders", Key: []byte("k"), Value: []byte(value), Headers: headers}))
		return int64(len(w.read("orders")) - 1)
	}
	standard := publish(`{"event_id":"e1","type":"order"}`)
	elsewhere := publish(`{"order":{"id":"o1"},"kind":"order","event_id":"wrong","type":"wrong"}`, idem.Header{Key: "tenant", Value: []byte("acme")})
	nameless := publish(`{"type":"order"}`)
	partition := w.read("orders")[0].Partition
	for _, m := range w.read("orders") {
		require.Equal(t, partition, m.Partition, "one Kafka key")
	}
	skip := func(offset int64, more ...string) ran {
		args := append([]string{
			"skip", "--topic", "orders", "--partition", fmt.Sprint(partition), "--offset", fmt.Sprint(offset),
			"--brokers", strings.Join(w.brokers, ","), "--reason", "by hand", "-y",
		}, more...)
		return commandWith(t, known, "", onMemory(args...)...)
	}

	r := skip(standard)
	require.Contains(t, r.ok(t), "skipped")
	line := r.audits(t)[0]
	for field, want := range map[string]any{
		"audit": "event skip", "outcome": "done", "event_id": "e1", "type": "order", "reason": "by hand",
		"topic": "orders", "record": fmt.Sprintf("%d/%d", partition, standard),
	} {
		require.Equal(t, want, line[field], field)
	}
	require.Equal(t, dedup.Dead, toldNext(t, s, inScope("order", "e1")))

	skip(elsewhere, "--id-json", "order.id", "--type-json", "kind", "--tenant-header", "tenant").ok(t)
	records, err := s.Inspect(t.Context(), dedup.Key{Scope: "billing", Tenant: "acme", Type: "order", ID: "o1"})
	require.NoError(t, err)
	require.True(t, records[0].Discarded())
	records, err = s.Inspect(t.Context(), inScope("wrong", "wrong"))
	require.NoError(t, err)
	require.Empty(t, records)
	skip(elsewhere, "--type", "fixed").ok(t)
	require.Equal(t, dedup.Dead, toldNext(t, s, inScope("fixed", "wrong")))

	skip(nameless).failed(t, exitFound, "has no ID that this command can read", "--id-json")
	skip(nameless+1).failed(t, exitFound, "there is no record", "the offsets from 0 to 2")

	finish(t, s, claim(t, s, inScope("order", "done"), dedupOrigin(1)), "")
	skip(publish(`{"event_id":"done","type":"order"}`)).failed(t, exitFound, "handled already")
}

// A topic or a partition that is not there is no record either, and a broker that is away is a
// failure.
func TestEventSkip_ByRecordOfNoTopic(t *testing.T) {
	w := newDeadLetterWorld(t)
	_, known := memory()
	for _, place := range [][2]string{{"nowhere", "0"}, {"orders", "7"}} {
		r := commandWith(t, known, "", onMemory("skip", "--topic", place[0], "--partition", place[1], "--offset", "0",
			"--brokers", strings.Join(w.brokers, ","), "-y")...)
		require.NotEqual(t, exitOK, r.code)
		require.Len(t, r.audits(t), 1)
		require.NotEqual(t, "done", r.audits(t)[0]["outcome"])
		require.Equal(t, place[0], r.audits(t)[0]["topic"])
	}
}
