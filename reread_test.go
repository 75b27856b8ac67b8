package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// faults are errors of a function that reads events, by the ID of the event. Each call takes the
// next one, and the last is followed by successes.
type faults map[string][]error

func (f faults) next(m *idem.Message) error {
	id, _ := idem.FromJSON("event_id").Extract(m)
	if len(f[id]) == 0 {
		return nil
	}
	err := f[id][0]
	f[id] = f[id][1:]
	return err
}

// find looks into the message as another function does, if there is no fault.
func (f faults) find(other idem.Extractor) idem.Extractor {
	return idem.FromFunc("with faults", func(m *idem.Message) (string, error) {
		if err := f.next(m); err != nil {
			return "", err
		}
		return other.Extract(m)
	})
}

func (f faults) decode(m *idem.Message, into any) error {
	if err := f.next(m); err != nil {
		return err
	}
	return json.Unmarshal(m.Value, into)
}

// readers are the options that let each function that reads an event fail.
var readers = map[string]func(faults) idem.Option{
	"type":   func(f faults) idem.Option { return idem.Type(f.find(idem.StandardType())) },
	"ID":     func(f faults) idem.Option { return idem.ID(f.find(idem.StandardID())) },
	"tenant": func(f faults) idem.Option { return idem.Tenant(f.find(idem.Fixed("acme"))) },
	"decode": func(f faults) idem.Option { return idem.Decode(f.decode) },
}

// handlerForms register a handler of each kind that notes the events it is given.
var handlerForms = map[string]func(b *bench, note func(idem.Event[payload]), opts ...idem.Option){
	"On": func(b *bench, note func(idem.Event[payload]), opts ...idem.Option) {
		idem.On(b.router, "paid", func(_ context.Context, e idem.Event[payload]) error { note(e); return nil }, opts...)
	},
	"OnBatch": func(b *bench, note func(idem.Event[payload]), opts ...idem.Option) {
		idem.OnBatch(b.router, "paid", func(_ context.Context, all []idem.Event[payload]) error { each(all, note); return nil },
			append(opts, idem.SameKey())...)
	},
	"OnTx": func(b *bench, note func(idem.Event[payload]), opts ...idem.Option) {
		idem.OnTx(b.router, "paid", func(_ context.Context, _ *groupTx, e idem.Event[payload]) error { note(e); return nil }, opts...)
	},
	"OnBatchTx": func(b *bench, note func(idem.Event[payload]), opts ...idem.Option) {
		idem.OnBatchTx(b.router, "paid", func(_ context.Context, _ *groupTx, all []idem.Event[payload]) error { each(all, note); return nil },
			append(opts, idem.SameKey())...)
	},
}

func each(all []idem.Event[payload], note func(idem.Event[payload])) {
	for _, e := range all {
		note(e)
	}
}

func repeated(n int, err error) (all []error) {
	for range n {
		all = append(all, err)
	}
	return all
}

// The service that is needed to read an event is down for a while. The event waits in its place, no
// other overtakes it, and no attempt is counted.
func TestReread_Unavailable(t *testing.T) {
	for reader, option := range readers {
		for form, register := range handlerForms {
			t.Run(reader+"/"+form, func(t *testing.T) {
				inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
					f := faults{"e2": repeated(4, idem.Unavailable(errors.New("registry is down")))}
					var got []string
					register(b, func(e idem.Event[payload]) {
						require.Equal(t, 7, e.Data.Amount)
						require.Equal(t, 1, e.Attempt)
						require.False(t, e.Uncertain)
						got = append(got, e.ID)
					}, option(f))
					p := b.start()
					began := time.Now()
					n, err := p.HandleBatch(t.Context(), []*idem.Message{message("e1", 1), message("e2", 2), message("e3", 3), message("e4", 4)})
					require.NoError(t, err)
					require.Equal(t, 4, n)
					require.Equal(t, []string{"e1", "e2", "e3", "e4"}, got)
					require.Empty(t, b.sent.deadLetters())
					require.Positive(t, time.Since(began), "it waited")
					require.Empty(t, f["e2"], "each fault was met")
					require.Contains(t, b.log.String(), "registry is down", "an operator can see why nothing moves")
				})
			})
		}
	}
}

