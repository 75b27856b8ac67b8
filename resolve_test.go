package idem_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
)

func headers(kv ...string) (hs []idem.Header) {
	for i := 0; i < len(kv); i += 2 {
		hs = append(hs, idem.Header{Key: kv[i], Value: []byte(kv[i+1])})
	}
	return hs
}

// Bad input is dead-lettered byte for byte with its reason, the partition moves on, and the store
// is not touched (rule 6 e).
func TestBadInput(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name    string
		value   string
		headers []idem.Header
		class   idem.Class
	}{
		{"not JSON", `{"event_id":`, nil, idem.ClassNotJSON},
		{"not JSON, no object", `payment of order 1`, nil, idem.ClassNotJSON},
		{"text after an array", `[1] 2`, nil, idem.ClassNotJSON},
		{"JSON that is no object", `[{"event_id":"1","type":"paid"}]`, nil, idem.ClassNoType},
		{"JSON text, type in a header", `"1"`, headers("event-type", "paid"), idem.ClassNoID},
		{"not JSON, type in a header", "\x00\x01", headers("event-type", "paid"), idem.ClassNotJSON},
		{"not JSON, ID in a header", "\x00\x01", headers("event-id", "1"), idem.ClassNotJSON},
		{"not JSON, ID and type in headers", `{"amount":`, headers("event-id", "1", "event-type", "paid"), idem.ClassUndecodable},
		{"text after the object", `{"event_id":"1","type":"paid"} x`, nil, idem.ClassUndecodable},
		{"empty value", ``, nil, idem.ClassNoType},
		{"empty value, ID and type in headers", ``, headers("event-id", "1", "event-type", "paid"), idem.ClassUndecodable},
		{"no ID", `{"type":"paid"}`, nil, idem.ClassNoID},
		{"null ID", `{"type":"paid","event_id":null}`, nil, idem.ClassNoID},
		{"object as ID", `{"type":"paid","event_id":{}}`, nil, idem.ClassNoID},
		{"fraction as ID (rule 7)", `{"type":"paid","event_id":1.5}`, nil, idem.ClassAmbiguous},
		{"two IDs that disagree (rule 7)", `{"type":"paid","event_id":"1"}`, headers("event-id", "2"), idem.ClassAmbiguous},
		{"CloudEvents against header (rule 7)", `{"type":"paid"}`, headers("event-id", "2", "ce_id", "3"), idem.ClassAmbiguous},
		{"two types that disagree", `{"type":"paid","event_id":"1"}`, headers("event-type", "refunded"), idem.ClassAmbiguous},
		{"duplicate header", `{"type":"paid"}`, headers("event-id", "1", "event-id", "2"), idem.ClassAmbiguous},
		{"duplicate header, equal", `{"type":"paid"}`, headers("event-id", "1", "event-id", "1"), idem.ClassAmbiguous},
		{"field twice", `{"type":"paid","event_id":"1","event_id":"2"}`, nil, idem.ClassAmbiguous},
		{"1 MiB ID (P-22)", `{"type":"paid","event_id":"` + long + `"}`, nil, idem.ClassNoID},
		{"NUL in the ID (P-22)", `{"type":"paid","event_id":"a\u0000b"}`, nil, idem.ClassNoID},
		{"ID is not UTF-8 (P-22)", `{"type":"paid"}`, headers("event-id", "a\xffb"), idem.ClassNoID},
		{"bytes that are not UTF-8 in a JSON ID (P-22)", "{\"type\":\"paid\",\"event_id\":\"a\xff\"}", nil, idem.ClassNoID},
		{"half a surrogate in a JSON ID (P-22)", `{"type":"paid","event_id":"a\ud800"}`, nil, idem.ClassNoID},
		{"NUL in a CloudEvents ID (P-22)", `{"type":"paid"}`, headers("ce_id", "a\x00", "ce_source", "/s"), idem.ClassNoID},
		{"long CloudEvents ID (P-22)", `{"type":"paid"}`, headers("ce_id", long, "ce_source", "/s"), idem.ClassNoID},
		{"CloudEvents source that is not UTF-8", `{"type":"paid"}`, headers("ce_id", "a", "ce_source", "\xff"), idem.ClassNoID},
		{"wrong shape", `{"type":"paid","event_id":"1","amount":"many"}`, nil, idem.ClassUndecodable},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				idem.On(b.router, "paid", func(context.Context, idem.Event[struct{ Amount int }]) error {
					b.add("run")
					return nil
				})
				p := b.start()
				m := &idem.Message{Topic: "orders", Key: []byte{0, 0xff}, Value: []byte(c.value), Headers: c.headers, Time: time.UnixMilli(1234567)}
				require.NoError(t, p.Handle(t.Context(), m))
				require.Len(t, b.sent.deadLetters(), 1)
				l := b.sent.deadLetters()[0]
				require.Equal(t, "orders.g.dlq", l.Topic)
				require.Equal(t, string(c.class), headerOf(l, deadletter.HeaderErrorClass))
				require.NotEmpty(t, headerOf(l, deadletter.HeaderError))
				require.LessOrEqual(t, len(headerOf(l, deadletter.HeaderError)), 1024)
				require.Equal(t, m.Key, l.Key)
				require.True(t, m.Value == nil == (l.Value == nil) && bytes.Equal(m.Value, l.Value))
				require.Equal(t, m.Time, l.Time)
				require.Equal(t, append([]idem.Header{}, c.headers...), l.Headers[:len(c.headers)])
				journal := []string{"dead letter: " + string(c.class)} // the store was not touched
				if c.class == idem.ClassUndecodable {
					journal = []string{"claim: fresh", journal[0], "complete: dead"}
				}
				require.Equal(t, journal, b.all())
			})
		})
	}
}

