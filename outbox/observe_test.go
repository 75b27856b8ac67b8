package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// published is one call of the producer, as an observer saw it.
type published struct {
	ids   []string
	errs  []error
	took  time.Duration
	under string // the value that the observer had put in its context
}

type nameKey struct{}

// publishWatch notes the calls of the producer, and puts its name in the context.
type publishWatch struct {
	name  string
	trail *notes[string]
	seen  notes[published]
	begun notes[int]
}

func (w *publishWatch) BeginPublish(ctx context.Context, p *outbox.Publish) context.Context {
	w.trail.add("begin " + w.name)
	w.begun.add(p.Len())
	outer, _ := ctx.Value(nameKey{}).(string)
	return context.WithValue(ctx, nameKey{}, outer+w.name)
}

func (w *publishWatch) EndPublish(ctx context.Context, p *outbox.Publish) {
	w.trail.add("end " + w.name)
	under, _ := ctx.Value(nameKey{}).(string)
	s := published{took: p.Took, under: under}
	for i := range p.Len() {
		s.ids, s.errs = append(s.ids, p.Row(i).Entry.ID), append(s.errs, p.Err(i))
	}
	w.seen.add(s)
}

// under notes the context that a producer is called with.
type under struct {
	outbox.Producer
	names *notes[string]
	most  int // results that are returned; 0: all
}

func (u under) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	name, _ := ctx.Value(nameKey{}).(string)
	u.names.add(name)
	errs := u.Producer.ProduceEach(ctx, msgs)
	if u.most > 0 {
		errs = errs[:min(u.most, len(errs))]
	}
	return errs
}

// Observers see a call of the producer before and after, with the result of each row. The call gets
// the contexts of the observers. The observer that began last ends first.
func TestRelay_PublishObserver(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var trail, names notes[string]
		outer, inner := &publishWatch{name: "o", trail: &trail}, &publishWatch{name: "i", trail: &trail}
		refused := errors.Join(errors.New("no"), idem.ErrRefused)
		b.fate = func(m *idem.Message) fate {
			if idOf(m) == "bad" {
				return fate{wait: 3 * time.Millisecond, err: refused}
			}
			return acknowledged
		}
		for _, id := range []string{"a1", "a2"} {
			b.table.add("t", "a", id)
		}
		b.table.add("u", "b", "bad")
		b.start(func(c *outbox.RelayConfig, _ *faults) {
			c.Producer = under{Producer: c.Producer, names: &names}
			c.Observers = []outbox.Observer{outer, inner}
		})
		b.drained(time.Minute)
		b.sleep(time.Minute)
		require.Equal(t, []published{
			{ids: []string{"a1", "bad"}, errs: []error{nil, refused}, took: 3 * time.Millisecond, under: "o"},
			{ids: []string{"a2"}, errs: []error{nil}, took: time.Millisecond, under: "o"},
		}, outer.seen.all())
		require.Equal(t, []int{2, 1}, outer.begun.all())
		require.Equal(t, "oi", inner.seen.all()[0].under)
		require.Equal(t, []string{"oi", "oi"}, names.all(), "the producer runs under all of them")
		wave := []string{"begin o", "begin i", "end i", "end o"}
		require.Equal(t, append(wave, wave...), trail.all())
	})
}

// A row for which the producer has no result has an error for observers too, and is published
// again.
func TestRelay_PublishObserver_TooFewResults(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var trail, names notes[string]
		w := &publishWatch{trail: &trail}
		b.table.add("t", "a", "a1")
		b.table.add("t", "b", "b1")
		b.start(func(c *outbox.RelayConfig, _ *faults) {
			c.Producer = under{Producer: c.Producer, names: &names, most: 1}
			c.Observers = []outbox.Observer{w}
		})
		b.drained(time.Minute)
		first := w.seen.all()[0]
		require.Len(t, first.errs, 2)
		require.NoError(t, first.errs[0])
		require.ErrorContains(t, first.errs[1], "fewer results")
		require.Equal(t, 2, b.broker.times("b1"), "nobody knew that it was written")
	})
}

// shareWatch notes shares and backlogs.
type shareWatch struct {
	shares notes[outbox.Share]
	names  notes[string]
}

func (w *shareWatch) ObserveShare(_ context.Context, s outbox.Share) { w.shares.add(s) }

func (w *shareWatch) ObserveRound(_ context.Context, r outbox.Round) {
	w.names.add("round of " + r.Outbox)
}

func (w *shareWatch) ObserveBacklog(_ context.Context, b outbox.Backlog) {
	w.names.add("backlog of " + b.Outbox)
}

// Observers see a share when it changes, also of a relay without rows to publish, and when the
// relay ends.
func TestRelay_ShareObserver(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var w shareWatch
		with := func(c *outbox.RelayConfig, _ *faults) {
			c.Name, c.Observers = "orders", []outbox.Observer{&w}
		}
		first := b.start(with)
		b.sleep(time.Minute)
		b.start(nil)
		b.sleep(time.Minute)
		first.stop()
		told := w.shares.all()
		for _, s := range told {
			require.Equal(t, "orders", s.Outbox)
			require.Equal(t, told[0].Relay, s.Relay)
			require.NotEmpty(t, s.Relay)
		}
		require.Len(t, told, 3, "%v", told)
		require.Equal(t, []int{outbox.Shards, outbox.Shards / 2, 0}, []int{told[0].Shards, told[1].Shards, told[2].Shards})
		require.Equal(t, []bool{false, false, true}, []bool{told[0].Ended, told[1].Ended, told[2].Ended})
	})
}

// Observations have the name of the outbox.
func TestRelay_Name(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var w shareWatch
		b.table.add("t", "a", "a1")
		b.start(func(c *outbox.RelayConfig, _ *faults) { c.Name, c.Observers = "orders", []outbox.Observer{&w} })
		b.drained(time.Minute)
		b.sleep(time.Minute)
		require.Contains(t, w.names.all(), "round of orders")
		require.Contains(t, w.names.all(), "backlog of orders")
		require.NotContains(t, w.names.all(), "backlog of ")
	})
}

// writeWatch watches the adding of entries, not a relay.
type writeWatch struct{}

func (writeWatch) ObserveWrite(context.Context, outbox.Write) {}

// An observer of another place is refused, because it would have no calls.
func TestNewRelay_RefusesObserversOfAnotherPlace(t *testing.T) {
	table := newTable(newBroker())
	_, err := outbox.NewRelay(outbox.RelayConfig{
		Store: &faults{Store: table}, Producer: newProducer(newBroker(), nil), Logger: slog.New(slog.DiscardHandler),
		Observers: []outbox.Observer{&publishWatch{}, writeWatch{}},
	})
	require.ErrorContains(t, err, "writeWatch")
	require.NotContains(t, err.Error(), "publishWatch")
}