// A registry that is down for minutes while the store answers costs no event its place, and no
// event is dead-lettered.
func TestReread_LongOutage(t *testing.T) {
	for reader, option := range readers {
		for form, register := range handlerForms {
			t.Run(reader+"/"+form, func(t *testing.T) {
				inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
					down := idem.Unavailable(errors.New("registry is down"))
					f := faults{"e1": repeated(500, down), "e2": repeated(10, down)} // the waits go up to 2 s
					var got []string
					register(b, func(e idem.Event[payload]) {
						require.Equal(t, 1, e.Attempt)
						got = append(got, e.ID)
					}, option(f))
					p := b.start()
					began := time.Now()
					n, err := p.HandleBatch(t.Context(), []*idem.Message{message("e1", 1), message("e2", 2), message("e3", 3)})
					require.NoError(t, err)
					require.Equal(t, 3, n)
					require.Equal(t, []string{"e1", "e2", "e3"}, got)
					require.Greater(t, time.Since(began), 6*time.Minute)
					require.Empty(t, b.sent.deadLetters())
				})
			})
		}
	}
}

// A mark on an error of a function that reads events has the tries, the class and the pace of one
// on an error of a handler.
func TestReread_MeansWhatItMeansInHandlers(t *testing.T) {
	policy := idem.Retry(idem.RetryPolicy{MaxAttempts: 3, InPlace: time.Minute, Outage: 20 * time.Second})
	for name, c := range map[string]struct {
		err   error
		tries int // with the last; 0: as many as the time allows
		class idem.Class
		least time.Duration
	}{
		"unavailable":           {idem.Unavailable(errBoom), 0, idem.ClassFailed, 20 * time.Second},
		"not applied":           {idem.NotApplied(errBoom), 3, idem.ClassFailed, 0},
		"permanent":             {idem.Permanent(errBoom), 1, idem.ClassPermanent, 0},
		"retry after":           {idem.RetryAfter(7*time.Second, errBoom), 3, idem.ClassRetryAfter, 14 * time.Second},
		"retry after too long":  {idem.RetryAfter(2*time.Minute, errBoom), 1, idem.ClassRetryAfter, 0},
		"two branches":          {errors.Join(idem.NotApplied(errBoom), idem.Unavailable(errBoom)), 0, idem.ClassFailed, 20 * time.Second},
		"wrapped and permanent": {fmt.Errorf("schema 7: %w", idem.Permanent(errBoom)), 1, idem.ClassPermanent, 0},
	} {
		check := func(t *testing.T, b *bench, began time.Time) {
			require.NoError(t, b.start().Handle(t.Context(), message("e1", 1)))
			require.Len(t, b.sent.deadLetters(), 1)
			l := b.sent.deadLetters()[0]
			require.Equal(t, string(c.class), headerOf(l, deadletter.HeaderErrorClass))
			require.Contains(t, headerOf(l, deadletter.HeaderError), "boom")
			require.GreaterOrEqual(t, time.Since(began), c.least)
			require.Less(t, time.Since(began), c.least+20*time.Second)
		}
		tried := func(t *testing.T, tries int) {
			if c.tries == 0 {
				require.Greater(t, tries, 3+6)
				return
			}
			require.Equal(t, c.tries, tries)
		}
		t.Run(name+"/handler", func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				tries := 0
				began := time.Now()
				b.on(func(context.Context, idem.Event[payload]) error { tries++; return c.err }, policy)
				require.NoError(t, b.start().Handle(t.Context(), message("e0", 0)))
				tried(t, tries)
				require.Equal(t, string(c.class), headerOf(b.sent.deadLetters()[0], deadletter.HeaderErrorClass))
				require.GreaterOrEqual(t, time.Since(began), c.least)
			})
		})
		for reader, option := range readers {
			t.Run(name+"/"+reader, func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					f := faults{"e1": repeated(2000, c.err)}
					began := time.Now()
					if reader == "type" { // without a type there is no handler, and no policy but the default
						policy := idem.Retry(idem.RetryPolicy{})
						b.on(succeed, option(f), policy)
						require.NoError(t, b.start().Handle(t.Context(), message("e1", 1)))
						require.Len(t, b.sent.deadLetters(), 1)
						if c.tries != 0 {
							require.LessOrEqual(t, 2000-len(f["e1"]), 10)
						}
						require.Less(t, time.Since(began), 16*time.Minute)
						return
					}
					b.on(succeed, option(f), policy)
					check(t, b, began)
					tried(t, 2000-len(f["e1"]))
					require.Zero(t, b.count("run 1"))
					if reader == "decode" { // the key and the content are known
						require.Equal(t, 1, b.count("complete: dead"), "%v", b.all())
						return
					}
					require.Zero(t, b.count("claim: fresh"), "a dead letter without identity leaves no record (rule 6)")
				})
			})
		}
	}
}