func TestDeadLetter_SaysWhereItComesFrom(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(failing(1, idem.Permanent(errBoom)), idem.Tenant(idem.FromHeader("tenant")))
		p := b.start()
		m := message("e1", 42)
		m.Headers = headers("tenant", "acme", "idem-attempts", "999", "idem-origin-topic", "admin", "x", "")
		require.NoError(t, p.Handle(t.Context(), m))
		l := b.sent.deadLetters()[0]
		for name, want := range map[string]string{
			deadletter.HeaderTopic: "orders", deadletter.HeaderPartition: "1", deadletter.HeaderOffset: "42", deadletter.HeaderTime: "2026-01-02T03:04:05.000Z",
			deadletter.HeaderGroup: "g", deadletter.HeaderScope: "g", deadletter.HeaderTenant: "acme", deadletter.HeaderEventID: "e1", deadletter.HeaderEventType: "paid",
			deadletter.HeaderAttempts: "1", deadletter.HeaderErrorClass: "permanent", deadletter.HeaderError: "permanent: boom",
			// Foreign headers with our prefix are neither trusted nor lost (G-03, rule 44).
			"idem-original-idem-attempts": "999", "idem-original-idem-origin-topic": "admin",
		} {
			require.Equal(t, want, headerOf(l, name), name)
		}
		require.NotEmpty(t, headerOf(l, deadletter.HeaderFirstFailure))
	})
}

// T-04: a dead letter that is published again and given up again must not grow with each round.
func TestDeadLetter_OfADeadLetterDoesNotGrow(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		p := b.start()
		m := &idem.Message{Topic: "orders", Value: []byte("garbage"), Headers: headers("a", "1", "idem-attempts", "999", "a", "2")}
		var sizes []int
		for range 5 {
			require.NoError(t, p.Handle(t.Context(), m))
			letters := b.sent.deadLetters()
			m = letters[len(letters)-1]
			m.Topic = "orders"
			sizes = append(sizes, len(m.Headers))
			require.Equal(t, headers("a", "1"), m.Headers[:1])
		}
		require.Equal(t, sizes[1], sizes[4], "%v", sizes)
		require.Equal(t, "0", headerOf(m, "idem-original-idem-attempts"), "what the dead letter before said")
	})
}

