package idemtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// Events that become dead letters end a search, as handled ones do.
func TestTorture_DeadLetters(t *testing.T) {
	good := Record{ID: "1", Type: "paid", Value: payment{1}}
	poison := Record{ID: "1", Type: "paid", Value: []byte("garbage")}
	for name, c := range map[string]struct {
		record  Record
		handler func(context.Context, idem.Event[payment]) error
	}{
		"permanent":    {good, func(context.Context, idem.Event[payment]) error { return idem.Permanent(errors.New("no such order")) }},
		"always fails": {good, func(context.Context, idem.Event[payment]) error { return errors.New("no answer") }},
		"poison":       {poison, pass},
	} {
		t.Run(name, func(t *testing.T) {
			text, broken := Search(t, newShop, func(r *idem.Router, _ *shop) {
				idem.On(r, "paid", c.handler)
			}, (*shop).state, Records(c.record), Pairs(20))
			require.False(t, broken, text)
			require.Contains(t, text, "none breaks the handler")
		})
	}
}

// failing runs a test that fails in a process of its own, and returns the output of that process.
func failing(t *testing.T, test func()) string {
	t.Helper()
	const inner = "IDEMTEST_FAILING"
	if os.Getenv(inner) != "" {
		test()
		os.Exit(0) // it did not fail
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), inner+"=1")
	out, err := again.CombinedOutput()
	require.Error(t, err)
	return string(out)
}

// A handler that ignores its context cannot be ended. The program ends, and the panic says why.
func TestTorture_HandlerIgnoresItsContext(t *testing.T) {
	said := failing(t, func() {
		Torture(t, newShop, func(r *idem.Router, _ *shop) {
			idem.On(r, "paid", func(context.Context, idem.Event[payment]) error {
				<-make(chan struct{})
				return nil
			})
		}, (*shop).state, twoPayments())
	})
	require.Contains(t, said, "it must end when its context ends")
}

func pass(context.Context, idem.Event[payment]) error { return nil }

func TestTorture_WithoutRecords(t *testing.T) {
	said := failing(t, func() {
		Torture(t, newShop, func(r *idem.Router, _ *shop) { idem.On(r, "paid", pass) }, (*shop).state)
	})
	require.Contains(t, said, "Torture needs Records")
}

func TestAdvance_Back(t *testing.T) {
	said := failing(t, func() {
		r := idem.NewRouter()
		idem.On(r, "paid", pass)
		Run(t, r).Advance(-time.Hour)
	})
	require.Contains(t, said, "time does not go back")
}

// A handler that is KeyOrdered needs goroutines that Torture does not run, with any store.
func TestTorture_KeyOrdered(t *testing.T) {
	ordered := func(r *idem.Router, _ *shop) {
		idem.On(r, "paid", pass, idem.KeyOrdered(time.Second))
		idem.On(r, "refunded", pass)
	}
	t.Run("in the store of the run", func(t *testing.T) {
		said := failing(t, func() { Torture(t, newShop, ordered, (*shop).state, twoPayments()) })
		require.Contains(t, said, `Torture does not run handlers with KeyOrdered, such as those of ["paid"]: test them with Run`)
		require.NotContains(t, said, "cannot do")
	})
	t.Run("in a store of its own", func(t *testing.T) {
		said := failing(t, func() {
			Torture(t, newShop, func(r *idem.Router, s *shop) {
				ordered(r.With(idem.Store(memstore.New(memstore.Volatile()))), s)
			}, (*shop).state, twoPayments())
		})
		require.Contains(t, said, "Torture does not run handlers with KeyOrdered")
	})
	t.Run("beside a transaction", func(t *testing.T) {
		said := failing(t, func() {
			Torture(t, newShop, func(r *idem.Router, s *shop) {
				ordered(r, s)
				idem.OnTx(r, "moved", func(context.Context, int, idem.Event[payment]) error { return nil })
			}, (*shop).state, twoPayments(), TxStore(func(*shop) dedup.TxStore[int] { return noTx{} }))
		})
		require.Contains(t, said, "Torture does not run handlers with KeyOrdered")
	})
	t.Run("with another mistake", func(t *testing.T) {
		said := failing(t, func() {
			Torture(t, newShop, func(r *idem.Router, _ *shop) {
				idem.On(r, "paid", pass, idem.Retry(idem.RetryPolicy{MaxAttempts: -1}))
			}, (*shop).state, twoPayments())
		})
		require.Contains(t, said, "the handlers have mistakes")
	})
}

// noTx is a store that runs no transaction.
type noTx struct{ dedup.TxStore[int] }

// A schedule of Only that cannot happen fails the test.
func TestTorture_OnlyCannotHappen(t *testing.T) {
	for _, c := range []struct{ schedule, says string }{
		{"999:die", `the schedule "999:die" has a fault at point 999, but its run has only 14 points`},
		{"4:die 999:die", `has a fault at point 999, but its run has only 19 points`},
		{"1:fail", `the schedule "1:fail" has "fail" at point 1 of 14 (claims p-1, before): fail needs an outside call`},
		{"4:die 4:freeze", `the schedule "4:die 4:freeze" has two faults at point 4`},
		{"4:sleep", `"4:sleep" is no step of a schedule`},
	} {
		t.Run(c.schedule, func(t *testing.T) {
			said := failing(t, func() {
				Torture(t, newShop, mailing, (*shop).state, twoPayments(), Only(c.schedule))
			})
			require.Contains(t, said, c.says)
		})
	}
	t.Run("others with one key", func(t *testing.T) {
		said := failing(t, func() {
			Torture(t, newShop, mailing, (*shop).state, oneKey, Only("1:others"))
		})
		require.Contains(t, said, "others needs records with several keys")
	})
}