// An error without a mark is the event's fault: it is not tried again.
func TestReread_UnmarkedIsFinal(t *testing.T) {
	for reader, want := range map[string]idem.Class{
		"type": idem.ClassNoType, "ID": idem.ClassNoID, "tenant": idem.ClassNoID, "decode": idem.ClassUndecodable,
	} {
		t.Run(reader, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				f := faults{"e1": repeated(9, errBoom)}
				b.on(succeed, readers[reader](f))
				began := time.Now()
				require.NoError(t, b.start().Handle(t.Context(), message("e1", 1)))
				require.Zero(t, time.Since(began))
				require.Len(t, f["e1"], 8)
				journal := []string{"dead letter: " + string(want)}
				if reader == "decode" {
					journal = []string{"claim: fresh", journal[0], "complete: dead"}
				}
				require.Equal(t, journal, b.all())
			})
		})
	}
}

// At most once gives up an event that may have had its effect. An event that was not read had no
// effect.
func TestReread_LeavesNoDoubt(t *testing.T) {
	for _, first := range []error{idem.Unavailable(errBoom), idem.RetryAfter(time.Second, errBoom), idem.NotApplied(errBoom)} {
		inBubble(t, func(t *testing.T, b *bench) {
			f := faults{"e1": {first}}
			b.on(succeed, idem.Decode(f.decode), idem.WhenUncertain(idem.DeadLetterUncertain))
			require.NoError(t, b.start().Handle(t.Context(), message("e1", 1)))
			require.Equal(t, []string{"claim: fresh", "run 1", "complete: done"}, b.all())
		})
	}
}

// The caller's budget for waiting and a stop end the wait. The messages before the event are
// settled, and the event comes again.
func TestReread_EndsWithBudgetAndStop(t *testing.T) {
	for reader, option := range readers {
		t.Run(reader, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				f := faults{"e2": repeated(100, idem.Unavailable(errBoom)), "e3": repeated(2, idem.RetryAfter(4*time.Second, errBoom))}
				b.cfg.BusyWait = 50 * time.Millisecond
				b.on(succeed, option(f))
				p := b.start()
				msgs := []*idem.Message{message("e1", 1), message("e2", 2), message("e3", 3)}
				for calls := range 4 {
					n, err := p.HandleBatch(t.Context(), msgs)
					var wait *idem.WaitError
					require.ErrorAs(t, err, &wait)
					require.ErrorIs(t, err, dedup.ErrUnavailable)
					require.ErrorIs(t, err, errBoom)
					require.Positive(t, wait.After)
					msgs = msgs[n:]
					require.Len(t, msgs, 2)
					want := []string{"claim: fresh", "run 1", "complete: done"}
					if reader == "decode" { // each call of HandleBatch claims e2 and e3 once more
						returned := []string{"claim: fresh", "release: unstarted", "release: unstarted"}
						want = append(slices.Clone(returned), "run 1", "complete: done")
						for range calls {
							want = append(want, returned...)
						}
					}
					require.Equal(t, want, b.all(), "a waiting event holds no claim")
				}
				f["e2"] = nil
				ctx, stop := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { stop(idem.ErrStopping) })
				began := time.Now()
				n, err := p.HandleBatch(ctx, msgs)
				require.ErrorIs(t, err, idem.ErrStopping)
				require.Equal(t, 1, n, "e2")
				require.LessOrEqual(t, time.Since(began), time.Second)
				require.NotContains(t, b.all(), "release: unknown")
				f["e3"] = nil
				n, err = p.HandleBatch(t.Context(), msgs[n:])
				require.NoError(t, err)
				require.Equal(t, 1, n)
				require.Equal(t, 3, b.count("run 1"))
				require.Empty(t, b.sent.deadLetters())
			})
		})
	}
}

// While an event waits to be read, the claims of its neighbours are free for others.
func TestReread_HoldsNoClaims(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		other := newBench(t)
		other.cfg.Store = b.store
		other.on(succeed)
		other.start()
		tries := 0
		b.on(succeed, idem.Decode(func(m *idem.Message, into any) error {
			if m.Offset == 2 {
				if tries++; tries == 3 {
					for i, id := range []string{"e1", "e3"} {
						began := time.Now()
						require.NoError(t, other.p.Handle(t.Context(), message(id, int64(90+i))))
						require.Zero(t, time.Since(began))
					}
				}
				if tries < 4 {
					return idem.Unavailable(errBoom)
				}
			}
			return json.Unmarshal(m.Value, into)
		}))
		n, err := b.start().HandleBatch(t.Context(), []*idem.Message{message("e1", 1), message("e2", 2), message("e3", 3)})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, 2, b.count("run 1"))
		require.Equal(t, 1, other.count("run 1"))
		require.NoError(t, other.p.Close())
	})
}

