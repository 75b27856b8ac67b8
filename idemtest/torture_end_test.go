package idemtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
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
