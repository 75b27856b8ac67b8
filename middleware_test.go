package idem_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
)

// around returns middleware that writes down the begin and the end of each call.
func (b *bench) around(name string) idem.Middleware {
	return func(next idem.HandlerFunc) idem.HandlerFunc {
		return func(ctx context.Context, c *idem.Call) error {
			b.add("%s in", name)
			err := next(ctx, c)
			b.add("%s out %v", name, err)
			return err
		}
	}
}

// instead returns middleware that does fn instead of a call of next.
func instead(fn func(ctx context.Context, c *idem.Call, next idem.HandlerFunc) error) idem.Middleware {
	return func(next idem.HandlerFunc) idem.HandlerFunc {
		return func(ctx context.Context, c *idem.Call) error { return fn(ctx, c, next) }
	}
}

// shapes registers a handler of each shape that adds a line "run" for each call.
var shapes = map[string]func(b *bench, fn func(context.Context) error, opts ...idem.Option){
	"On": func(b *bench, fn func(context.Context) error, opts ...idem.Option) {
		idem.On(b.router, "paid", func(ctx context.Context, _ idem.Event[payload]) error {
			b.add("run")
			return fn(ctx)
		}, opts...)
	},
	"OnTx": func(b *bench, fn func(context.Context) error, opts ...idem.Option) {
		idem.OnTx(b.router, "paid", func(ctx context.Context, _ *groupTx, _ idem.Event[payload]) error {
			b.add("run")
			return fn(ctx)
		}, opts...)
	},
	"OnBatch": func(b *bench, fn func(context.Context) error, opts ...idem.Option) {
		idem.OnBatch(b.router, "paid", func(ctx context.Context, _ []idem.Event[payload]) error {
			b.add("run")
			return fn(ctx)
		}, opts...)
	},
	"OnBatchTx": func(b *bench, fn func(context.Context) error, opts ...idem.Option) {
		idem.OnBatchTx(b.router, "paid", func(ctx context.Context, _ *groupTx, _ []idem.Event[payload]) error {
			b.add("run")
			return fn(ctx)
		}, opts...)
	},
}

// inShapes runs f for each shape of handlers.
func inShapes(t *testing.T, f func(t *testing.T, b *bench, shape string)) {
	t.Helper()
	for name := range shapes {
		t.Run(name, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) { f(t, b, name) })
		})
	}
}

func fineRun(context.Context) error { return nil }

type ctxKey struct{}

func TestMiddleware_OrderAndContext(t *testing.T) {
	inShapes(t, func(t *testing.T, b *bench, shape string) {
		b.router.Use(b.around("first"), b.around("second"))
		b.router.Use(instead(func(ctx context.Context, c *idem.Call, next idem.HandlerFunc) error {
			return next(context.WithValue(ctx, ctxKey{}, "seen"), c)
		}))
		shapes[shape](b, func(ctx context.Context) error {
			b.add("context %v", ctx.Value(ctxKey{}))
			return nil
		})
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		want := []string{"first in", "second in", "run", "context seen", "second out <nil>", "first out <nil>"}
		var got []string
		for _, l := range b.all() {
			for _, w := range want {
				if l == w {
					got = append(got, l)
				}
			}
		}
		require.Equal(t, want, got)
	})
}

func TestMiddleware_SeesTheCall(t *testing.T) {
	inShapes(t, func(t *testing.T, b *bench, shape string) {
		var mu sync.Mutex
		var seen []string
		b.router.Use(instead(func(ctx context.Context, c *idem.Call, next idem.HandlerFunc) error {
			mu.Lock()
			defer mu.Unlock()
			for i := range c.Len() {
				e := c.Event(i)
				require.Equal(t, 7, e.Data.(*payload).Amount)
				require.Equal(t, "g", e.Identity().Scope)
				require.Len(t, e.IdempotencyKey(), 36)
				seen = append(seen, fmt.Sprint(e.ID, e.Type, e.Tenant, e.Attempt, e.Uncertain, e.Message.Offset))
			}
			require.Equal(t, "pay", c.Handler())
			require.Equal(t, "paid", c.Type())
			require.Equal(t, shape == "OnBatch" || shape == "OnBatchTx", c.Batch())
			if _, ok := c.Tx().(*groupTx); shape == "OnTx" || shape == "OnBatchTx" {
				require.True(t, ok)
			} else {
				require.Nil(t, c.Tx())
			}
			return next(ctx, c)
		}))
		shapes[shape](b, fineRun, idem.Name("pay"), idem.Tenant(idem.Fixed("acme")))
		_, err := b.start().HandleBatch(t.Context(), series(2))
		require.NoError(t, err)
		require.Equal(t, []string{"e000paidacme1 false 0", "e001paidacme1 false 1"}, seen)
	})
}