// T-04: a dead letter that the broker will never take is sent without its value, so that the
// partition moves on.
// Rule 45: a dead letter without its value is the last resort, with a warning, and is counted.
func TestDeadLetter_TooLargeBecomesAPointer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		w := &watcher{}
		b.cfg.Observers = []observe.Observer{w}
		b.sent.fail = func(m *idem.Message) error {
			if len(m.Value) > 100 {
				return idem.ErrTooLarge
			}
			return nil
		}
		b.on(succeed)
		p := b.start()
		m := &idem.Message{Topic: "orders", Offset: 8, Key: []byte("k"), Value: bytes.Repeat([]byte("x"), 1000), Headers: headers("a", "b")}
		require.NoError(t, p.Handle(t.Context(), m))
		l := b.sent.deadLetters()[0]
		require.Nil(t, l.Value)
		require.Equal(t, "1000", headerOf(l, deadletter.HeaderValueOmitted))
		require.Equal(t, "8", headerOf(l, deadletter.HeaderOffset))
		require.Contains(t, b.log.String(), `level=WARN msg="dead letter too large`)
		require.Len(t, w.deadLetters, 1)
		require.True(t, w.deadLetters[0].Omitted)
		m = &idem.Message{Topic: "orders", Offset: 9, Value: []byte("x")}
		require.NoError(t, p.Handle(t.Context(), m))
		require.Len(t, w.deadLetters, 2)
		require.False(t, w.deadLetters[1].Omitted)
		require.Equal(t, []byte("x"), b.sent.deadLetters()[1].Value)
	})
}

func TestIdentity(t *testing.T) {
	for _, c := range []struct {
		name, want string
		m          idem.Message
		f          idem.Extractor
	}{
		{"JSON field", "1", idem.Message{Value: []byte(`{"x":[1,{"event_id":9}],"event_id":"1"}`)}, idem.StandardID()},
		{"number beyond 2^53 as its text (rule 7)", "9007199254740993", idem.Message{Value: []byte(`{"event_id":9007199254740993}`)}, idem.StandardID()},
		{"header", "h", idem.Message{Headers: headers("event-id", "h")}, idem.StandardID()},
		{"header of a value that is not JSON", "h", idem.Message{Value: []byte{1, 2}, Headers: headers("event-id", "h")}, idem.StandardID()},
		{"all agree", "h", idem.Message{Value: []byte(`{"event_id":"h"}`), Headers: headers("event-id", "h", "ce_id", "h")}, idem.StandardID()},
		{"CloudEvents: source and id (rule 7)", "joined:/orders:7", idem.Message{Headers: headers("ce_id", "7", "ce_source", "/orders")}, idem.StandardID()},
		{"CloudEvents: source and id, as before", "/orders:7", idem.Message{Headers: headers("ce_id", "7", "ce_source", "/orders")}, idem.LegacyStandardID()},
		{"CloudEvents without source", "7", idem.Message{Headers: headers("ce_id", "7")}, idem.StandardID()},
		{"a source of an ID that is no CloudEvent's", "7", idem.Message{Headers: headers("event-id", "7", "ce_id", "", "ce_source", "/orders")}, idem.StandardID()},
		{"plain ID in the words of a joined one", "plain:joined:/orders:7", idem.Message{Headers: headers("event-id", "joined:/orders:7")}, idem.StandardID()},
		{"kafka key", "k", idem.Message{Key: []byte("k")}, idem.FromKey()},
		{"nested", "7", idem.Message{Value: []byte(`{"order":{"id":7}}`)}, idem.FromJSON("order.id")},
		{"composite", "12345:charge", idem.Message{Key: []byte("12345")}, idem.Joined(idem.FromKey(), idem.Fixed("charge"))},
		{"composite is injective (R-17)", "a%3Ab:c", idem.Message{Key: []byte("a:b")}, idem.Joined(idem.FromKey(), idem.Fixed("c"))},
		{"fallback", "k", idem.Message{Key: []byte("k")}, idem.FirstOf(idem.StandardID(), idem.FromKey())},
		{"hash", dedup.Hash("v"), idem.Message{Value: []byte("v")}, idem.Hashed(idem.FromValue())},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.f.Extract(&c.m)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	_, err := idem.FirstOf(idem.StandardID(), idem.FromKey()).Extract(&idem.Message{Key: []byte("k"), Headers: headers("event-id", "a", "event-id", "b")})
	require.ErrorIs(t, err, idem.ErrAmbiguous, "a fallback does not hide a contradiction")
	_, err = idem.Joined(idem.FromKey(), idem.FromHeader("x")).Extract(&idem.Message{Key: []byte("k")})
	require.ErrorIs(t, err, idem.ErrNotFound)
	_, err = idem.FromHeader("event-id").Extract(&idem.Message{Headers: headers("event-id", "")})
	require.ErrorIs(t, err, idem.ErrNotFound)
}

// Rule 7: two services that are both right must not lose each other's events.
func TestIdentity_CloudEventsOfTwoSourcesAreTwoEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		p := b.start()
		for i, source := range []string{"/orders", "/invoices"} {
			m := &idem.Message{Topic: "t", Offset: int64(i), Value: []byte(`{}`), Headers: headers("ce_type", "paid", "ce_source", source, "ce_id", "1")}
			require.NoError(t, p.Handle(t.Context(), m))
		}
		require.Equal(t, 2, b.count("run 1"))
	})
}

