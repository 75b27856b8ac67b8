package idem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// The service of a decoder is down for a while: events wait in their order, no attempt is counted,
// and the outage is said once.
func TestDecodeWith_Unavailable(t *testing.T) {
	decoderForms(t, func(t *testing.T, b *bench, on func(func(idem.Event[payload]), ...idem.Option)) {
		d := newSchemas().downFor(50)
		d.ping = func() error { return errRegistryDown }
		var got []string
		on(func(e idem.Event[payload]) {
			require.Equal(t, 7, e.Data.Amount)
			require.Equal(t, 1, e.Attempt)
			require.False(t, e.Uncertain)
			got = append(got, e.ID)
		}, idem.DecodeWith(d))
		p := b.start()
		var during []string
		d.during = func() { during = p.Status().Down }
		n, err := p.HandleBatch(t.Context(), []*idem.Message{
			withSchema("e1", 1, "7"), withSchema("e2", 2, "8"), withSchema("e3", 3, "7"), withSchema("e4", 4, "8"),
		})
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.Equal(t, []string{"e1", "e2", "e3", "e4"}, got)
		require.Empty(t, b.sent.deadLetters())
		require.Equal(t, 52, d.asked, "each schema is asked for until there is an answer")
		log := b.log.String()
		require.Equal(t, 1, strings.Count(log, "registry of the test unavailable, pausing"), log)
		require.Equal(t, 1, strings.Count(log, "registry of the test is back"), log)
		require.Contains(t, log, errRegistryDown.Error())
		require.Empty(t, p.Status().Down)
		require.Empty(t, during, "the second schema is asked for after the outage")
	})
}

// While the service is asked, neither a claim nor a transaction is held.
func TestDecodeWith_HoldsNothingWhileAsking(t *testing.T) {
	decoderForms(t, func(t *testing.T, b *bench, on func(func(idem.Event[payload]), ...idem.Option)) {
		d := newSchemas()
		on(func(idem.Event[payload]) {}, idem.DecodeWith(d), idem.NoContentCheck())
		p := b.start()
		other := newBench(t)
		other.cfg.Store = b.store
		other.on(succeed, idem.NoContentCheck())
		other.start()
		d.during = func() {
			time.Sleep(9 * time.Second) // nearly a lease
			claims := b.count("claim: fresh")
			ends := b.count("release: unstarted") + b.count("complete: done") + b.count("claim: done")
			require.LessOrEqual(t, claims, ends, "%v", b.all())
			require.Zero(t, b.cfg.Store.(*groupStore).open.Load(), "open transactions")
			began := time.Now()
			require.NoError(t, other.p.Handle(t.Context(), withSchema(fmt.Sprintf("free%d", d.asked), 90, "1")))
			require.Zero(t, time.Since(began))
		}
		n, err := p.HandleBatch(t.Context(), []*idem.Message{
			withSchema("e1", 1, "7"), withSchema("e2", 2, "7"), withSchema("e3", 3, "8"),
		})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, 2, d.asked)
		require.NoError(t, other.p.Close())
	})
}

// A duplicate with its identity in headers is settled while the service is down, also at most once.
func TestDecodeWith_DuplicatesNeedNoService(t *testing.T) {
	for _, more := range [][]idem.Option{nil, {idem.WhenUncertain(idem.DeadLetterUncertain)}} {
		decoderForms(t, func(t *testing.T, b *bench, on func(func(idem.Event[payload]), ...idem.Option)) {
			d, runs := newSchemas(), 0
			on(func(idem.Event[payload]) { runs++ }, append(more, idem.DecodeWith(d))...)
			msgs := []*idem.Message{withSchema("e1", 1, "7"), withSchema("e2", 2, "7"), withSchema("e3", 3, "8")}
			first := b.start()
			_, err := first.HandleBatch(t.Context(), msgs)
			require.NoError(t, err)
			require.NoError(t, first.Close())
			require.Equal(t, 3, runs)
			clear(d.known) // another process
			d.downFor(1 << 20)
			asked := d.asked
			began := time.Now()
			n, err := b.start().HandleBatch(t.Context(), append(msgs, withSchema("e1", 9, "7")))
			require.NoError(t, err)
			require.Equal(t, 4, n)
			require.Equal(t, 3, runs)
			require.Equal(t, asked, d.asked)
			require.Zero(t, time.Since(began))
		})
	}
}

