package idem_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// A dead letter has the parts of the identity that were found. It has a key only if all parts of
// the key were found.
func TestDeadLetter_KeepsWhatWasFound(t *testing.T) {
	withTenant := idem.Tenant(idem.FromHeader("tenant"))
	for name, c := range map[string]struct {
		value   string
		headers []idem.Header
		opts    []idem.Option
		class   idem.Class
		key     dedup.Key
		id, typ string
	}{
		"undecodable": {`{"event_id":"1","type":"paid","amount":"x"}`, nil, nil, idem.ClassUndecodable, dedup.Key{Scope: "g", Type: "paid", ID: "1"}, "1", "paid"},
		"undecodable, with tenant": {
			"no JSON", headers("event-id", "1", "event-type", "paid", "tenant", "acme"), []idem.Option{withTenant}, idem.ClassUndecodable,
			dedup.Key{Tenant: "acme", Scope: "g", Type: "paid", ID: "1"}, "1", "paid",
		},
		"no tenant":               {`{}`, headers("event-id", "1", "event-type", "paid"), []idem.Option{withTenant}, idem.ClassNoID, dedup.Key{}, "1", "paid"},
		"not JSON, type known":    {"no JSON", headers("event-type", "paid"), nil, idem.ClassNotJSON, dedup.Key{}, "", "paid"},
		"not JSON, ID known":      {"no JSON", headers("event-id", "1"), nil, idem.ClassNotJSON, dedup.Key{}, "1", ""},
		"not JSON, nothing known": {"no JSON", nil, nil, idem.ClassNotJSON, dedup.Key{}, "", ""},
		"not JSON, ID by a fallback": {
			"no JSON", headers("event-type", "paid"), []idem.Option{idem.ID(idem.FirstOf(idem.FromJSON("id"), idem.FromHeader("x")))}, idem.ClassNotJSON,
			dedup.Key{}, "", "paid",
		},
		"broken JSON": {`{"event_id":"1","type":"paid","amount":`, nil, nil, idem.ClassNotJSON, dedup.Key{}, "1", "paid"},
		"broken JSON, type in a header": {
			`{"event_id":"1",oops}`, headers("event-type", "paid"), nil, idem.ClassNotJSON, dedup.Key{}, "1", "paid",
		},
		"broken JSON, cut in the ID": {`{"type":"paid","event_id":"1`, nil, nil, idem.ClassNotJSON, dedup.Key{}, "", "paid"},
		"broken JSON, other type":    {`{"event_id":"1","type":"sold",`, nil, nil, idem.ClassNotJSON, dedup.Key{}, "1", "sold"},
		"broken JSON, two IDs":       {`{"event_id":"1","event_id":"2","type":"paid",`, nil, nil, idem.ClassNotJSON, dedup.Key{}, "", "paid"},
		"broken JSON, places of a handler": {
			`{"data":{"id":7},"kind":"paid",`, nil,
			[]idem.Option{idem.ID(idem.FromJSON("data.id")), idem.Type(idem.FromJSON("kind"))}, idem.ClassNotJSON, dedup.Key{}, "7", "paid",
		},
		"broken JSON, usual places of another handler": {
			`{"event_id":"1","type":"paid",`, nil, []idem.Option{idem.ID(idem.FromJSON("payment"))}, idem.ClassNotJSON, dedup.Key{}, "", "paid",
		},
		"broken JSON, a function panics": {
			`{"event_id":"1","type":"paid",`, nil, []idem.Option{idem.ID(idem.FromFunc("mine", func(m *idem.Message) (string, error) {
				if strings.HasSuffix(string(m.Value), "}") {
					panic("on a part")
				}
				return "", idem.ErrNotFound
			}))}, idem.ClassNotJSON, dedup.Key{}, "", "paid",
		},
		"type in the usual place": {"no JSON", headers("event-type", "paid", "event-id", "1"), []idem.Option{idem.Type(idem.FromJSON("kind"))}, idem.ClassNotJSON, dedup.Key{}, "1", "paid"},
		"no JSON is wanted":       {"no JSON", headers("event-type", "paid"), []idem.Option{idem.ID(idem.FromHeader("x"))}, idem.ClassNoID, dedup.Key{}, "", "paid"},
		"two IDs":                 {`{}`, headers("event-id", "1", "event-id", "2", "event-type", "paid"), nil, idem.ClassAmbiguous, dedup.Key{}, "", "paid"},
		"no type":                 {`{"event_id":"1"}`, nil, nil, idem.ClassNoType, dedup.Key{}, "1", ""},
		"two types":               {`{"event_id":"1"}`, headers("event-type", "a", "event-type", "b"), nil, idem.ClassAmbiguous, dedup.Key{}, "1", ""},
		"ID that does not fit":    {`{}`, headers("event-id", strings.Repeat("x", 256), "event-type", "paid"), nil, idem.ClassNoID, dedup.Key{}, "", "paid"},
		"ID that is not UTF-8":    {`{}`, headers("event-id", "\xff", "event-type", "paid"), nil, idem.ClassNoID, dedup.Key{}, "", "paid"},
		"ID of another handler":   {`{}`, headers("event-id", "1", "event-type", "paid"), []idem.Option{idem.ID(idem.FromHeader("x"))}, idem.ClassNoID, dedup.Key{}, "", "paid"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.on(succeed, c.opts...)
				m := &idem.Message{Topic: "orders", Offset: 7, Value: []byte(c.value), Headers: c.headers, Time: time.UnixMilli(1).UTC()}
				require.NoError(t, b.start().Handle(t.Context(), m))
				if c.class == idem.ClassUndecodable {
					require.Equal(t, []string{"claim: fresh", "dead letter: undecodable", "complete: dead"}, b.all())
				} else {
					require.Equal(t, []string{"dead letter: " + string(c.class)}, b.all(), "the store was not touched (rule 6)")
				}
				l, err := deadletter.Parse(b.sent.deadLetters()[0])
				require.NoError(t, err)
				require.Equal(t, c.class, l.Class)
				require.Equal(t, c.key, l.Key)
				require.Equal(t, c.id, l.ID)
				require.Equal(t, c.typ, l.Type)
				require.Equal(t, m, l.Message)
				require.Zero(t, l.Attempts)
			})
		})
	}
}

