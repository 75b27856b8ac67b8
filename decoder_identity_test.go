package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

var secret = []byte("0123456789abcdef")

// fromData are the options that find everything in the decoded value.
func fromData(d idem.Decoder) []idem.Option {
	field := func(name string, find func(payload) string) idem.Extractor {
		return idem.FromData(name, d, func(p payload) (string, error) {
			if v := find(p); v != "" {
				return v, nil
			}
			return "", fmt.Errorf("%s: %w", name, idem.ErrNotFound)
		})
	}
	return []idem.Option{
		idem.DecodeWith(d), idem.ID(field("event_id", func(p payload) string { return p.EventID })),
		idem.Type(field("type", func(p payload) string { return p.Type })),
		idem.Tenant(field("amount", func(p payload) string { return fmt.Sprint(p.Amount) })),
		idem.FingerprintOf(secret, field("amount", func(p payload) string { return fmt.Sprint(p.Amount) })),
	}
}

// schemaOnly is a message without identity in headers.
func schemaOnly(id string, offset int64, schema string) *idem.Message {
	m := message(id, offset)
	m.Headers = []idem.Header{{Key: "schema", Value: []byte(schema)}}
	return m
}

// Type, ID, tenant, fingerprint and data of a delivery come from one call of the decoder.
func TestFromData_DecodesOnce(t *testing.T) {
	decoderForms(t, func(t *testing.T, b *bench, on func(func(idem.Event[payload]), ...idem.Option)) {
		d := newSchemas()
		var got []string
		on(func(e idem.Event[payload]) {
			require.Equal(t, "7", e.Tenant)
			require.Equal(t, "paid", e.Type)
			got = append(got, e.ID)
		}, fromData(d)...)
		n, err := b.start().HandleBatch(t.Context(), []*idem.Message{
			schemaOnly("e1", 1, "7"), schemaOnly("e2", 2, "7"), schemaOnly("e1", 3, "7"),
		})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, []string{"e1", "e2"}, got)
		require.Equal(t, 3, d.calls)
	})
}

// While the service is down, an event without a known identity waits, as any other.
func TestFromData_Unavailable(t *testing.T) {
	decoderForms(t, func(t *testing.T, b *bench, on func(func(idem.Event[payload]), ...idem.Option)) {
		d := newSchemas().downFor(1000)
		d.ping = func() error { return errRegistryDown }
		var got []string
		on(func(e idem.Event[payload]) {
			require.Equal(t, 1, e.Attempt)
			got = append(got, e.ID)
		}, fromData(d)...)
		began := time.Now()
		n, err := b.start().HandleBatch(t.Context(), []*idem.Message{schemaOnly("e1", 1, "7"), schemaOnly("e2", 2, "7")})
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, []string{"e1", "e2"}, got)
		require.Greater(t, time.Since(began), 15*time.Minute, "longer than RetryPolicy.Outage")
		require.Empty(t, b.sent.deadLetters())
	})
}

// An event that cannot be decoded has no identity: the dead letter is undecodable, with the
// decoder's words, and leaves no record.
func TestFromData_Undecodable(t *testing.T) {
	decoderForms(t, func(t *testing.T, b *bench, on func(func(idem.Event[payload]), ...idem.Option)) {
		d := newSchemas()
		d.answer = func(schema string) error { return errors.New("schema " + schema + " is unknown") }
		on(func(idem.Event[payload]) { t.Error("it ran") }, fromData(d)...)
		require.NoError(t, b.start().Handle(t.Context(), schemaOnly("e1", 1, "404")))
		require.Len(t, b.sent.deadLetters(), 1)
		l := b.sent.deadLetters()[0]
		require.Contains(t, []string{string(idem.ClassUndecodable)}, headerOf(l, deadletter.HeaderErrorClass))
		require.Contains(t, headerOf(l, deadletter.HeaderError), "schema 404 is unknown")
		require.Zero(t, b.count("claim: fresh"))
	})
}

// Copies with different decoded parts are a conflict. Other differences do not count.
func TestFingerprintOf(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		d := newSchemas()
		b.on(succeed, idem.DecodeWith(d), idem.WhenConflict(idem.DeadLetterConflict),
			idem.FingerprintOf(secret, idem.FromData("amount", d, func(p payload) (string, error) { return fmt.Sprint(p.Amount), nil })))
		b.start()
		same, other := withSchema("e1", 2, "7"), withSchema("e1", 3, "7")
		same.Value = []byte(`{"event_id":"e1", "type":"paid", "amount":7, "sent":"now"}`)
		other.Value = []byte(`{"event_id":"e1","type":"paid","amount":8}`)
		for _, m := range []*idem.Message{withSchema("e1", 1, "7"), same} {
			require.NoError(t, b.p.Handle(t.Context(), m))
		}
		require.Empty(t, b.sent.deadLetters())
		require.NoError(t, b.p.Handle(t.Context(), other))
		require.Len(t, b.sent.deadLetters(), 1)
		require.Equal(t, string(idem.ClassConflict), headerOf(b.sent.deadLetters()[0], deadletter.HeaderErrorClass))
	})
}

// A record without a Kafka key keeps its order key, and its place in a queue, when the cache of the
// decoder is lost.
func TestFromData_KeyOrderedWithoutKafkaKey(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		d := newSchemas()
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			clear(d.known)
			if e.Attempt == 1 {
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, append(fromData(d), once, idem.KeyOrdered(time.Second))...)
		b.start()
		m := schemaOnly("e1", 1, "7")
		m.Key = nil
		require.Empty(t, b.p.OrderKey(m), "not known without the service")
		require.NoError(t, b.p.Handle(t.Context(), m))
		key := dedup.Key{Scope: "g", Type: "paid", Tenant: "7", ID: "e1"}
		_, head, ok, err := b.store.FindDeferred(t.Context(), "g", "orders", key)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "e"+key.String(), head.Queue)
		defer b.runsDeferred()()
		time.Sleep(time.Minute)
		require.Equal(t, 1, b.count("done e1"), "%v", b.all())
		require.Empty(t, b.sent.deadLetters())
	})
}

func TestFromData_Mistakes(t *testing.T) {
	d := newSchemas()
	find := func(payload) (string, error) { return "x", nil }
	for _, e := range []idem.Extractor{
		idem.FromData("", d, find), idem.FromData("x", nil, find), idem.FromData[payload]("x", d, nil),
		idem.FromData("x", (*schemas)(nil), find), idem.Joined(idem.FromKey(), idem.FromData("", d, find)),
	} {
		b := newBench(t)
		b.on(succeed, idem.ID(e))
		_, err := idem.NewProcessor(b.router, b.cfg)
		require.ErrorContains(t, err, "ID: the extractor is not set")
	}
	for _, o := range []idem.Option{
		idem.FingerprintOf(secret[:15], idem.FromKey()), idem.FingerprintOf(secret), idem.FingerprintOf(secret, idem.Extractor{}),
	} {
		b := newBench(t)
		b.on(succeed, o)
		_, err := idem.NewProcessor(b.router, b.cfg)
		require.ErrorContains(t, err, "FingerprintOf: ")
	}
	e := idem.FromData("x", d, find)
	require.Equal(t, `decoded("x")`, e.String())
	v, err := e.Extract(schemaOnly("e1", 1, "7"))
	require.NoError(t, err)
	require.Equal(t, "x", v)
	_, err = e.Extract(&idem.Message{})
	require.ErrorIs(t, err, idem.ErrNotFound)
}