func FuzzIdentity(f *testing.F) {
	f.Add([]byte(`{"event_id":"1"}`), "event-id", []byte("1"))
	f.Add([]byte(`{"event_id":1e3}`), "ce_id", []byte{0xff})
	f.Add([]byte(nil), "", []byte(nil))
	find := idem.StandardID()
	f.Fuzz(func(t *testing.T, value []byte, name string, header []byte) {
		m := &idem.Message{Value: value, Headers: []idem.Header{{Key: name, Value: header}}}
		id, err := find.Extract(m)
		again, err2 := find.Extract(m)
		require.Equal(t, id, again)
		require.Equal(t, err == nil, err2 == nil)
		if err == nil {
			require.NotEmpty(t, id)
		}
		if err == nil && !utf8.ValidString(id) {
			require.Error(t, dedup.Key{ID: id}.Validate())
		}
	})
}

func TestUnhandled(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		skipped := &skips{}
		b.cfg.Observers = []observe.Observer{skipped}
		b.on(succeed)
		p := b.start()
		other := func(i int) *idem.Message {
			return &idem.Message{Topic: "orders", Value: fmt.Appendf(nil, `{"event_id":"%d","type":"renamed"}`, i)}
		}
		for i := range 600 {
			require.NoError(t, p.Handle(t.Context(), other(i)))
			require.NoError(t, p.Handle(t.Context(), message("e1", int64(i))))
		}
		require.Equal(t, 600, skipped.unhandled)
		require.False(t, p.Status().MostlyUnhandled, "half is not more than half")
		for i := range 10 {
			require.NoError(t, p.Handle(t.Context(), other(i)))
		}
		require.True(t, p.Status().MostlyUnhandled, "rule 47")
		require.Equal(t, 1, strings.Count(b.log.String(), "no handler for this event type"), "once per type")

		require.NoError(t, p.Handle(t.Context(), &idem.Message{Topic: "orders", Key: []byte("k")}))
		require.Equal(t, 1, skipped.tombstones, "rule 39")
		require.Empty(t, b.sent.deadLetters())
	})
}

type skips struct{ unhandled, tombstones int }

func (s *skips) ObserveSkipped(_ context.Context, e observe.SkippedEvent) {
	if e.Tombstone {
		s.tombstones++
	} else {
		s.unhandled++
	}
}

func TestNotFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		runs   int
		letter int
	}{{"nil skips", nil, 1, 0}, {"permanent", idem.Permanent(errBoom), 1, 1}, {"other", errBoom, 5, 1}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				runs := 0
				b.router.NotFound(func(context.Context, *idem.Message) error { runs++; return c.err })
				b.on(succeed)
				p := b.start()
				require.NoError(t, p.Handle(t.Context(), &idem.Message{
					Topic: "orders", Headers: headers("event-id", "e1"), Value: []byte(`{"type":"new"}`),
				}))
				require.Equal(t, c.runs, runs)
				require.Len(t, b.sent.deadLetters(), c.letter)
				for _, l := range b.sent.deadLetters() {
					e, err := deadletter.Parse(l)
					require.NoError(t, err)
					require.Equal(t, dedup.Key{}, e.Key)
					require.Equal(t, "e1 new", e.ID+" "+e.Type)
				}
			})
		})
	}
}

