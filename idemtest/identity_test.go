package idemtest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	text string
}

func (r *recorder) Errorf(format string, args ...any) { r.text += fmt.Sprintf(format, args...) + "\n" }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// failure returns the text of the failure of a test. It is empty if the test passes.
func failure(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	r, done := &recorder{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return r.text
}

type order struct {
	EventID string `json:"event_id,omitempty"`
	Type    string `json:"type,omitempty"`
	Shop    string `json:"shop,omitempty"`
	Number  string `json:"number,omitempty"`
	Amount  int    `json:"amount"`
}

// orders handles orders of some types.
func orders(r *idem.Router, types []string, opts ...idem.Option) *idem.Router {
	for _, typ := range types {
		idem.On(r, typ, func(context.Context, idem.Event[order]) error { return nil }, opts...)
	}
	return r
}

func inValue(id, typ string, amount int) idemtest.Record {
	return idemtest.Record{Value: order{EventID: id, Type: typ, Amount: amount}}
}

func TestConsumer_Identity(t *testing.T) {
	bubble("in the value", t, func(t *testing.T) {
		c := idemtest.Run(t, orders(idem.NewRouter(), []string{"paid"}))
		c.Deliver(inValue("e1", "paid", 7))
		c.Duplicate("e1")
		c.Conflict("e1", order{EventID: "e1", Type: "paid", Amount: 8})
		c.HandledOnce("e1")
		require.Equal(t, 1, c.Handled("e1"))
		require.Equal(t, 1, c.Runs("e1"))
		require.Equal(t, 2, c.Duplicates("e1"))
		require.Equal(t, 1, c.Conflicts("e1"))
		require.Contains(t, failure(t, func(tb testing.TB) {
			c := idemtest.Run(tb, orders(idem.NewRouter(), []string{"paid"}))
			c.Deliver(inValue("e1", "paid", 7))
			c.HandledOnce("e2")
		}), `no delivered record and no event has the ID "e2": the IDs are ["e1"]`)
	})
	bubble("of several parts", t, func(t *testing.T) {
		for _, from := range []idem.Extractor{
			idem.Joined(idem.FromJSON("shop"), idem.FromJSON("number")),
			idem.Hashed(idem.FromJSON("shop"), idem.FromJSON("number")),
		} {
			c := idemtest.Run(t, orders(idem.NewRouter(), []string{"paid"}, idem.ID(from), idem.NoContentCheck()))
			c.Deliver(
				idemtest.Record{ID: "m-1", Type: "paid", Value: order{Shop: "s", Number: "1"}},
				idemtest.Record{ID: "m-2", Type: "paid", Value: order{Shop: "s", Number: "1"}},
				idemtest.Record{ID: "m-3", Type: "paid", Value: order{Shop: "s", Number: "2"}},
			)
			c.HandledOnce("m-1", "m-2", "m-3")
			require.Equal(t, 1, c.Runs("m-1"))
			require.Equal(t, 1, c.Runs("m-2"))
			require.Equal(t, 1, c.Duplicates("m-1"))
			require.Equal(t, 1, c.Duplicates("m-2"))
			require.Zero(t, c.Duplicates("m-3"))
			c.Duplicate("m-2")
			require.Equal(t, 2, c.Duplicates("m-1"))
		}
	})
	bubble("in batches", t, func(t *testing.T) {
		r := idem.NewRouter()
		idem.OnBatch(r, "paid", func(context.Context, []idem.Event[order]) error { return nil })
		c := idemtest.Run(t, r)
		c.Deliver(inValue("e1", "paid", 7), inValue("e2", "paid", 7), inValue("e1", "paid", 7))
		c.HandledOnce("e1", "e2")
		require.Equal(t, 1, c.Duplicates("e1"))
	})
	bubble("in retry topics", t, func(t *testing.T) {
		var up atomic.Bool
		r := idem.NewRouter()
		idem.On(r, "paid", func(context.Context, idem.Event[order]) error {
			if up.Load() {
				return nil
			}
			return errors.New("later")
		}, idem.RetryTopics(time.Minute))
		c := idemtest.Run(t, r)
		c.Deliver(inValue("e1", "paid", 7))
		require.Zero(t, c.Handled("e1"))
		require.Equal(t, "e1", c.Waiting()[0].ID)
		up.Store(true)
		c.Advance(time.Minute)
		c.HandledOnce("e1")
		require.Equal(t, 6, c.Runs("e1"))
	})
	bubble("of deferred events", t, func(t *testing.T) {
		var up atomic.Bool
		r := idem.NewRouter()
		idem.On(r, "paid", func(context.Context, idem.Event[order]) error {
			if up.Load() {
				return nil
			}
			return errors.New("later")
		}, idem.KeyOrdered(time.Minute))
		c := idemtest.Run(t, r)
		one, two := inValue("e1", "paid", 7), inValue("e2", "paid", 7)
		one.Key, two.Key = "k", "k"
		c.Deliver(one, two)
		require.Zero(t, c.Handled("e1"))
		require.Zero(t, c.Runs("e2"))
		up.Store(true)
		c.Advance(2 * time.Minute)
		c.HandledOnce("e1", "e2")
		require.Equal(t, 6, c.Runs("e1"))
		c.Duplicate("e2")
		c.HandledOnce("e2")
		require.Equal(t, 1, c.Duplicates("e2"))
	})
	bubble("none", t, func(t *testing.T) {
		c := idemtest.Run(t, orders(idem.NewRouter(), []string{"paid"}, idem.WhenNoID(idem.RunNoID)))
		c.Deliver(
			idemtest.Record{Type: "paid", Value: order{Amount: 7}},
			idemtest.Record{Type: "paid", Value: order{EventID: "e1"}},
			idemtest.Record{ID: "gone", Type: "other", Value: order{}},
		)
		c.HandledOnce("e1")
		require.Zero(t, c.Runs("gone"))
		require.Equal(t, int64(3), c.Committed(idemtest.DefaultTopic, 0))
	})
	bubble("not read yet", t, func(t *testing.T) {

		text := failure(t, func(tb testing.TB) {
			c := idemtest.Run(tb, orders(idem.NewRouter(), []string{"paid"}))
			c.StoreDown(func() {
				c.Deliver(inValue("e1", "paid", 7))
				c.Deliver(inValue("e2", "paid", 7))
				require.Len(tb, c.Waiting(), 2)
				require.Zero(tb, c.Runs("e2"))
			})
			c.HandledOnce("e1", "e2")
		})
		require.Empty(t, text)
	})
}

// Events of several types may share an ID.
func TestConsumer_SharedID(t *testing.T) {
	types := []string{"email", "sms"}
	bubble("each is handled", t, func(t *testing.T) {
		c := idemtest.Run(t, orders(idem.NewRouter(), types))
		c.Deliver(inValue("e1", "email", 7), inValue("e1", "sms", 7))
		c.HandledOnce("e1")
		require.Equal(t, 2, c.Handled("e1"))
		c.Duplicate("e1")
		c.HandledOnce("e1")
		require.Equal(t, 2, c.Runs("e1"))
		require.Equal(t, 2, c.Duplicates("e1"))
	})
	bubble("one is not", t, func(t *testing.T) {
		text := failure(t, func(t testing.TB) {
			r := orders(idem.NewRouter(), types[:1])
			idem.On(r, "sms", func(context.Context, idem.Event[order]) error { return idem.Permanent(errors.New("no")) })
			c := idemtest.Run(t, r)
			c.Deliver(inValue("e1", "email", 7), inValue("e1", "sms", 7))
			c.HandledOnce("e1")
		})
		require.Contains(t, text, `the event "e1" of type "sms" was handled 0 times, want 1 (1 runs, 0 of them`)
		require.NotContains(t, text, "email")
	})
	bubble("one has no handler", t, func(t *testing.T) {
		c := idemtest.Run(t, orders(idem.NewRouter(), types[:1]))
		c.Deliver(
			idemtest.Record{ID: "e1", Type: "email", Value: order{}}, idemtest.Record{ID: "e1", Type: "sms", Value: order{}},
		)
		c.HandledOnce("e1")
	})
}

// A test must not pass because of an ID that no event has.
func TestConsumer_UnknownID(t *testing.T) {
	for name, use := range map[string]func(*idemtest.Consumer){
		"Handled":     func(c *idemtest.Consumer) { c.Handled("typo") },
		"Runs":        func(c *idemtest.Consumer) { c.Runs("typo") },
		"Duplicates":  func(c *idemtest.Consumer) { c.Duplicates("typo") },
		"Conflicts":   func(c *idemtest.Consumer) { c.Conflicts("typo") },
		"HandledOnce": func(c *idemtest.Consumer) { c.HandledOnce("typo") },
		"Duplicate":   func(c *idemtest.Consumer) { c.Duplicate("typo") },
		"Conflict":    func(c *idemtest.Consumer) { c.Conflict("typo", nil) },
	} {
		bubble(name, t, func(t *testing.T) {
			text := failure(t, func(t testing.TB) {
				c := idemtest.Run(t, router(ok))
				c.Deliver(one("a"), one("b"))
				use(c)
			})
			require.Contains(t, text, `no delivered record and no event has the ID "typo": the IDs are ["a" "b"]`)
		})
	}
	bubble("nothing delivered", t, func(t *testing.T) {
		text := failure(t, func(t testing.TB) { idemtest.Run(t, router(ok)).Runs("a") })
		require.Contains(t, text, `has the ID "a": no record with an ID was delivered`)
	})
}