// A change behind the pointer reaches the handler, such as a field that a middleware decrypts.
func TestMiddleware_ChangesTheData(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.router.Use(instead(func(ctx context.Context, c *idem.Call, next idem.HandlerFunc) error {
			c.Event(0).Data.(*payload).Amount = 8
			return next(ctx, c)
		}))
		b.on(func(_ context.Context, e idem.Event[payload]) error { b.add("amount %d", e.Data.Amount); return nil })
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("amount 8"))
	})
}

// An error without a call of next is classified as one of the handler is.
func TestMiddleware_Refuses(t *testing.T) {
	inShapes(t, func(t *testing.T, b *bench, shape string) {
		b.router.Use(instead(func(context.Context, *idem.Call, idem.HandlerFunc) error {
			return idem.Permanent(errors.New("not allowed"))
		}))
		shapes[shape](b, fineRun)
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Zero(t, b.count("run"))
		require.Len(t, b.sent.deadLetters(), 1)
		require.Equal(t, "permanent", headerOf(b.sent.deadLetters()[0], deadletter.HeaderErrorClass))
	})
}

func TestMiddleware_RefusesForAWhile(t *testing.T) {
	inShapes(t, func(t *testing.T, b *bench, shape string) {
		refuse := times(2, idem.NotApplied(errBoom))
		b.router.Use(instead(func(ctx context.Context, c *idem.Call, next idem.HandlerFunc) error {
			if err := refuse(); err != nil {
				return err
			}
			b.add("attempt %d", c.Event(0).Attempt)
			return next(ctx, c)
		}))
		shapes[shape](b, fineRun)
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run"))
		require.Equal(t, 1, b.count("attempt 3"))
		require.Empty(t, b.sent.deadLetters())
	})
}

// A middleware that forgets next loses no event.
func TestMiddleware_NilWithoutNext(t *testing.T) {
	inShapes(t, func(t *testing.T, b *bench, shape string) {
		b.router.Use(instead(func(context.Context, *idem.Call, idem.HandlerFunc) error { return nil }))
		shapes[shape](b, fineRun)
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Zero(t, b.count("run"))
		require.Len(t, b.sent.deadLetters(), 1)
		require.Contains(t, headerOf(b.sent.deadLetters()[0], deadletter.HeaderError), idem.ErrNextNotCalled.Error())
	})
}

func TestMiddleware_Handled(t *testing.T) {
	inShapes(t, func(t *testing.T, b *bench, shape string) {
		b.router.Use(instead(func(_ context.Context, c *idem.Call, _ idem.HandlerFunc) error {
			b.add("middleware")
			c.Handled()
			return nil
		}))
		shapes[shape](b, fineRun)
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.NoError(t, p.Handle(t.Context(), message("e1", 1)), "a copy")
		require.Equal(t, 1, b.count("middleware"), "the event is recorded as done")
		require.Zero(t, b.count("run"))
		require.Empty(t, b.sent.deadLetters())
	})
}

// A second call of next after a success repeats no effect, also not by a retry.
func TestMiddleware_NextTwiceAfterASuccess(t *testing.T) {
	for _, n := range []int{1, 3} {
		inShapes(t, func(t *testing.T, b *bench, shape string) {
			b.router.Use(instead(func(ctx context.Context, c *idem.Call, next idem.HandlerFunc) error {
				return errors.Join(next(ctx, c), next(ctx, c))
			}))
			shapes[shape](b, fineRun)
			_, err := b.start().HandleBatch(t.Context(), series(n))
			require.NoError(t, err)
			switch shape { // a transaction is rolled back, so its runs have no effect
			case "On":
				require.Equal(t, n, b.count("run"))
			case "OnBatch":
				require.Equal(t, 1, b.count("run"))
			}
			require.Len(t, b.sent.deadLetters(), n)
			require.Equal(t, "permanent", headerOf(b.sent.deadLetters()[0], deadletter.HeaderErrorClass))
		})
	}
}

// twice calls next again and returns the second result alone.
func twice(ctx context.Context, c *idem.Call, next idem.HandlerFunc) error {
	if err := next(ctx, c); err == nil {
		return next(ctx, c)
	}
	return next(ctx, c)
}

func TestMiddleware_NextTwiceRunsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.router.Use(instead(twice))
		b.onBatch(succeedAll)
		_, err := b.start().HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, 1, b.count("batch [e000 e001 e002]"))
		for i := range 3 {
			require.Zero(t, b.count(fmt.Sprintf("batch [e%03d]", i)), "no event runs again")
		}
		require.Len(t, b.sent.deadLetters(), 3)
	})
}

// After a failure, the second call of next returns that failure: the marks and names of events
// stay.
func TestMiddleware_NextTwiceAfterAFailure(t *testing.T) {
	inShapes(t, func(t *testing.T, b *bench, shape string) {
		var second error
		b.router.Use(instead(func(ctx context.Context, c *idem.Call, next idem.HandlerFunc) error {
			err := next(ctx, c)
			if err != nil {
				second = next(ctx, c)
				return second
			}
			return nil
		}))
		fail := times(2, idem.NotApplied(errBoom))
		shapes[shape](b, func(context.Context) error { return fail() })
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.ErrorIs(t, second, idem.ErrNextTwice)
		require.ErrorIs(t, second, errBoom)
		require.Equal(t, "not_applied", idem.ErrorMark(second))
		require.Equal(t, 3, b.count("run"), "once for each attempt")
		require.Empty(t, b.sent.deadLetters())
	})
}