// An event that cannot be decoded is given up once, under its claim, in every kind of handler. The
// record is a duplicate when it is delivered again, and copies are those of a dead event. A
// corrected copy is not lost: it becomes a dead letter too. A replay runs the event once, as soon
// as the decoder takes it (rule 6).
func TestDeadLetter_UndecodableOnce_Rule6(t *testing.T) {
	for form, register := range handlerForms {
		t.Run(form, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
				corrected, opts := false, []idem.Option(nil)
				if !strings.HasSuffix(form, "Tx") { // those decode before the transaction with this option
					opts = append(opts, idem.Decode(func(m *idem.Message, into any) error {
						if corrected {
							return nil
						}
						return json.Unmarshal(m.Value, into)
					}))
				}
				bad := func(offset int64) *idem.Message {
					m := message("e2", offset)
					m.Value = []byte(`{"event_id":"e2","type":"paid","amount":"x"}`)
					return m
				}
				var got []string
				register(b, func(e idem.Event[payload]) { got = append(got, e.ID) }, opts...)
				p := b.start()
				msgs := []*idem.Message{message("e1", 1), bad(2), message("e3", 3), bad(4), message("e4", 5)}
				n, err := p.HandleBatch(t.Context(), msgs)
				require.NoError(t, err)
				require.Equal(t, len(msgs), n)
				require.ElementsMatch(t, []string{"e1", "e3", "e4"}, got)
				classes := func() (all []string) {
					for _, m := range b.sent.deadLetters() {
						all = append(all, headerOf(m, deadletter.HeaderErrorClass))
					}
					return all
				}
				require.Equal(t, []string{"undecodable", "already-dead"}, classes())
				l, err := deadletter.Parse(b.sent.deadLetters()[0])
				require.NoError(t, err)
				require.Equal(t, "e2", l.Key.ID)

				require.NoError(t, p.Handle(t.Context(), bad(2)), "the same record")
				require.Len(t, classes(), 2)
				require.NoError(t, p.Handle(t.Context(), message("e2", 7)), "a corrected copy")
				require.Equal(t, []string{"undecodable", "already-dead", "conflict"}, classes())

				if strings.HasSuffix(form, "Tx") { // this store reopens no events of transactions
					return
				}
				corrected = true
				position, err := b.store.Reopen(t.Context(), l.Key)
				require.NoError(t, err)
				again, err := l.Redrive(position)
				require.NoError(t, err)
				require.NoError(t, p.Handle(t.Context(), again))
				require.NoError(t, p.Handle(t.Context(), again))
				require.ElementsMatch(t, []string{"e1", "e2", "e3", "e4"}, got)
				require.Len(t, classes(), 3)
			})
		})
	}
}