// With RetryTopics an event that can be identified and not decoded moves to a retry topic when its
// tries are spent, as after failures of the handler.
func TestReread_DelayedRetry(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		began := time.Now()
		var read []time.Duration
		says := []error{idem.RetryAfter(20*time.Second, errBoom), idem.NotApplied(errBoom)}
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			require.Equal(t, 7, e.Data.Amount)
			return nil
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.RetryTopics(30*time.Second, time.Hour), idem.Decode(func(m *idem.Message, into any) error {
			read = append(read, time.Since(began))
			if len(read) <= len(says) {
				return says[len(read)-1]
			}
			return json.Unmarshal(m.Value, into)
		}))
		p := b.start()
		n, err := p.HandleBatch(t.Context(), []*idem.Message{message("e1", 1)})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []string{"orders.g.retry.30s", "orders.g.retry.1h"}, b.deliverCopies())
		require.Equal(t, []time.Duration{0, 30 * time.Second, 30*time.Second + time.Hour}, read, "not before its time")
		require.Equal(t, 1, strings.Count(strings.Join(b.all(), "\n"), "run "), "%v", b.all())
		require.NoError(t, p.Handle(t.Context(), message("e1", 9)), "a copy of the producer's")
		require.Equal(t, 1, strings.Count(strings.Join(b.all(), "\n"), "run "))
		require.Contains(t, b.log.String(), "event could not be read, later attempts go on elsewhere")
	})
}

// RetryAfter beyond the longest delay: the copy is moved on, and not read before the time that was
// asked for.
func TestReread_RetryAfterBeyondTheLongestDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		began := time.Now()
		var read []time.Duration
		b.on(succeed, once, idem.RetryTopics(5*time.Second), idem.Decode(func(m *idem.Message, into any) error {
			read = append(read, time.Since(began))
			if len(read) == 1 {
				return idem.RetryAfter(12*time.Second, errBoom)
			}
			return json.Unmarshal(m.Value, into)
		}))
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 1)))
		require.Equal(t, []string{"orders.g.retry.5s", "orders.g.retry.5s", "orders.g.retry.5s"}, b.deliverCopies())
		require.Len(t, read, 2)
		require.GreaterOrEqual(t, read[1], 12*time.Second)
		require.Equal(t, 1, b.count("run 1"), "%v", b.all())
	})
}

// Transactions: the copy is published, and the store is told, with the handler never called.
func TestReread_DelayedRetryTx(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		f := faults{"e1": repeated(9, idem.NotApplied(errBoom))}
		b.onTx(func(context.Context, fakeTx, idem.Event[payload]) error { return nil }, once, idem.RetryTopics(time.Minute), idem.Decode(f.decode))
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 1)))
		require.Len(t, b.sent.deadLetters(), 1)
		require.Equal(t, "orders.g.retry.1m", b.sent.deadLetters()[0].Topic)
		require.Len(t, f["e1"], 8)
		require.Zero(t, s.effects)
		require.Equal(t, 1, b.count("tx: committed done"))
	})
}

// KeyOrdered: an event that cannot be decoded waits in the store with those of its Kafka key behind
// it, like one that fails.
func TestReread_Deferred(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		f := faults{"a1": repeated(2, idem.NotApplied(errBoom)), "a2": {idem.Unavailable(errBoom)}}
		idem.On(b.router, "paid", func(_ context.Context, e idem.Event[payload]) error {
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(5*time.Second, time.Minute), idem.Decode(f.decode))
		b.start()
		defer b.runsDeferred()()
		n, err := b.p.HandleBatch(t.Context(), []*idem.Message{
			inQueue("a", "a1", 1), inQueue("a", "a2", 2), inQueue("b", "b1", 3), inQueue("a", "a3", 4),
		})
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.Equal(t, []string{"done b1"}, done(b))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"done b1"}, done(b), "it was tried once more")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"done b1", "done a1", "done a2", "done a3"}, done(b))
		require.Empty(t, b.sent.deadLetters())
	})
}