// A provider takes the second call of a handler for a copy of the first one if both have one key.
func TestTorture_OneKeyForTwoCalls(t *testing.T) {
	for _, c := range []struct {
		name     string
		setup    func(testing.TB, *Faults) *shop
		handlers func(*idem.Router, *shop)
	}{
		{"in a handler", newShop, func(r *idem.Router, s *shop) {
			idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
				if err := s.charge(ctx, e.IdempotencyKey()); err != nil {
					return err
				}
				return s.ship(ctx, e.ID, e.IdempotencyKey())
			})
		}},
		{"of two events", newShop, func(r *idem.Router, s *shop) {
			idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
				if e.ID == "p-1" {
					return s.charge(ctx, "january")
				}
				return s.ship(ctx, e.ID, "january")
			})
		}},
		{"in the setup", func(t testing.TB, f *Faults) *shop {
			s := newShop(t, f)
			require.NoError(t, s.charge(t.Context(), "january"))
			return s
		}, func(r *idem.Router, s *shop) {
			idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
				return s.ship(ctx, e.ID, "january")
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := failing(t, func() { Search(t, c.setup, c.handlers, (*shop).state, oneKey) })
			require.Contains(t, said, `idemtest: the key of "charge" is used for "ship" too: give each call a `+
				`purpose, such as e.IdempotencyKey("ship")`)
			require.Contains(t, said, "worker 1 calls: ship: the provider knows the key\n")
		})
	}
	t.Run("a purpose for each", func(t *testing.T) {
		_, broken := tortured(t, func(ctx context.Context, s *shop, e idem.Event[payment]) error {
			if err := s.charge(ctx, e.IdempotencyKey("charge")); err != nil {
				return err
			}
			return s.ship(ctx, e.ID, e.IdempotencyKey("ship"))
		})
		require.False(t, broken)
	})
}

func (s *shop) charge(ctx context.Context, key string) error {
	return s.CallWithKey(ctx, "charge", key, func() { s.balance++ })
}

func (s *shop) ship(ctx context.Context, to, key string) error {
	return s.CallWithKey(ctx, "ship", key, func() { s.mails = append(s.mails, "parcel to "+to) })
}

// A state that differs between two runs without faults fails the test before any fault.
func TestTorture_OtherStateWithoutFaults(t *testing.T) {
	t.Run("state", func(t *testing.T) {
		said := failing(t, func() {
			Torture(t, newShop, mailing, func(*shop) any { return rand.Uint64() }, twoPayments())
		})
		require.Contains(t, said, "the state differs between two runs without faults")
		require.Contains(t, said, "must not depend on the time, on random values or on the order of events of different keys")
	})
	t.Run("answer", func(t *testing.T) {
		said := failing(t, func() {
			TortureDo(t, newShop, func(ctx context.Context, g *dedup.Guard, _ *shop) (uint64, bool, error) {
				return dedup.Do(ctx, g, dedup.Key{Scope: "shop", Type: "charge", ID: "7"},
					func(context.Context) (uint64, error) { return rand.Uint64(), nil })
			}, (*shop).state)
		})
		require.Contains(t, said, "the answers differ between two runs without faults")
	})
}

// The story of a report is that of a run that broke, and the report has the seed.
func TestSearch_ReportsTheRunThatBroke(t *testing.T) {
	s := newSearch("Torture", []TortureOption{Seed(7)})
	runs := 0
	text, broken := s.look(t, func(plan schedule) outcomeOf {
		runs++
		out := outcomeOf{state: 0, parts: 1, points: []point{{what: "claims"}}}
		if len(plan) > 0 && runs == 3 { // it breaks once only
			out.state, out.trace = runs, []told{{line: "the run that broke"}}
		}
		return out
	})
	require.True(t, broken)
	require.Contains(t, text, "the run that broke")
	require.Contains(t, text, "state now:            3\n")
	require.Contains(t, text, `repeat with the option idemtest.Only("1:die"), found with seed 7:`)
	require.Equal(t, 3, runs)
}

// After shrinking, the story is that of the shorter schedule.
func TestSearch_ReportsTheShorterRun(t *testing.T) {
	s := newSearch("Torture", []TortureOption{Only("1:die 2:die")})
	text, broken := s.look(t, func(plan schedule) outcomeOf {
		out := outcomeOf{state: 0, parts: 1, points: []point{{what: "claims"}, {what: "completes"}}}
		if plan.at(2) == die {
			out.state = plan.String()
		}
		return out
	})
	require.True(t, broken)
	require.Contains(t, text, `does not survive the schedule "2:die"`)
	require.Contains(t, text, "state now:            2:die\n")
	require.NotContains(t, text, "seed")
}