// A handler loses the option Tombstones while a tombstone of its waits for a delayed retry. The
// copy is dead-lettered and the store knows that, so that the event does not wait for ever. A
// release that takes tombstones again can replay it.
func TestDeadLetter_DelayedTombstoneThatNobodyTakes(t *testing.T) {
	tombstone := &idem.Message{
		Topic: "orders", Partition: 1, Offset: 3, Key: []byte("k"), Headers: headers("event-id", "e1", "event-type", "paid"), Time: time.UnixMilli(1).UTC(),
	}
	delayed := func(t *testing.T, b *bench, order idem.Option) {
		b.on(failing(1, errBoom), once, order, idem.Tombstones())
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), tombstone))
		require.NoError(t, p.Close())
		b.router = idem.NewRouter()
		b.on(succeed, once, order)
	}
	dead := func(t *testing.T, b *bench, l *idem.Message) dedup.Position {
		letter, err := deadletter.Parse(l)
		require.NoError(t, err)
		require.Equal(t, idem.ClassUndecodable, letter.Class)
		require.Contains(t, letter.Error, "tombstones")
		require.Equal(t, dedup.Key{Scope: "g", Type: "paid", ID: "e1"}, letter.Key)
		require.Nil(t, letter.Message.Value)
		records, err := b.store.Inspect(t.Context(), letter.Key)
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.Equal(t, dedup.GivenUp, records[0].State)
		position, err := b.store.Reopen(t.Context(), letter.Key)
		require.NoError(t, err)
		return position
	}
	for _, fallback := range []bool{false, true} {
		inBubble(t, func(t *testing.T, b *bench) {
			delayed(t, b, idem.RetryTopics(5*time.Second))
			if fallback {
				b.router.NotFound(func(context.Context, *idem.Message) error { b.add("fallback"); return nil })
			}
			p := b.start()
			require.NoError(t, p.Handle(t.Context(), b.sent.deadLetters()[0]))
			require.Len(t, b.sent.deadLetters(), 2)
			position := dead(t, b, b.sent.deadLetters()[1])
			require.Zero(t, b.count("fallback"))
			require.NoError(t, p.Close())

			b.router = idem.NewRouter()
			b.on(succeed, idem.Tombstones())
			letter, err := deadletter.Parse(b.sent.deadLetters()[1])
			require.NoError(t, err)
			again, err := letter.Redrive(position)
			require.NoError(t, err)
			require.NoError(t, b.start().Handle(t.Context(), again))
			require.Equal(t, 2, b.count("run 1"))
		})
	}
	t.Run("deferred", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			delayed(t, b, idem.KeyOrdered(5*time.Second))
			b.start()
			stop := b.runsDeferred()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Len(t, b.sent.deadLetters(), 1)
			_, deferred, ok, err := b.store.FindDeferred(t.Context(), "g", "orders", dedup.Key{Scope: "g", Type: "paid", ID: "e1"})
			require.NoError(t, err)
			require.True(t, ok)
			require.True(t, deferred.Blocked, "it blocks its queue like any other dead head")
			dead(t, b, b.sent.deadLetters()[0])
			stop()
		})
	})
	t.Run("without a handler", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			delayed(t, b, idem.RetryTopics(5*time.Second))
			b.router = idem.NewRouter()
			idem.On(b.router, "refunded", succeed)
			b.router.NotFound(func(context.Context, *idem.Message) error { b.add("fallback"); return nil })
			require.NoError(t, b.start().Handle(t.Context(), b.sent.deadLetters()[0]))
			require.Len(t, b.sent.deadLetters(), 2)
			letter, err := deadletter.Parse(b.sent.deadLetters()[1])
			require.NoError(t, err)
			require.Equal(t, idem.ClassNoType, letter.Class)
			require.Equal(t, "e1", letter.ID)
			require.Equal(t, "paid", letter.Type)
			require.Equal(t, dedup.Key{}, letter.Key, "it is replayed to where the store waits for it")
			require.Zero(t, b.count("fallback"))
		})
	})
	t.Run("in its own topic", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			b.on(succeed)
			require.NoError(t, b.start().Handle(t.Context(), tombstone))
			require.Empty(t, b.all(), "skipped, as ever")
		})
	})
}