// An error without a mark is the event's fault: one dead letter with the decoder's own words,
// recorded once.
func TestDecodeWith_Undecodable(t *testing.T) {
	decoderForms(t, func(t *testing.T, b *bench, on func(func(idem.Event[payload]), ...idem.Option)) {
		d := newSchemas()
		d.answer = func(schema string) error {
			if schema == "404" {
				return errors.New("schema 404 is unknown to the registry")
			}
			return nil
		}
		var got []string
		on(func(e idem.Event[payload]) { got = append(got, e.ID) }, idem.DecodeWith(d))
		p := b.start()
		began := time.Now()
		n, err := p.HandleBatch(t.Context(), []*idem.Message{
			withSchema("e1", 1, "7"), withSchema("e2", 2, "404"), withSchema("e3", 3, "7"), withSchema("e2", 2, "404"),
		})
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.Zero(t, time.Since(began))
		require.Equal(t, []string{"e1", "e3"}, got)
		require.Len(t, b.sent.deadLetters(), 1, "%v", b.all())
		l := b.sent.deadLetters()[0]
		require.Equal(t, string(idem.ClassUndecodable), headerOf(l, deadletter.HeaderErrorClass))
		require.Contains(t, headerOf(l, deadletter.HeaderError), "schema 404 is unknown to the registry")
		require.Equal(t, "e2", headerOf(l, deadletter.HeaderEventID))
		require.Contains(t, b.log.String(), "schema 404 is unknown to the registry")
		require.Empty(t, p.Status().Down)
	})
}

// Shadow mode runs duplicates too, so it waits for the service, and records as usual.
func TestDecodeWith_Shadow(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.Shadow = true
		d := newSchemas().downFor(5)
		b.on(succeed, idem.DecodeWith(d))
		n, err := b.start().HandleBatch(t.Context(), []*idem.Message{withSchema("e1", 1, "7"), withSchema("e1", 2, "7")})
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, 2, b.count("run 1"), "%v", b.all())
		require.Empty(t, b.sent.deadLetters())
		require.Equal(t, 6, d.asked)
	})
}

// A service that hangs is cut off after ReadTimeout and counts as unavailable, for every error of
// the decoder.
func TestDecodeWith_Hangs(t *testing.T) {
	decoderForms(t, func(t *testing.T, b *bench, on func(func(idem.Event[payload]), ...idem.Option)) {
		d, runs := newSchemas(), 0
		d.during = func() {
			if d.asked <= 3 {
				hang()
			}
		}
		on(func(idem.Event[payload]) { runs++ }, idem.DecodeWith(d))
		began := time.Now()
		require.NoError(t, b.start().Handle(t.Context(), withSchema("e1", 1, "7")))
		require.Equal(t, 1, runs)
		require.Empty(t, b.sent.deadLetters())
		require.GreaterOrEqual(t, time.Since(began), 3*idem.ReadTimeout)
	})
}

// A stop and a lost partition end the question. The event is neither settled nor dead-lettered.
func TestDecodeWith_Stop(t *testing.T) {
	for _, cause := range []error{idem.ErrStopping, idem.ErrPartitionLost} {
		decoderForms(t, func(t *testing.T, b *bench, on func(func(idem.Event[payload]), ...idem.Option)) {
			d, runs := newSchemas(), 0
			d.during = func() { time.Sleep(2 * time.Second) }
			on(func(idem.Event[payload]) { runs++ }, idem.DecodeWith(d))
			p := b.start()
			ctx, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { stop(cause) })
			d.answer = func(string) error {
				if ctx.Err() != nil {
					return errors.New("the question was cut off") // a client that hides the cause
				}
				return nil
			}
			n, err := p.HandleBatch(ctx, []*idem.Message{withSchema("e1", 1, "7"), withSchema("e2", 2, "7")})
			require.ErrorIs(t, err, cause)
			require.Zero(t, n)
			require.Zero(t, runs)
			require.Empty(t, b.sent.deadLetters())
			d.answer = nil
			n, err = p.HandleBatch(t.Context(), []*idem.Message{withSchema("e1", 1, "7"), withSchema("e2", 2, "7")})
			require.NoError(t, err)
			require.Equal(t, 2, n)
			require.Equal(t, 2, runs)
		})
	}
}

// RetryPolicy.Outage counts only while the service answers a ping: then the event may be the cause.
func TestDecodeWith_Outage(t *testing.T) {
	for name, ping := range map[string]error{"answers": nil, "does not answer": errRegistryDown} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				d := newSchemas().downFor(3000) // more than an hour
				d.ping = func() error { return ping }
				b.on(succeed, idem.DecodeWith(d))
				p := b.start()
				require.NoError(t, p.Handle(t.Context(), withSchema("e1", 1, "7")))
				require.Empty(t, p.Status().Down)
				if ping != nil {
					require.Empty(t, b.sent.deadLetters())
					require.Equal(t, 1, b.count("run 1"))
					return
				}
				require.Len(t, b.sent.deadLetters(), 1)
				require.Zero(t, b.count("run 1"))
			})
		})
	}
}

