package idemtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

type paid struct {
	Amount int `json:"amount"`
}

// bubble runs a test in fake time.
func bubble(name string, t *testing.T, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func router(fn func(idem.Event[paid]) error, opts ...idem.Option) *idem.Router {
	r := idem.NewRouter(opts...)
	idem.On(r, "paid", func(_ context.Context, e idem.Event[paid]) error { return fn(e) })
	return r
}

func one(id string) idemtest.Record {
	return idemtest.Record{ID: id, Type: "paid", Key: "k", Value: paid{7}}
}

func ok(idem.Event[paid]) error { return nil }

func TestConsumer(t *testing.T) {
	bubble("duplicates", t, func(t *testing.T) {
		c := idemtest.Run(t, router(ok))
		c.Deliver(one("a"), one("b"), one("a"))
		c.Duplicate("a", "b")
		c.HandledOnce("a", "b")
		require.Equal(t, 2, c.Duplicates("a"))
		require.Equal(t, 1, c.Duplicates("b"))
		require.Equal(t, int64(5), c.Committed(idemtest.DefaultTopic, 0))
		require.Empty(t, c.DeadLetters())
	})
	bubble("conflict", t, func(t *testing.T) {
		c := idemtest.Run(t, router(ok))
		c.Deliver(one("a"))
		c.Conflict("a", paid{8})
		c.HandledOnce("a")
		require.Equal(t, 1, c.Conflicts("a"))
	})
	bubble("poison", t, func(t *testing.T) {
		c := idemtest.Run(t, router(ok))
		id := c.Poison("paid")
		c.Deliver(one("a"))
		c.HandledOnce("a")
		dead := c.DeadLetters()
		require.Len(t, dead, 1)
		require.Equal(t, id, dead[0].ID)
		require.Equal(t, idem.ClassUndecodable, dead[0].Class)
	})
	bubble("rebalance", t, func(t *testing.T) {
		c := idemtest.Run(t, router(ok))
		c.Deliver(one("a"))
		c.Deliver(one("b"))
		c.Rebalance()
		c.HandledOnce("a", "b")
		require.Equal(t, 0, c.Duplicates("a"))
		require.Equal(t, 1, c.Duplicates("b"))
	})
	bubble("the store is down", t, func(t *testing.T) {
		c := idemtest.Run(t, router(ok))
		c.StoreDown(func() {
			c.Deliver(one("a"))
			require.Len(t, c.Waiting(), 1)
			require.Zero(t, c.Runs("a"))
		})
		require.Empty(t, c.Waiting())
		c.HandledOnce("a")
	})
	bubble("retries", t, func(t *testing.T) {
		fails := 2
		c := idemtest.Run(t, router(func(idem.Event[paid]) error {
			if fails--; fails >= 0 {
				return errors.New("later")
			}
			return nil
		}))
		c.Deliver(one("a"))
		c.HandledOnce("a")
		require.Equal(t, 3, c.Runs("a"))
	})
	bubble("retry topics", t, func(t *testing.T) {
		down := true
		c := idemtest.Run(t, router(func(idem.Event[paid]) error {
			if down {
				return errors.New("later")
			}
			return nil
		}, idem.RetryTopics(time.Minute)))
		c.Deliver(one("a"))
		require.Zero(t, c.Handled("a"))
		require.Len(t, c.Waiting(), 1)
		down = false
		c.Advance(time.Minute)
		c.HandledOnce("a")
		c.Duplicate("a")
		require.Equal(t, 1, c.Duplicates("a"))
	})
	bubble("batches", t, func(t *testing.T) {
		var sizes []int
		r := idem.NewRouter()
		idem.OnBatch(r, "paid", func(_ context.Context, all []idem.Event[paid]) error {
			sizes = append(sizes, len(all))
			return nil
		}, idem.SameKey())
		c := idemtest.Run(t, r)
		c.Deliver(one("a"), one("b"), one("c"))
		c.HandledOnce("a", "b", "c")
		require.Equal(t, []int{3}, sizes)
	})
}