// A record in a retry topic that is no copy goes to the dead-letter topic of the source of that
// retry topic, since this topic exists. The headers of the record have no influence.
func TestDeadLetter_NotACopyGoesWhereItsSourceGoes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed, idem.RetryTopics(time.Minute))
		p := b.start()
		require.Equal(t, "orders.g.dlq", p.DeadLetterTopic("orders"))
		require.Equal(t, "orders.g.dlq", p.DeadLetterTopic("orders.g.retry"))
		require.Equal(t, "orders.g.dlq", p.DeadLetterTopic("orders.g.retry.1m"))
		require.Equal(t, "orders.h.retry.1m.g.dlq", p.DeadLetterTopic("orders.h.retry.1m"), "another group's is a topic like any other")
		for _, topic := range []string{"orders.g.retry", "orders.g.retry.1m"} {
			plain := message("e1", 1)
			forged := message("e2", 2)
			forged.Headers = headers(deadletter.HeaderTopic, "admin", deadletter.HeaderPartition, "0", deadletter.HeaderOffset, "0",
				deadletter.HeaderTime, "2026-01-01T00:00:00Z", deadletter.HeaderGroup, "g")
			broken := message("e3", 3)
			broken.Headers = headers(deadletter.HeaderTopic, "admin.g.retry", deadletter.HeaderEventID, strings.Repeat("x", 300))
			for _, m := range []*idem.Message{plain, forged, broken} {
				m.Topic = topic
				require.NoError(t, p.Handle(t.Context(), m))
				sent := b.sent.deadLetters()
				l := sent[len(sent)-1]
				require.Equal(t, string(idem.ClassNotACopy), headerOf(l, deadletter.HeaderErrorClass))
				require.Equal(t, "orders.g.dlq", l.Topic)
				letter, err := deadletter.Parse(l)
				require.NoError(t, err)
				require.Equal(t, topic, letter.Message.Topic, "where it lies")
				require.Equal(t, dedup.Key{}, letter.Key)
			}
		}
		require.Len(t, b.sent.deadLetters(), 6)
		letter, err := deadletter.Parse(b.sent.deadLetters()[0])
		require.NoError(t, err)
		require.Equal(t, "e1", letter.ID)
		require.Equal(t, "paid", letter.Type)
	})
}

// A record too large for the dead-letter topic: its pointer goes there too.
func TestDeadLetter_PointerOfWhatIsNoCopy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.sent.fail = func(m *idem.Message) error {
			if len(m.Value) > 0 {
				return idem.ErrTooLarge
			}
			return nil
		}
		b.on(succeed, idem.RetryTopics(time.Minute))
		m := message("e1", 1)
		m.Topic = "orders.g.retry.1m"
		require.NoError(t, b.start().Handle(t.Context(), m))
		require.Equal(t, "orders.g.dlq", b.sent.deadLetters()[0].Topic)
	})
}