func TestMiddleware_NextTwiceKeepsTheNamesOfABatch(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.router.Use(instead(twice))
		b.onBatch(func(_ context.Context, e []idem.Event[payload]) error {
			if len(e) == 3 {
				return idem.BatchError{1: idem.Permanent(errBoom)}
			}
			return nil
		})
		_, err := b.start().HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Len(t, b.sent.deadLetters(), 1)
		require.Equal(t, 1, b.count("batch [e000 e001 e002]"))
		require.Zero(t, b.count("batch [e000]"))
	})
}

func TestMiddleware_PanicsKeepTheirMeaning(t *testing.T) {
	once := idem.Retry(idem.RetryPolicy{MaxAttempts: 1})
	quiet := instead(func(ctx context.Context, c *idem.Call, next idem.HandlerFunc) error {
		defer func() { _ = recover() }()
		return next(ctx, c)
	})
	for name, c := range map[string]struct {
		use  func(*bench) idem.Middleware
		run  func(context.Context) error
		want string
	}{
		"of the handler": {
			func(b *bench) idem.Middleware { return b.around("m") },
			func(context.Context) error { panic("boom") }, "panic",
		},
		"recovered, and nil": {
			func(*bench) idem.Middleware { return quiet },
			func(context.Context) error { panic("boom") }, "panic",
		},
		"of the middleware": {
			func(*bench) idem.Middleware {
				return instead(func(context.Context, *idem.Call, idem.HandlerFunc) error { panic("boom") })
			},
			fineRun, "panic",
		},
		"recovered, with an error": {
			func(*bench) idem.Middleware {
				return instead(func(ctx context.Context, c *idem.Call, next idem.HandlerFunc) (err error) {
					defer func() {
						if recover() != nil {
							err = idem.Permanent(errBoom)
						}
					}()
					return next(ctx, c)
				})
			},
			func(context.Context) error { panic("boom") }, "permanent",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inShapes(t, func(t *testing.T, b *bench, shape string) {
				b.router.Use(c.use(b))
				shapes[shape](b, c.run, once)
				require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
				require.Len(t, b.sent.deadLetters(), 1)
				require.Equal(t, c.want, headerOf(b.sent.deadLetters()[0], deadletter.HeaderErrorClass))
			})
		})
	}
}

// A group has the middleware of its router outside of its own.
func TestMiddleware_Groups(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		root := b.router
		group := root.With()
		root.Use(b.around("root"))
		group.Use(b.around("group"))
		idem.On(group, "paid", succeed)
		idem.On(root, "other", succeed)
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"root in", "group in", "group out <nil>", "root out <nil>"}, b.without("claim", "complete"))
		require.NoError(t, p.Handle(t.Context(), keyed("other", "e2", "", 1)))
		require.Equal(t, 1, b.count("group in"))
		require.Equal(t, 2, b.count("root in"))
	})
}

// without returns the lines of the journal that do not begin with one of these words.
func (j *journal) without(words ...string) (left []string) {
	for _, l := range j.all() {
		keep := true
		for _, w := range words {
			keep = keep && (len(l) < len(w) || l[:len(w)] != w)
		}
		if keep {
			left = append(left, l)
		}
	}
	return left
}

func TestMiddleware_Mistakes(t *testing.T) {
	none := func(idem.HandlerFunc) idem.HandlerFunc { return nil }
	pass := func(next idem.HandlerFunc) idem.HandlerFunc { return next }
	for name, c := range map[string]struct {
		register func(*idem.Router)
		want     string
	}{
		"after a handler": {func(r *idem.Router) { idem.On(r, "paid", succeed); r.Use(pass) }, "call Use before On"},
		"after a handler of a group": {func(r *idem.Router) {
			idem.On(r.With().With(), "paid", succeed)
			r.Use(pass)
		}, "call Use before On"},
		"nil":         {func(r *idem.Router) { r.Use(pass, nil); idem.On(r, "paid", succeed) }, "middleware is nil"},
		"returns nil": {func(r *idem.Router) { r.Use(pass, none); idem.On(r, "paid", succeed) }, "middleware 2 returned nil"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			c.register(b.router)
			_, err := idem.NewProcessor(b.router, b.cfg)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "middleware_test.go:")
		})
	}
	t.Run("a group beside it", func(t *testing.T) {
		b := newBench(t)
		idem.On(b.router.With(), "paid", succeed)
		b.router.With().Use(pass)
		b.start()
		require.NoError(t, b.p.Close())
	})
}
