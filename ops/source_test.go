package ops

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// box is an outbox with a parked row.
type box struct {
	outbox.Store
	err error
}

func (b *box) Backlog(_ context.Context, limit int) (outbox.Backlog, error) {
	return outbox.Backlog{Waiting: int64(min(limit, 7)), Oldest: 3 * time.Second, Parked: 1, Blocked: 2}, nil
}

func (b *box) Parked(context.Context, int) ([]pgoutbox.Parked, error) {
	return []pgoutbox.Parked{{
		Row: outbox.Row{Seq: 991, Entry: outbox.Entry{Topic: "payments", Key: "order-12", Type: "payment.completed", ID: "01J9"}},
		At:  time.Now().Add(-time.Hour), Error: "message too large", Behind: 2,
	}}, b.err
}

func TestOutbox(t *testing.T) {
	cfg := quietConfig()
	cfg.Outbox = &box{}
	cfg = cfg.withDefaults()
	s := serve(t, cfg, newSources(cfg))
	body := s.get("outbox").body
	for _, want := range []string{"<b>7</b>", "the oldest for 3 s", "991", "payment.completed", "message too large", "1 h ago"} {
		require.Contains(t, body, want)
	}
	require.Contains(t, s.get("").body, "1 outbox row parked")

	cfg.Outbox = &box{err: errors.New("no connection")}
	s = serve(t, cfg, newSources(cfg))
	require.Contains(t, s.get("outbox").body, "no connection")
}

// Only configured sources are asked, and the monitor is found among the observers.
func TestNewSources(t *testing.T) {
	m := NewMonitor()
	store, other := memstore.New(memstore.Volatile()), memstore.New(memstore.Volatile())
	cfg := Config{Consumer: consumer.Config{Group: "billing", Store: store, Observers: []observe.Observer{m}}, Stores: []dedup.Store{store, other, nil}, Scopes: []string{"a", "billing"}}.withDefaults()
	require.Same(t, m, cfg.Monitor)
	require.Equal(t, []string{"billing", "a"}, cfg.Scopes)
	require.Len(t, cfg.Stores, 2)
	src := newSources(cfg)
	require.Same(t, m, src.monitor)
	require.Nil(t, src.deadLetters)
	require.Nil(t, src.group)
	require.NotNil(t, src.events)
	ledgers := storesOf(cfg.Stores, nil)
	require.Equal(t, "memory", ledgers[0].Name)
	require.Equal(t, "memory (2)", ledgers[1].Name)
	src = newSources(Config{}.withDefaults())
	require.Equal(t, sources{}, src)
}

// A claim is listed if its holder is gone, and not if the holder is alive.
func TestStuckClaims(t *testing.T) {
	ctx, store := t.Context(), memstore.New(memstore.Volatile())
	claim := func(id string, lease time.Duration) {
		answers := make([]dedup.Answer, 1)
		require.NoError(t, store.Claim(ctx, dedup.NewToken(), lease, []dedup.Request{{Key: dedup.Key{Scope: "billing", Type: "paid", ID: id}, Retention: time.Hour}}, answers))
	}
	claim("gone", time.Millisecond)
	claim("alive", time.Hour)
	cfg := quietConfig()
	cfg.Consumer.Store = store
	cfg = cfg.withDefaults()
	src := newSources(cfg)
	require.Eventually(t, func() bool {
		all, err := src.claims.stuck(ctx)
		return err == nil && len(all[0].Records) == 1 && all[0].Records[0].Key.ID == "gone"
	}, 5*time.Second, time.Millisecond)
	s := serve(t, cfg, src)
	require.Contains(t, s.get("claims").body, "gone")
	require.Contains(t, s.get("").body, "1 claim without a living holder")
	require.Contains(t, s.get("event?id=gone").body, "Not known.")
	require.Contains(t, s.get("event?id=alive").body, "It is being handled now.")
}

// The page of an event names the copies with another content.
func TestEventPage_Conflicts(t *testing.T) {
	ctx, store := t.Context(), memstore.New(memstore.Volatile())
	key := dedup.Key{Scope: "billing", Type: "paid", ID: "e1"}
	reqs := []dedup.Request{{Key: key, Retention: time.Hour, Fingerprint: dedup.Checksum([]byte("one"))}}
	require.NoError(t, store.Claim(ctx, dedup.NewToken(), time.Hour, reqs, make([]dedup.Answer, 1)))
	require.NoError(t, store.NoteConflict(ctx, key, dedup.Origin{Topic: "payments", Partition: 2, Offset: 9}))
	cfg := quietConfig()
	cfg.Consumer.Store = store
	cfg = cfg.withDefaults()
	s := serve(t, cfg, newSources(cfg))
	require.Contains(t, s.get("event?id=e1").body, "compared by checksum, copies that differ: payments/2 offset 9")
}
