package idemtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// searched runs a search over two payments with the handlers of a function.
func searched(
	t *testing.T, handlers func(*idem.Router, *shop), opts ...TortureOption,
) (text string, broken bool) {
	t.Helper()
	text, broken = Search(t, newShop, handlers, (*shop).state,
		append([]TortureOption{twoPayments(), Seed(1), Pairs(60)}, opts...)...)
	t.Log(text)
	return text, broken
}

// A unique violation that is permanent makes an event a dead letter, although its row is there.
func TestTorture_DeadLetterAfterAFault(t *testing.T) {
	violation := func(r *idem.Router, s *shop) {
		idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
			exists := false
			if err := s.Call(ctx, "insert", func() {
				if exists = s.booked[e.ID]; !exists {
					s.booked[e.ID], s.balance = true, s.balance+e.Data.Amount
				}
			}); err != nil {
				return err
			}
			if exists {
				return idem.Permanent(errors.New("unique violation"))
			}
			return nil
		})
	}
	text, broken := searched(t, violation)
	require.True(t, broken)
	require.Contains(t, text, "dead letters without faults: none\n")
	require.Contains(t, text, "dead letters now:            p-1 (permanent)\n")
	_, broken = searched(t, violation, AcceptDeadLetters())
	require.False(t, broken)
}

// A dead letter of the run without faults must not be missing after a fault.
func TestTorture_DeadLetterIsMissing(t *testing.T) {
	for _, opts := range [][]TortureOption{nil, {AcceptDeadLetters(), AcceptRepeats("check")}} {
		text, broken := searched(t, func(r *idem.Router, s *shop) {
			idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
				if err := s.Call(ctx, "check", func() {}); err != nil || e.Uncertain {
					return err
				}
				return idem.Permanent(errors.New("no such order"))
			})
		}, opts...)
		require.True(t, broken)
		require.Contains(t, text, "dead letters without faults: p-1 (permanent), p-2 (permanent)\n")
		require.Contains(t, text, "dead letters now:            p-2 (permanent)\n")
	}
}

// With DeadLetterUncertain a crash makes a dead letter, and no mail leaves twice.
func TestTorture_AtMostOnce(t *testing.T) {
	mail := func(times int) func(*idem.Router, *shop) {
		return func(r *idem.Router, s *shop) {
			idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
				err := s.send(ctx, e.ID, "")
				for range times - 1 { // a retry of its own
					if err != nil {
						err = s.send(ctx, e.ID, "")
					}
				}
				return err
			}, idem.WhenUncertain(idem.DeadLetterUncertain))
		}
	}
	text, broken := searched(t, mail(1))
	require.True(t, broken)
	require.Contains(t, text, "p-1 (uncertain)")
	_, broken = searched(t, mail(1), AcceptDeadLetters())
	require.False(t, broken)
	text, broken = searched(t, mail(2), AcceptDeadLetters())
	require.True(t, broken)
	require.Contains(t, text, `"send mail" for event "p-1" had its effect 2 times, and 1 time without faults`)
	_, broken = searched(t, mail(2), AcceptDeadLetters(), AcceptRepeats("send mail"))
	require.False(t, broken)
}

// Two calls of one name with two keys are no repetition.
func TestTortureDo_TwoCallsOfOneName(t *testing.T) {
	two := func(second func(ctx context.Context) string) func(context.Context, *dedup.Guard, *shop) (int, bool, error) {
		return func(ctx context.Context, g *dedup.Guard, s *shop) (int, bool, error) {
			return dedup.Do(ctx, g, dedup.Key{Scope: "shop", Type: "charge", ID: "7"},
				func(ctx context.Context) (int, error) {
					return 7, errors.Join(s.send(ctx, "ann", "7 to ann"), s.send(ctx, "bob", second(ctx)))
				})
		}
	}
	TortureDo(t, newShop, two(func(context.Context) string { return "7 to bob" }), (*shop).state,
		Seed(1), Pairs(60), AcceptUnknown())
	// A function that tells of a failure, and so runs again, with the time as a key.
	text, broken := SearchDo(t, newShop, two(func(context.Context) string { return time.Now().String() }),
		(*shop).state, Seed(1), Pairs(60), AcceptUnknown())
	t.Log(text)
	require.True(t, broken)
	require.Contains(t, text, "had its effect 3 times, and 2 times without faults: its idempotency key differs")
}

