package idem_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// The attempts of a dead letter are runs that began.
func TestProcessor_AttemptsOfRefusedEvents(t *testing.T) {
	attempts := func(t *testing.T, b *bench, class idem.Class) string {
		t.Helper()
		letters := b.sent.deadLetters()
		require.NotEmpty(t, letters)
		last := letters[len(letters)-1]
		require.Equal(t, string(class), headerOf(last, deadletter.HeaderErrorClass))
		return headerOf(last, deadletter.HeaderAttempts)
	}
	t.Run("spent", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			b.cfg.BusyWait = time.Second
			b.sent.fail = func(*idem.Message) error { return errBoom }
			b.on(failing(100, errBoom), idem.Retry(idem.RetryPolicy{MaxAttempts: 2}))
			p := b.start()
			require.Error(t, p.Handle(t.Context(), message("e1", 0)))
			b.sent.fail = nil
			require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
			require.Equal(t, 2, b.count("run 1")+b.count("run 2"))
			require.Equal(t, "2", attempts(t, b, idem.ClassFailed))
		})
	})
	t.Run("uncertain", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			claimAs(t, b, "e1", time.Second)
			b.on(succeed, idem.WhenUncertain(idem.DeadLetterUncertain))
			require.NoError(t, b.start().Handle(t.Context(), message("e1", 5)))
			require.Equal(t, "1", attempts(t, b, idem.ClassUncertain), "that of the holder who died")
		})
	})
	t.Run("crash loop", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			b.on(succeed)
			p := b.start()
			for range 4 {
				var a [1]dedup.Answer
				req := dedup.Request{Key: dedup.Key{Scope: "g", Type: "paid", ID: "e1"}, Retention: time.Hour}
				require.NoError(t, b.store.Store.Claim(t.Context(), dedup.NewToken(), time.Second, []dedup.Request{req}, a[:]))
				time.Sleep(2 * time.Second)
			}
			require.NoError(t, p.Handle(t.Context(), message("e1", 5)))
			require.Equal(t, "4", attempts(t, b, idem.ClassCrashLoop))
		})
	})
	for _, tx := range []bool{false, true} {
		t.Run(fmt.Sprintf("not before, handler blocks since/tx=%v", tx), func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
				begun := 0
				later := func() error {
					if begun++; begun == 1 {
						return errBoom
					}
					return idem.RetryAfter(time.Hour, errBoom)
				}
				register := func(b *bench, opts ...idem.Option) *idem.Processor {
					if tx {
						b.onGroup(func(context.Context, *groupTx, idem.Event[payload]) error { return later() }, opts...)
					} else {
						b.on(func(context.Context, idem.Event[payload]) error { return later() }, opts...)
					}
					return b.start()
				}
				if !tx {
					b.cfg.Store = b.store
				}
				p := register(b, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.RetryTopics(time.Second, time.Minute))
				require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
				time.Sleep(time.Second)
				require.NoError(t, p.Handle(t.Context(), b.sent.deadLetters()[0]))
				require.Len(t, b.sent.deadLetters(), 2)
				next := newBench(t)
				next.cfg.Store = b.cfg.Store
				p = register(next)
				time.Sleep(time.Minute)
				require.NoError(t, p.Handle(t.Context(), b.sent.deadLetters()[1]))
				require.NoError(t, p.Close())
				require.Equal(t, 2, begun)
				// RetryAfter beyond the longest delay counts no attempt (rule 42), and no handler
				// ran since.
				require.Equal(t, "1", headerOf(b.sent.deadLetters()[1], deadletter.HeaderAttempts))
				require.Equal(t, "1", attempts(t, next, idem.ClassRetryAfter))
			})
		})
	}
}
