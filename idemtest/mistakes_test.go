package idemtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/idemtest"
)

// A mistake in a test ends the test with the remedy.
func TestRun_Mistakes(t *testing.T) {
	for text, start := range map[string]func(testing.TB){
		"the router is nil: pass the router with the handlers": func(t testing.TB) {
			idemtest.Run(t, nil)
		},
		"an option is nil": func(t testing.TB) { idemtest.Run(t, router(ok), nil) },
		"Store(nil): pass a store, or leave the option out for one in memory": func(t testing.TB) {
			idemtest.Run(t, router(ok), idemtest.Store(nil))
		},
		"Down(nil): pass the function": func(t testing.TB) {
			idemtest.Run(t, router(ok), idemtest.Store(memstore.New()), idemtest.Down(nil))
		},
		`Group(""): pass a name, or leave the option out`: func(t testing.TB) {
			idemtest.Run(t, router(ok), idemtest.Group(""))
		},
		"Within(0s): a step takes time": func(t testing.TB) {
			idemtest.Run(t, router(ok), idemtest.Within(0))
		},
		"Within(-1ns): a step takes time": func(t testing.TB) {
			idemtest.Run(t, router(ok), idemtest.Within(-1))
		},
		"Configure(nil): pass a function": func(t testing.TB) {
			idemtest.Run(t, router(ok), idemtest.Configure(nil))
		},
		"the handlers or the options have mistakes": func(t testing.TB) {
			idemtest.Run(t, idem.NewRouter())
		},
	} {
		bubble(text, t, func(t *testing.T) { require.Contains(t, failure(t, start), text) })
	}
}

func TestConsumer_Mistakes(t *testing.T) {
	for text, use := range map[string]func(*idemtest.Consumer){
		"Deliver: there are no records":           func(c *idemtest.Consumer) { c.Deliver() },
		"Duplicate: pass the IDs":                 func(c *idemtest.Consumer) { c.Duplicate() },
		"HandledOnce: pass the IDs":               func(c *idemtest.Consumer) { c.HandledOnce() },
		"StoreDown(nil): pass the part":           func(c *idemtest.Consumer) { c.StoreDown(nil) },
		"Advance(-1ns): time does not go back":    func(c *idemtest.Consumer) { c.Advance(-1) },
		`record "a" has the partition -1`:         func(c *idemtest.Consumer) { c.Deliver(idemtest.Record{ID: "a", Partition: -1}) },
		`value of record "a": json: unsupported `: func(c *idemtest.Consumer) { c.Deliver(idemtest.Record{ID: "a", Value: func() {}}) },
	} {
		bubble(text, t, func(t *testing.T) {
			require.Contains(t, failure(t, func(t testing.TB) { use(idemtest.Run(t, router(ok))) }), "idemtest: "+text)
		})
	}
	bubble("a store without Down", t, func(t *testing.T) {
		require.Contains(t, failure(t, func(t testing.TB) {
			c := idemtest.Run(t, router(ok), idemtest.Store(memstore.New(memstore.Volatile())))
			c.StoreDown(func() {})
		}), "pass the option idemtest.Down")
	})
	// Nil and defaults that are allowed.
	bubble("no mistakes", t, func(t *testing.T) {
		c := idemtest.Run(t, router(ok), idemtest.Logger(nil))
		c.Deliver(one("a"))
		c.Conflict("a", nil)
		c.HandledOnce("a")
	})
}