// A deferred event that cannot be decoded any longer is dead, and blocks its queue like any other
// dead head, until a person replays it.
func TestReread_UndecodableHeadBlocks(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		fails, gone := 1, false
		idem.On(b.router, "paid", func(_ context.Context, e idem.Event[payload]) error {
			if fails--; fails == 0 {
				gone = true
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Second), idem.Decode(func(m *idem.Message, into any) error {
			if gone && m.Offset == 1 {
				return errors.New("schema 7 is gone")
			}
			return json.Unmarshal(m.Value, into)
		}))
		b.start()
		defer b.runsDeferred()()
		_, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 1), inQueue("a", "a2", 2)})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, done(b))
		require.Len(t, b.sent.deadLetters(), 1)
		letter, err := deadletter.Parse(b.sent.deadLetters()[0])
		require.NoError(t, err)
		require.Equal(t, idem.ClassUndecodable, letter.Class)
		require.Equal(t, "a1", letter.Key.ID)
		require.Equal(t, "decode into idem_test.payload: schema 7 is gone", letter.Error)
		part, deferred, ok, err := b.store.FindDeferred(t.Context(), "g", "orders", letter.Key)
		require.NoError(t, err)
		require.True(t, ok)
		require.True(t, deferred.Blocked)

		gone = false
		deferred.Position, err = b.store.Reopen(t.Context(), letter.Key)
		require.NoError(t, err)
		deferred.Blocked, deferred.Wait = false, 0
		_, err = b.store.Postpone(t.Context(), part, deferred)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"done a1", "done a2"}, done(b))
		require.Len(t, b.sent.deadLetters(), 1)
	})
}

// A queue waits for an event that cannot be identified now: those of its Kafka key behind it do not
// join the queue before it.
func TestReread_NothingOvertakesIntoAQueue(t *testing.T) {
	for reader, option := range readers {
		t.Run(reader, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				f := faults{"a2": repeated(3, idem.Unavailable(errBoom))}
				fails := 1
				idem.On(b.router, "paid", func(_ context.Context, e idem.Event[payload]) error {
					if e.ID == "a1" && fails > 0 {
						fails--
						return errBoom
					}
					b.add("done %s", e.ID)
					return nil
				}, once, idem.KeyOrdered(5*time.Second), option(f))
				b.start()
				require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a1", 1)))
				_, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("b", "b1", 2), inQueue("a", "a2", 3), inQueue("a", "a3", 4)})
				require.NoError(t, err)
				stop := b.runsDeferred()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, []string{"done b1", "done a1", "done a2", "done a3"}, done(b))
				stop()
			})
		})
	}
}

// The words of the user's own decoder are kept. Quotes of encoding/json are removed, even inside of
// them.
func TestReread_WordsOfTheDecoder(t *testing.T) {
	for want, decode := range map[string]func(*idem.Message, any) error{
		"decode into struct {}: schema 7 is not registered": func(*idem.Message, any) error { return errors.New("schema 7 is not registered") },
		"decode into struct {}: order 7: json: cannot unmarshal string at byte 17 into Go struct field .A of type int": func(*idem.Message, any) error {
			var into struct{ A int }
			return fmt.Errorf("order 7: %w", json.Unmarshal([]byte(`{"a":"`+secretText+`"}`), &into))
		},
		"decode into struct {}: permanent: no such schema": func(*idem.Message, any) error { return idem.Permanent(errors.New("no such schema")) },
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			idem.On(b.router, "paid", func(context.Context, idem.Event[struct{}]) error { return nil }, idem.Decode(decode))
			require.NoError(t, b.start().Handle(t.Context(), message("e1", 1)))
			require.Contains(t, b.log.String(), want)
			require.NotContains(t, b.log.String(), secretText)
			require.Equal(t, want, headerOf(b.sent.deadLetters()[0], deadletter.HeaderError))
		})
	}
}

// A source of types that cannot answer now is waited for: another source might lead to another
// handler.
func TestReread_TypeOfTheFirstSourceIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		down := times(2, idem.Unavailable(errBoom))
		first := idem.Type(idem.FromFunc("test", func(*idem.Message) (string, error) { return "paid", down() }))
		idem.On(b.router, "paid", func(context.Context, idem.Event[payload]) error { b.add("first"); return nil }, first)
		idem.On(b.router, "paid", func(context.Context, idem.Event[payload]) error { b.add("second"); return nil })
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 1)))
		require.Equal(t, 1, b.count("first"), "%v", b.all())
		require.Zero(t, b.count("second"))
	})
}
