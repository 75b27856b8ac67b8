package idem_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
)

// K-40: a record may lack its key, its value and its headers, may name a header twice, and may have
// an empty ID. Each such record is handled, skipped or dead-lettered. No such record makes Idem
// panic.
func TestMessage_AnyParts_K40(t *testing.T) {
	rng, _ := newSeed(t)
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		p := b.start()
		for i := range 5000 {
			require.NoError(t, p.Handle(t.Context(), anyMessage(rng, i)), i)
		}
		classes := make(map[string]int)
		for _, l := range b.sent.deadLetters() {
			classes[headerOf(l, deadletter.HeaderErrorClass)]++
		}
		for _, class := range []idem.Class{idem.ClassNoID, idem.ClassNoType, idem.ClassNotJSON, idem.ClassAmbiguous} {
			require.Positive(t, classes[string(class)], "%s in %v", class, classes)
		}
		require.Zero(t, classes[string(idem.ClassPanic)], classes)
		require.Positive(t, b.count("run 1"))
	})
}

// anyMessage is a record with parts that are missing, empty, repeated or no text.
func anyMessage(rng *rand.Rand, i int) *idem.Message {
	pick := func(of ...string) []byte {
		s := of[rng.IntN(len(of))]
		if s == "nil" {
			return nil
		}
		return []byte(s)
	}
	id := fmt.Sprint("e", i)
	m := &idem.Message{
		Topic: "orders", Partition: 1, Offset: int64(i), Key: pick("nil", "", "k", "\x00\xff"),
		Value: pick("nil", "", "{}", "null", "[]", `{"event_id":"","type":"paid"}`, `{"event_id":null,"type":null}`, "\xff\x00",
			fmt.Sprintf(`{"event_id":%q,"type":"paid"}`, id), fmt.Sprintf(`{"event_id":%q,"type":"paid"}`, id)),
	}
	for range rng.IntN(4) {
		name := pick("event-id", "event-type", "ce_id", "ce_source", "idem-attempts", "", "\xff")
		m.Headers = append(m.Headers, idem.Header{Key: string(name), Value: pick("nil", "", id, "paid", "\xff")})
	}
	return m
}

// G-02: the number of headers has no limit of ours. An event with ten thousand of them runs, and
// its dead letter has them all.
func TestMessage_ManyHeaders_G02(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(failing(1, idem.Permanent(errBoom)))
		p := b.start()
		for i := range 2 {
			m := message(fmt.Sprint("e", i), int64(i))
			for n := range 10_000 {
				m.Headers = append(m.Headers, idem.Header{Key: fmt.Sprint("h", n), Value: []byte("v")})
			}
			require.NoError(t, p.Handle(t.Context(), m))
		}
		require.Len(t, b.sent.deadLetters(), 1)
		require.Greater(t, len(b.sent.deadLetters()[0].Headers), 10_000)
		require.Equal(t, 2, b.count("run 1"))
	})
}

// Rule 54: the default extractor reads neither CloudEvents in structured mode nor change events of
// Debezium. FromJSON reaches their fields.
func TestIdentity_Envelopes_Rule54(t *testing.T) {
	for name, c := range map[string]struct {
		value string
		opts  []idem.Option
		key   string
	}{
		"structured mode": {
			value: `{"specversion":"1.0","id":"7","source":"/orders","type":"paid","data":{}}`,
			opts:  []idem.Option{idem.ID(idem.Joined(idem.FromJSON("source"), idem.FromJSON("id")))},
			key:   "/orders:7",
		},
		"Debezium": {
			value: `{"payload":{"op":"c","after":{"id":7},"source":{"lsn":12}},"type":"paid"}`,
			opts:  []idem.Option{idem.ID(idem.Joined(idem.FromJSON("payload.after.id"), idem.FromJSON("payload.source.lsn")))},
			key:   "7:12",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &idem.Message{Topic: "orders", Value: []byte(c.value)}
			inBubble(t, func(t *testing.T, b *bench) {
				b.on(succeed)
				require.NoError(t, b.start().Handle(t.Context(), m))
				require.Len(t, b.sent.deadLetters(), 1)
				require.Equal(t, string(idem.ClassNoID), headerOf(b.sent.deadLetters()[0], deadletter.HeaderErrorClass))
			})
			inBubble(t, func(t *testing.T, b *bench) {
				b.on(func(_ context.Context, e idem.Event[payload]) error {
					b.add("id %s", e.ID)
					return nil
				}, c.opts...)
				require.NoError(t, b.start().Handle(t.Context(), m))
				require.Empty(t, b.sent.deadLetters())
				require.Equal(t, 1, b.count("id "+c.key), b.all())
			})
		})
	}
}

// Rule 55: an origin is topic, partition and offset. A copy of a dead event counts as the record
// that was given up if all three are equal, also if its topic was made anew meanwhile.
func TestOrigin_OfARecreatedTopic_Rule55(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(failing(1, idem.Permanent(errBoom)))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 5)))
		require.Len(t, b.sent.deadLetters(), 1)
		again := message("e1", 5)
		again.Time = again.Time.AddDate(0, 0, 1)
		require.NoError(t, p.Handle(t.Context(), again))
		require.Len(t, b.sent.deadLetters(), 1, "skipped as the same record")
		require.NoError(t, p.Handle(t.Context(), message("e1", 6)))
		require.Len(t, b.sent.deadLetters(), 2, "any other copy is kept")
		require.Equal(t, string(idem.ClassAlreadyDead), headerOf(b.sent.deadLetters()[1], deadletter.HeaderErrorClass))
	})
}