// counted counts how often it is decoded.
type counted struct{ payload }

var decodings atomic.Int64

func (c *counted) UnmarshalJSON(b []byte) error {
	decodings.Add(1)
	return json.Unmarshal(b, &c.payload)
}

// Only an event that runs is decoded, once. Shadow mode, handlers that run at most once, and own
// decoders of transactional handlers decode every delivery. A pure decoder is one like the default.
func TestDecode_OnlyWhatRuns(t *testing.T) {
	noBatch := func(context.Context, []idem.Event[counted]) error { return nil }
	decode := func(m *idem.Message, into any) error { return json.Unmarshal(m.Value, into) }
	own, pure := idem.Decode(decode), idem.PureDecode(decode)
	for form, c := range map[string]struct {
		register func(*bench, ...idem.Option)
		opts     []idem.Option
		shadow   bool
		early    bool
	}{
		"On":              {register: onCounted},
		"On, own decoder": {register: onCounted, opts: []idem.Option{own}},
		"OnBatch": {register: func(b *bench, o ...idem.Option) {
			idem.OnBatch(b.router, "paid", noBatch, append(o, idem.SameKey())...)
		}},
		"OnTx": {register: onTxCounted},
		"OnBatchTx": {register: func(b *bench, o ...idem.Option) {
			idem.OnBatchTx(b.router, "paid", func(context.Context, *groupTx, []idem.Event[counted]) error { return nil }, append(o, idem.SameKey())...)
		}},
		"OnTx, own decoder":    {register: onTxCounted, opts: []idem.Option{own}, early: true},
		"OnTx, pure decoder":   {register: onTxCounted, opts: []idem.Option{pure}},
		"OnTx, pure, then own": {register: onTxCounted, opts: []idem.Option{pure, own}, early: true},
		"OnTx, own, then pure": {register: onTxCounted, opts: []idem.Option{own, pure}},
		"On, at most once":     {register: onCounted, opts: []idem.Option{idem.WhenUncertain(idem.DeadLetterUncertain)}, early: true},
		"On, shadow mode":      {register: onCounted, shadow: true, early: true},
	} {
		t.Run(form, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
				b.cfg.Shadow = c.shadow
				c.register(b, c.opts...)
				p := b.start()
				msgs := []*idem.Message{message("e1", 1), message("e2", 2), message("e1", 3)}
				for _, fresh := range []int64{2, 0, 1} {
					if fresh == 1 {
						msgs = append(msgs, message("e3", 4))
					}
					before := decodings.Load()
					n, err := p.HandleBatch(t.Context(), msgs)
					require.NoError(t, err)
					require.Equal(t, len(msgs), n)
					if c.early {
						require.GreaterOrEqual(t, decodings.Load()-before, int64(len(msgs)))
					} else {
						require.Equal(t, fresh, decodings.Load()-before)
					}
				}
			})
		})
	}
}

// A decoder of nil is a mistake of wiring, which names the option.
func TestDecode_Nil(t *testing.T) {
	for name, option := range map[string]idem.Option{"Decode": idem.Decode(nil), "PureDecode": idem.PureDecode(nil)} {
		b := newBench(t)
		b.on(succeed, option)
		_, err := idem.NewProcessor(b.router, b.cfg)
		require.ErrorContains(t, err, ": "+name+" must not be nil")
	}
}

func onCounted(b *bench, opts ...idem.Option) {
	idem.On(b.router, "paid", func(context.Context, idem.Event[counted]) error { return nil }, opts...)
}

func onTxCounted(b *bench, opts ...idem.Option) {
	idem.OnTx(b.router, "paid", func(context.Context, *groupTx, idem.Event[counted]) error { return nil }, opts...)
}