// oneKey has the two payments in one partition.
func oneKey(o *search) {
	o.records = []Record{
		{ID: "p-1", Type: "paid", Value: payment{1}}, {ID: "p-2", Type: "paid", Value: payment{2}},
	}
}

// AcceptRepeats does not accept that an effect is lost.
func TestTorture_LostEffect(t *testing.T) {
	t.Run("of a batch", func(t *testing.T) {
		batch := func(drops bool) func(*idem.Router, *shop) {
			return func(r *idem.Router, s *shop) {
				idem.OnBatch(r, "paid", func(ctx context.Context, events []idem.Event[payment]) error {
					for _, e := range events {
						if err := s.send(ctx, e.ID, ""); err != nil && !drops {
							return err
						}
					}
					return nil
				})
			}
		}
		_, broken := searched(t, batch(true), oneKey, AcceptRepeats("send mail"))
		require.True(t, broken)
		_, broken = searched(t, batch(false), oneKey, AcceptRepeats("send mail"))
		require.False(t, broken)
	})
	t.Run("of another event", func(t *testing.T) {
		text, broken := searched(t, func(r *idem.Router, s *shop) {
			idem.On(r, "paid", func(ctx context.Context, e idem.Event[payment]) error {
				if s.balance > 1 { // after two runs for p-1
					return nil
				}
				return s.Call(ctx, "book", func() { s.balance += e.Data.Amount })
			})
		}, oneKey, AcceptRepeats("book"))
		require.True(t, broken)
		require.Contains(t, text, `"book" for event "p-1" had its effect 2 times, and 1 time without faults`)
		require.Contains(t, text, `"book" for event "p-2" had its effect 0 times, and 1 time without faults: an effect is lost`)
	})
}