// The caller's budget ends the wait, and the messages come again: the outage is still said once.
func TestDecodeWith_SaidOnceOverManyCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.BusyWait = 50 * time.Millisecond
		d := newSchemas().downFor(40)
		b.on(succeed, idem.DecodeWith(d))
		p := b.start()
		calls := 0
		for {
			calls++
			err := p.Handle(t.Context(), withSchema("e1", 1, "7"))
			if err == nil {
				break
			}
			var wait *idem.WaitError
			require.ErrorAs(t, err, &wait)
			require.ErrorIs(t, err, dedup.ErrUnavailable)
			require.Equal(t, []string{"registry of the test"}, p.Status().Down)
			time.Sleep(wait.After)
		}
		require.Greater(t, calls, 10)
		require.Equal(t, 1, strings.Count(b.log.String(), "unavailable, pausing"), b.log.String())
		require.Equal(t, 1, strings.Count(b.log.String(), "is back"), b.log.String())
		require.Empty(t, p.Status().Down)
	})
}

// T may be a pointer, which the decoder gets as it is. The data of two events and of two runs are
// never shared.
func TestDecodeWith_Pointer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		d := newSchemas()
		var got []*payload
		idem.On(b.router, "paid", func(_ context.Context, e idem.Event[*payload]) error {
			require.Equal(t, 7, e.Data.Amount, "a failed run has changed its own copy only")
			e.Data.Amount = 8
			if got = append(got, e.Data); len(got) == 1 {
				return errBoom
			}
			return nil
		}, idem.DecodeWith(d))
		_, err := b.start().HandleBatch(t.Context(), []*idem.Message{withSchema("e1", 1, "7"), withSchema("e2", 2, "7")})
		require.NoError(t, err)
		require.Len(t, got, 3)
		require.NotSame(t, got[0], got[1])
		require.NotSame(t, got[1], got[2])
	})
}

// lockedMessage looks like a Protobuf message.
type lockedMessage struct{ X int }

func (*lockedMessage) ProtoReflect() {}

func TestDecodeWith_Mistakes(t *testing.T) {
	b := newBench(t)
	b.on(succeed, idem.DecodeWith(nil))
	_, err := idem.NewProcessor(b.router, b.cfg)
	require.ErrorContains(t, err, "DecodeWith must not be nil")
	var none *schemas
	b = newBench(t)
	b.on(succeed, idem.DecodeWith(none))
	_, err = idem.NewProcessor(b.router, b.cfg)
	require.ErrorContains(t, err, "DecodeWith must not be nil")
	b = newBench(t)
	idem.On(b.router, "paid", func(context.Context, idem.Event[lockedMessage]) error { return nil })
	_, err = idem.NewProcessor(b.router, b.cfg)
	require.ErrorContains(t, err, "use *idem_test.lockedMessage")
}

// A deferred event, a copy in a retry topic, and the event behind them wait for the service in
// their places.
func TestDecodeWith_LaterAttempts(t *testing.T) {
	for name, mode := range map[string]idem.Option{
		"KeyOrdered": idem.KeyOrdered(time.Second), "RetryTopics": idem.RetryTopics(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				d := newSchemas()
				d.ping = func() error { return errRegistryDown }
				b.on(func(_ context.Context, e idem.Event[payload]) error {
					if e.ID == "e1" && e.Attempt == 1 {
						clear(d.known) // as in another process, in which the registry is down
						d.downFor(30)
						return errBoom
					}
					b.add("done %s in attempt %d", e.ID, e.Attempt)
					return nil
				}, once, mode, idem.DecodeWith(d))
				p := b.start()
				_, err := p.HandleBatch(t.Context(), []*idem.Message{withSchema("e1", 1, "7"), withSchema("e2", 2, "7")})
				require.NoError(t, err)
				if name == "KeyOrdered" {
					defer b.runsDeferred()()
					time.Sleep(5 * time.Minute)
					require.Equal(t, []string{"done e1 in attempt 2", "done e2 in attempt 1"}, done(b))
				} else {
					require.Len(t, b.deliverCopies(), 1)
					require.Equal(t, []string{"done e2 in attempt 1", "done e1 in attempt 2"}, done(b))
				}
				for _, l := range b.sent.deadLetters() {
					require.Equal(t, "orders.g.retry.1s", l.Topic, "%v", b.all())
				}
				require.Empty(t, p.Status().Down)
			})
		})
	}
}

// Lanes that wait for the same service say so once, and end the report when their partitions are
// lost.
func TestDecodeWith_SaidOnceForAllLanes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		d := newSchemas().downFor(1 << 20)
		b.on(succeed, idem.DecodeWith(d))
		p := b.start()
		ctx, stop := context.WithCancelCause(t.Context())
		var lanes sync.WaitGroup
		for i := range int64(8) {
			lanes.Go(func() {
				_, err := p.HandleBatch(ctx, []*idem.Message{withSchema(fmt.Sprintf("e%d", i), i, fmt.Sprint(i))})
				require.ErrorIs(t, err, idem.ErrPartitionLost)
			})
		}
		time.Sleep(time.Minute)
		require.Equal(t, []string{"registry of the test"}, p.Status().Down)
		require.Equal(t, 1, strings.Count(b.log.String(), "unavailable, pausing"), b.log.String())
		stop(idem.ErrPartitionLost)
		lanes.Wait()
		require.Empty(t, p.Status().Down)
		require.Empty(t, b.sent.deadLetters())
	})
}
