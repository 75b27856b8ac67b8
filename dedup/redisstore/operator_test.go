package redisstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func (b bench) inspected(r dedup.Request) dedup.Record {
	b.Helper()
	all, err := b.Inspect(context.Background(), r.Key)
	require.NoError(b, err)
	require.Len(b, all, 1)
	return all[0]
}

// the TTL on the server shows when a record changed and when its lease ends. A TTL that the
// store has not set shows neither, and a look does not repair it.
func TestInspectReadsTheLifetime(t *testing.T) {
	b, r := newBench(t), request("held")
	c := b.held(dedup.Fresh, long, r)
	about := func(want, got time.Duration) {
		t.Helper()
		require.InDelta(t, want, got, float64(20*time.Second))
	}
	v := b.inspected(r)
	about(long, v.Lease)
	about(0, time.Until(v.Changed))
	about(long+retention, time.Until(v.Expires))
	require.True(t, v.Created.IsZero())

	require.NoError(t, b.rdb.PExpire(t.Context(), b.key(r.Key), retention-time.Minute).Err()) // as after two minutes
	v = b.inspected(r)
	about(-time.Minute, v.Lease)
	about(-2*time.Minute, time.Until(v.Changed))
	about(retention-time.Minute, time.Until(v.Expires))

	require.NoError(t, b.rdb.Persist(t.Context(), b.key(r.Key)).Err())
	v = b.inspected(r)
	require.Equal(t, long, v.Lease, "as the next claim would have it")
	require.True(t, v.Changed.IsZero())
	require.True(t, v.Expires.IsZero())
	require.Equal(t, time.Duration(-1), b.ttl(r))
	require.ErrorIs(t, b.Forget(t.Context(), r.Key), dedup.ErrHeld)
	about(long+retention, b.ttl(r))

	require.NoError(t, b.finish(completed(c)))
	v = b.inspected(r)
	require.True(t, v.Changed.IsZero(), "not kept with what is done")
	about(retention, time.Until(v.Expires))
	require.Zero(t, v.Lease)
}

// a record that a person writes expires like all others, and no sooner than before.
func TestWhatAPersonWritesExpires(t *testing.T) {
	b := newBench(t)
	about := func(want time.Duration, id string) {
		t.Helper()
		require.InDelta(t, want, b.ttl(request(id)), float64(20*time.Second), id)
	}
	discard := func(id string) {
		t.Helper()
		require.NoError(t, b.Discard(t.Context(), request(id).Key, retention, "x"))
	}
	discard("new")
	about(retention, "new")
	b.held(dedup.Fresh, 10*retention, request("held"))
	discard("held")
	about(11*retention, "held")
	short := request("short")
	short.Retention = time.Minute
	require.NoError(t, b.finish(dedup.Completion{Claim: b.held(dedup.Fresh, long, short), Retention: time.Minute, Dead: "x"}))
	discard("short")
	about(retention, "short")
	require.NoError(t, b.rdb.Persist(t.Context(), b.key(short.Key)).Err())
	discard("short")
	about(retention, "short")
	_, err := b.Import(t.Context(), []dedup.Imported{{Key: request("imported").Key, Retention: retention}})
	require.NoError(t, err)
	about(retention, "imported")

	_, err = b.Reopen(t.Context(), request("held").Key) // it is kept for as long as it was when it was given up
	require.NoError(t, err)
	about(11*retention, "held")
}