func TestTombstones(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			require.Nil(t, e.Message.Value)
			return nil
		}, idem.Tombstones())
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), &idem.Message{Topic: "orders", Headers: headers("event-id", "1", "event-type", "paid")}))
		require.Equal(t, 1, b.count("run 1"))
	})
}

func TestTypesFromSeveralSources(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		byHeader := b.router.With(idem.Type(idem.FromHeader("kind")), idem.ID(idem.FromKey()))
		idem.On(byHeader, "a", func(context.Context, idem.Event[payload]) error { b.add("a by header"); return nil })
		idem.On(byHeader, "b", func(context.Context, idem.Event[payload]) error { b.add("b by header"); return nil })
		idem.On(b.router, "a", func(context.Context, idem.Event[payload]) error { b.add("a by field"); return nil })
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), &idem.Message{Key: []byte("1"), Value: []byte(`{}`), Headers: headers("kind", "b")}))
		require.NoError(t, p.Handle(t.Context(), &idem.Message{Key: []byte("1"), Value: []byte(`{"type":"a","event_id":"2"}`)}))
		require.Equal(t, 1, b.count("b by header"))
		require.Equal(t, 1, b.count("a by field"))
	})
}

// Rule 7: an event with contradicting types is not skipped because another source finds a type
// without a handler.
func TestTypesFromSeveralSources_ContradictionIsDeadLettered(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		idem.On(b.router.With(idem.Type(idem.FromHeader("kind"))), "a", succeed)
		p := b.start()
		m := &idem.Message{Topic: "t", Value: []byte(`{"type":"x"}`), Headers: headers("event-type", "y", "kind", "unknown")}
		require.NoError(t, p.Handle(t.Context(), m))
		require.Equal(t, 1, b.count("dead letter: ambiguous-id"))
		m.Value = nil
		m.Headers = headers("event-type", "y", "event-type", "z", "kind", "unknown")
		require.NoError(t, p.Handle(t.Context(), m))
		require.Equal(t, 2, b.count("dead letter: ambiguous-id"))
	})
}

func TestFingerprint(t *testing.T) {
	secret := bytes.Repeat([]byte("s"), 16)
	for _, c := range []struct {
		policy  idem.ConflictPolicy
		letters int
	}{{idem.SkipConflict, 0}, {idem.DeadLetterConflict, 1}} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.on(succeed, idem.Fingerprint(secret, "amount"), idem.WhenConflict(c.policy))
			p := b.start()
			require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
			resent := message("e1", 1)
			resent.Value = []byte(`{"type":"paid", "sent_at": 3, "amount": 7,"event_id":"e1"}`)
			require.NoError(t, p.Handle(t.Context(), resent))
			require.Equal(t, 1, b.count("claim: done"), "an honest duplicate (rule 17)")
			other := message("e1", 2)
			other.Value = []byte(`{"type":"paid","amount":8,"event_id":"e1"}`)
			require.NoError(t, p.Handle(t.Context(), other))
			require.Equal(t, 1, b.count("claim: conflict"))
			require.Equal(t, 1, b.count("run 1"))
			require.Len(t, b.sent.deadLetters(), c.letters)
		})
	}
}

func TestIdempotencyKey(t *testing.T) {
	keys := map[string][]string{}
	for _, scope := range []string{"g", "renamed"} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.cfg.Scope = scope
			b.on(func(_ context.Context, e idem.Event[payload]) error {
				keys[scope] = []string{e.IdempotencyKey(), e.IdempotencyKey("capture"), e.IdempotencyKey("a", "b"), e.IdempotencyKey("a:b")}
				require.Positive(t, e.Fence())
				return nil
			})
			require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		})
	}
	require.Equal(t, keys["g"], keys["renamed"], "a renamed group must not repeat effects (rule 38)")
	seen := map[string]bool{}
	for _, k := range keys["g"] {
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, k)
		require.False(t, seen[k])
		seen[k] = true
	}
}

