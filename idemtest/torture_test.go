package idemtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

type payment struct {
	Amount int `json:"amount"`
}

// shop is a world: mails that were sent, and a balance.
type shop struct {
	*Faults
	mails   []string
	balance int
	booked  map[string]bool
}

func newShop(_ testing.TB, f *Faults) *shop { return &shop{Faults: f, booked: make(map[string]bool)} }

// state does not depend on the order of the mails: events of different keys have no order.
func (s *shop) state() any {
	return map[string]any{"mails": slices.Sorted(slices.Values(s.mails)), "balance": s.balance}
}

func (s *shop) send(ctx context.Context, to, key string) error {
	return s.CallWithKey(ctx, "send mail", key, func() { s.mails = append(s.mails, to) })
}

func twoPayments() TortureOption {
	return Records(
		Record{ID: "p-1", Type: "paid", Key: "ann", Value: payment{1}},
		Record{ID: "p-2", Type: "paid", Key: "bob", Value: payment{2}},
	)
}

// tortured runs a search, and returns the text that Torture would print.
func tortured(
	t *testing.T, handle func(context.Context, *shop, idem.Event[payment]) error, opts ...TortureOption,
) (text string, broken bool) {
	t.Helper()
	text, broken = Search(t, newShop, func(r *idem.Router, s *shop) {
		idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error { return handle(ctx, s, e) })
	}, (*shop).state, append(opts, twoPayments(), Seed(1), Pairs(60))...)
	t.Log(text)
	return text, broken
}

func TestTorture(t *testing.T) {
	t.Run("an idempotency key survives", func(t *testing.T) {
		_, broken := tortured(t, func(ctx context.Context, s *shop, e idem.Event[payment]) error {
			return s.send(ctx, e.ID, e.IdempotencyKey())
		})
		require.False(t, broken)
	})
	noKey := func(ctx context.Context, s *shop, e idem.Event[payment]) error { return s.send(ctx, e.ID, "") }
	t.Run("no key", func(t *testing.T) {
		text, broken := tortured(t, noKey)
		require.True(t, broken)
		require.Contains(t, text, "it has no idempotency key")
	})
	t.Run("no key, accepted", func(t *testing.T) {
		_, broken := tortured(t, noKey, AcceptRepeats("send mail"))
		require.False(t, broken)
	})
	t.Run("the time as a key", func(t *testing.T) {
		text, broken := tortured(t, func(ctx context.Context, s *shop, e idem.Event[payment]) error {
			return s.send(ctx, e.ID, e.ID+time.Now().String())
		})
		require.True(t, broken)
		require.Contains(t, text, "differs from run to run")
	})
	// The insert of a row that exists changes no row. The broken handler does not look.
	book := func(looks bool) func(context.Context, *shop, idem.Event[payment]) error {
		return func(ctx context.Context, s *shop, e idem.Event[payment]) error {
			return s.Call(ctx, "book", func() {
				exists := s.booked[e.ID]
				if s.booked[e.ID] = true; exists && looks {
					return
				}
				s.balance += e.Data.Amount
			})
		}
	}
	t.Run("ignores the number of affected rows", func(t *testing.T) {
		text, broken := tortured(t, book(false))
		require.True(t, broken)
		require.Contains(t, text, "state now:")
	})
	t.Run("looks at the number of affected rows", func(t *testing.T) {
		_, broken := tortured(t, book(true))
		require.False(t, broken)
	})
	t.Run("one schedule", func(t *testing.T) {
		text, broken := tortured(t, noKey, Only("4:freeze"))
		require.True(t, broken)
		require.Contains(t, text, "worker 1 goes on")
		_, broken = tortured(t, noKey, Only("1:die"))
		require.False(t, broken)
	})
	t.Run("reads, then writes without a lock", func(t *testing.T) {
		text, broken := tortured(t, func(ctx context.Context, s *shop, e idem.Event[payment]) error {
			var read int
			if err := s.Call(ctx, "read the balance", func() { read = s.balance }); err != nil {
				return err
			}
			return s.CallWithKey(ctx, "write the balance", e.IdempotencyKey(),
				func() { s.balance = read + e.Data.Amount })
		}, AcceptRepeats("read the balance"))
		require.True(t, broken)
		require.Contains(t, text, "worker 2 calls: read the balance")
	})
}