// An accepted repetition does not accept an unknown outcome.
func TestSearch_Breaks(t *testing.T) {
	at := effect{dedup.Key{Type: "paid", ID: "1"}, "send"}
	look, batch := effect{what: "look"}, effect{what: "send"} // of a batch
	calls := func(n int) map[effect][]call { return map[effect][]call{at: make([]call, n)} }
	clean := outcomeOf{state: 1, answers: []any{7}, calls: map[effect][]call{
		at: make([]call, 1), look: make([]call, 2), batch: make([]call, 2),
	}}
	buried := []deadLetter{{at.event, "failed"}}
	repeats, unknown := AcceptRepeats("send"), AcceptUnknown()
	for name, c := range map[string]struct {
		out    outcomeOf
		opts   []TortureOption
		broken bool
	}{
		"equal state":              {outcomeOf{state: 1, answers: []any{7}, calls: calls(2)}, nil, false},
		"another state":            {outcomeOf{state: 2, calls: calls(1)}, []TortureOption{repeats, unknown}, true},
		"repeated":                 {outcomeOf{state: 2, calls: calls(2)}, nil, true},
		"repeated, accepted":       {outcomeOf{state: 2, calls: calls(2)}, []TortureOption{repeats}, false},
		"unknown":                  {outcomeOf{state: 2, unknown: true}, []TortureOption{repeats}, true},
		"unknown, accepted":        {outcomeOf{state: 2, unknown: true}, []TortureOption{unknown}, false},
		"unknown, repeated":        {outcomeOf{unknown: true, calls: calls(2)}, []TortureOption{repeats}, true},
		"unknown, 2 calls":         {outcomeOf{unknown: true, calls: calls(2)}, []TortureOption{unknown}, true},
		"unknown, repeated, both":  {outcomeOf{unknown: true, calls: calls(2)}, []TortureOption{repeats, unknown}, false},
		"the work has not ended":   {outcomeOf{state: 1, err: ErrFault}, []TortureOption{repeats, unknown}, true},
		"another call, not named":  {outcomeOf{calls: map[effect][]call{{at.event, "look"}: {{}}}}, []TortureOption{repeats}, true},
		"an effect is lost":        {outcomeOf{calls: map[effect][]call{{at.event, "look"}: {{}}}}, []TortureOption{AcceptRepeats("look")}, true},
		"batches cut otherwise":    {outcomeOf{calls: map[effect][]call{at: {{}}, look: {{}}, batch: make([]call, 3)}}, []TortureOption{repeats}, false},
		"a batch loses effects":    {outcomeOf{calls: map[effect][]call{at: {{}}, look: {{}}, batch: make([]call, 2)}}, []TortureOption{repeats}, true},
		"only after a fault":       {outcomeOf{calls: map[effect][]call{at: {{}}, {at.event, "look"}: {{"k"}}}}, []TortureOption{AcceptRepeats("look")}, false},
		"a key that differs":       {outcomeOf{calls: map[effect][]call{at: {{"a"}, {"b"}}}}, []TortureOption{repeats}, true},
		"a dead letter":            {outcomeOf{state: 1, dead: buried}, []TortureOption{repeats, unknown}, true},
		"a dead letter, accepted":  {outcomeOf{state: 2, dead: buried}, []TortureOption{AcceptDeadLetters()}, false},
		"a dead letter, two calls": {outcomeOf{dead: buried, calls: calls(2)}, []TortureOption{AcceptDeadLetters()}, true},
	} {
		s := newSearch("Torture", c.opts)
		require.Equal(t, c.broken, s.breaks(clean, c.out), name)
	}
}

// Events of two tenants are two events, also with one type and one ID.
func TestLacks(t *testing.T) {
	of := func(tenant, typ, id string) deadLetter {
		return deadLetter{dedup.Key{Tenant: tenant, Scope: "shop", Type: typ, ID: id}, idem.ClassPermanent}
	}
	others := []deadLetter{of("a", "paid", "1"), of("", "paid", "2")}
	for name, c := range map[string]struct {
		one   deadLetter
		lacks bool
	}{
		"among them":     {of("a", "paid", "1"), false},
		"another class":  {deadLetter{of("a", "paid", "1").key, idem.ClassUncertain}, false},
		"another ID":     {of("a", "paid", "2"), true},
		"another type":   {of("a", "sent", "1"), true},
		"another tenant": {of("b", "paid", "1"), true},
		"without tenant": {of("", "paid", "1"), true},
		"with a tenant":  {of("a", "paid", "2"), true},
	} {
		require.Equal(t, c.lacks, lacks(others, []deadLetter{c.one}), name)
	}
}

// A dead letter has the tenant of its event.
func TestRecordsJob_DeadLetterOfATenant(t *testing.T) {
	record := func(tenant, key string) Record {
		return Record{
			ID: "p-1", Type: "paid", Key: key, Value: payment{1},
			Headers: []idem.Header{{Key: "tenant", Value: []byte(tenant)}},
		}
	}
	out := runs(t, func(r *idem.Router, _ *shop) {
		idem.On(r.With(idem.Tenant(idem.FromHeader("tenant"))), "paid",
			func(context.Context, idem.Event[payment]) error { return idem.Permanent(errors.New("no such order")) })
	}, Records(record("a", "ann"), record("b", "bob")))("")
	for _, text := range []string{`p-1 of tenant "a" (permanent)`, `p-1 of tenant "b" (permanent)`, "p-2 (no-event-id)"} {
		require.Contains(t, events(out.dead), text)
	}
}