func TestWiring_AllMistakesAtOnceEachWithItsPlace(t *testing.T) {
	type noStore struct{ dedup.Store }
	r := idem.NewRouter()
	idem.On[payload](r, "nil", nil)
	idem.On(r, "twice", succeed)
	idem.On(r, "twice", succeed)
	idem.OnTx(r, "tx", func(context.Context, fakeTx, idem.Event[payload]) error { return nil })
	idem.On(r, "short", succeed, idem.Retention(time.Second))
	idem.On(r, "never", succeed, idem.Timeout(-1), idem.Retry(idem.RetryPolicy{MaxAttempts: -1}))
	idem.On(r, "policy", succeed, idem.WhenUncertain(2), idem.WhenNoID(idem.RunNoID))
	idem.On(r, "spare", succeed, idem.WhenUncertain(2), idem.WhenUnavailable(bounds))
	idem.On(r, "policies", succeed, idem.WhenUncertain(2), idem.WhenConflict(2), idem.WhenTooOld(4))
	idem.On(r, "secret", succeed, idem.Fingerprint(nil, "a"))
	idem.On(r, "second", succeed, idem.SecondSecret([]byte("short")))
	idem.On(r, "odd", succeed, idem.Store(struct {
		noStore
		s []int
	}{}))
	_, err := idem.NewProcessor(r, idem.Config{Store: memstore.New(), Lease: time.Millisecond, Observers: []observe.Observer{7}})
	require.Error(t, err)
	for _, want := range []string{
		"Config.Scope is empty", "Config.Lease is 1ms", "observer int implements no observer interface",
		`resolve_test.go:`, `"nil": handler is nil`, `"twice": already registered at resolve_test.go:`,
		`"tx": handler takes a idem_test.fakeTx, but *memstore.Store has no such transactions`,
		`"short": Retention 1s is shorter than`, `"never": Timeout must be positive`, `"never": Retry: MaxAttempts`,
		`"policies": WhenUncertain: unknown policy 2`, "WhenConflict: unknown policy 2", "WhenTooOld: unknown policy 4",
		`"policy": WhenUncertain: unknown policy 2`, `"spare": WhenUncertain: unknown policy 2`,
		`"secret": Fingerprint: the secret has 0 bytes`,
		`"second": SecondSecret: the secret has 5 bytes`, `"odd": store`,
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = idem.NewProcessor(idem.NewRouter(), idem.Config{Scope: "g"})
	require.ErrorContains(t, err, "router has no handlers")
	_, err = idem.NewProcessor(nil, idem.Config{Scope: "g"})
	require.ErrorContains(t, err, "router is nil")
}

// A mix of stores in one router.
func TestStoresPerHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		other := &spy{Store: memstore.New(), journal: &journal{}}
		group := b.router.With(idem.Store(other))
		b.on(succeed)
		idem.On(group, "mailed", succeed)
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		m := message("e1", 1)
		m.Value = []byte(`{"event_id":"e1","type":"mailed"}`)
		require.NoError(t, p.Handle(t.Context(), m))
		require.Equal(t, []string{"claim: fresh", "complete: done"}, other.all())
		require.Len(t, p.Stores(), 2)
	})
}

func TestMarks(t *testing.T) {
	for _, f := range []func(error) error{idem.Permanent, idem.NotApplied, idem.Unavailable, func(err error) error { return idem.RetryAfter(time.Second, err) }} {
		require.NoError(t, f(nil))
		require.ErrorIs(t, fmt.Errorf("wrapped: %w", f(errBoom)), errBoom)
		require.ErrorContains(t, f(errBoom), "boom")
	}
	p := &idem.PanicError{Value: errBoom}
	require.ErrorIs(t, p, errBoom)
}