// Rule 8: an event that was imported or given up before the first consumer came is forgotten one
// day, and is not new then.
func TestWhatAPersonWritesFixesTheBirth(t *testing.T) {
	onServerAndCluster(t, func(t *testing.T, client redis.UniversalClient, prefix string) {
		for name, write := range map[string]func(*Store, dedup.Key) error{
			"import": func(s *Store, k dedup.Key) error {
				_, err := s.Import(t.Context(), []dedup.Imported{{Key: k, Retention: retention}})
				return err
			},
			"discard": func(s *Store, k dedup.Key) error { return s.Discard(t.Context(), k, retention, "x") },
		} {
			s := New(client, Prefix(prefix))
			before := client.Time(t.Context()).Val().UnixMilli()
			require.NoError(t, write(s, dedup.Key{Scope: name, ID: "old"}))
			born, err := client.Get(t.Context(), s.about("born", name)).Int64()
			require.NoError(t, err, name)
			require.InDelta(t, before, born, 10_000, name)
			require.NoError(t, write(New(client, Prefix(prefix)), dedup.Key{Scope: name, ID: "another"}))
			again, err := client.Get(t.Context(), s.about("born", name)).Int64()
			require.NoError(t, err)
			require.Equal(t, born, again)
		}
	})
}

// an import with lost replies counts the new events, and not those that it has added itself.
func TestLostRepliesOfAnImport(t *testing.T) {
	direct, prefix := testenv.Redis(t)
	proxy := newLossyProxy(t, direct.Options().Addr, 0.2)
	var all sync.WaitGroup
	for w := range 4 {
		s := New(proxy.client(t), Prefix(prefix))
		all.Go(func() {
			for round := range 40 {
				var events []dedup.Imported
				for _, r := range batchOf(fmt.Sprintf("%d-%d", w, round), 30) {
					events = append(events, dedup.Imported{Key: r.Key, Origin: r.Origin, Retention: retention})
				}
				added, err := s.Import(context.Background(), append(events, events[:10]...))
				switch {
				case isUnavailable(err): // too many lost in a row
				case err != nil, added != len(events):
					t.Errorf("%d added: %v", added, err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d replies lost", proxy.lost.Load())
	require.Greater(t, proxy.lost.Load(), int64(10), "the proxy must do its work")
}

// Rule 29: a worker completes its event after a person gave the event up. The worker gets the error
// of a lost claim, and the completion is kept.
func TestLateCompletionWinsOverADiscard(t *testing.T) {
	b, r := newBench(t), request("late")
	c := b.held(dedup.Fresh, long, r)
	require.NoError(t, b.Discard(t.Context(), r.Key, retention, "x"))
	require.ErrorIs(t, b.finish(completed(c)), dedup.ErrClaimLost)
	b.meets(dedup.Done, r)
	require.ErrorIs(t, b.Discard(t.Context(), r.Key, retention, "x"), dedup.ErrSettled)
}

// Rule 6: later writes keep the origin of the dead letter, and never make one up.
func TestDeadRecordKeepsTheOriginOfItsDeadLetter(t *testing.T) {
	b, r := newBench(t), request("dead")
	c := b.held(dedup.Fresh, long, r)
	letter := dedup.Origin{Topic: "elsewhere", Partition: 7, Offset: 1 << 40, Time: time.UnixMilli(1_700_000_000_123).UTC()}
	c.First = letter
	for range 2 { // a repeat has no effect
		require.NoError(t, b.finish(dedup.Completion{Claim: c, Retention: retention, Dead: "poison"}))
		require.Equal(t, letter, b.record(r).first)
	}
	require.NoError(t, b.Discard(t.Context(), r.Key, retention, "x"))
	require.Equal(t, letter, b.record(r).first)
	_, err := b.Reopen(t.Context(), r.Key)
	require.NoError(t, err)
	require.Equal(t, letter, b.record(r).first)

	c = b.held(dedup.Fresh, long, request("unknown origin"))
	c.First = dedup.Origin{}
	require.NoError(t, b.finish(dedup.Completion{Claim: c, Retention: retention, Dead: "poison"}))
	require.Equal(t, someOrigin, b.record(request("unknown origin")).first)
	c = b.held(dedup.Fresh, long, request("moved"))
	c.First = letter
	require.NoError(t, b.finish(dedup.Completion{Claim: c, Retention: retention, Retry: 1}))
	require.Equal(t, someOrigin, b.record(request("moved")).first, "no dead letter was sent")
}
