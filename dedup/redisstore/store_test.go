package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Rule 29: an unconditional completion is a fact that replaces any record but another completion.
// The call returns the error of a lost claim.
func TestLateCompletionWinsOverUnfinishedRecords(t *testing.T) {
	for name, then := range map[string]func(b bench, heir dedup.Claim) error{
		"claimed": func(bench, dedup.Claim) error { return nil },
		"dead": func(b bench, heir dedup.Claim) error {
			return b.finish(dedup.Completion{Claim: heir, Retention: retention, Dead: "gave up"})
		},
		"moved": func(b bench, heir dedup.Claim) error {
			return b.finish(dedup.Completion{Claim: heir, Retention: retention, Retry: 1})
		},
		"released": func(b bench, heir dedup.Claim) error {
			return b.Release(context.Background(), []dedup.Release{{Claim: heir, Retention: retention}})
		},
	} {
		for _, looks := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, compared first: %v", name, looks), func(t *testing.T) {
				b := newBench(t)
				b.results.Store(looks)
				r := request("late")
				zombie, heir := b.takenOver(r)
				require.NoError(t, then(b, heir))
				require.ErrorIs(t, b.finish(completed(zombie)), dedup.ErrClaimLost)
				b.meets(dedup.Done, r)
				require.ErrorIs(t, b.finish(completed(heir)), dedup.ErrClaimLost)
				require.ErrorIs(t, b.Renew(t.Context(), long, []dedup.Claim{heir}), dedup.ErrClaimLost)
				b.meets(dedup.Done, r)
			})
		}
	}
}

// Rule 29: a late completion without a result never removes the result that another worker stored.
func TestLateCompletionKeepsTheResult(t *testing.T) {
	b, old := newBench(t), request("result")
	stale := b.another() // has never seen a result: writes first, looks afterwards
	zombie, heir := b.takenOver(old)
	answer := dedup.Result{Schema: 3, Data: []byte(`{"paid":true}`)}
	require.NoError(t, b.finish(dedup.Completion{Claim: heir, Retention: retention, Result: answer}))

	require.False(t, stale.results.Load())
	require.ErrorIs(t, stale.finish(completed(zombie)), dedup.ErrClaimLost)
	require.Equal(t, answer, b.meets(dedup.Done, old).Result)
	require.True(t, stale.results.Load(), "from now on it looks first")
	require.ErrorIs(t, stale.finish(completed(zombie)), dedup.ErrClaimLost, "the record is the heir's again")
	require.Equal(t, answer, b.meets(dedup.Done, old).Result)
	require.NoError(t, b.finish(dedup.Completion{Claim: heir, Retention: retention, Result: answer}), "a repeat succeeds")
	require.InDelta(t, retention, b.ttl(old), float64(time.Minute))
}

// A late completion does not take an earlier one's place. A worker that completed in time may
// repeat its completion.
func TestLateCompletionLeavesAnEarlierOne(t *testing.T) {
	for _, looks := range []bool{false, true} {
		b, r := newBench(t), request("twice")
		b.results.Store(looks)
		zombie, heir := b.takenOver(r)
		require.NoError(t, b.finish(completed(heir)))
		require.ErrorIs(t, b.finish(completed(zombie)), dedup.ErrClaimLost)
		require.NoError(t, b.finish(completed(heir)), "a repeat succeeds")
		require.Equal(t, heir.Token, b.record(r).token)
	}
}

// After a Reopen the counts of the event start anew: with the old failures, the event would be
// given up again at once.
func TestReopenForgetsFailures(t *testing.T) {
	b, r := newBench(t), request("anew")
	_, heir := b.takenOver(r)
	require.NoError(t, b.Release(t.Context(), []dedup.Release{{Claim: heir, Outcome: dedup.Unknown, Retention: retention}}))
	c := b.held(dedup.Uncertain, long, r)
	require.NoError(t, b.finish(dedup.Completion{Claim: c, Retention: retention, Dead: "crash loop"}))
	var err error
	r.Position, err = b.Reopen(t.Context(), r.Key)
	require.NoError(t, err)
	a := b.meets(dedup.Fresh, r)
	require.Zero(t, a.Failures)
	require.Zero(t, a.Takeovers)
	require.EqualValues(t, 4, a.Fence, "fences never go back")
}

// A completion under a request without fingerprint, by a worker that does not compare yet, keeps the one that is known.
func TestCompletionKeepsTheFingerprint(t *testing.T) {
	b, r := newBench(t), request("print")
	printed := r
	printed.Fingerprint = dedup.Fingerprint{1}
	c := b.held(dedup.Fresh, long, printed)
	c.Fingerprint = dedup.Fingerprint{}
	require.NoError(t, b.finish(completed(c)))
	b.meets(dedup.Done, printed)
	printed.Fingerprint = dedup.Fingerprint{2}
	b.meets(dedup.Conflict, printed)
}

// A redriven copy may have been repaired: its fingerprint is not compared with the other copies of
// the event.
func TestRedrivenCopyLeavesNoFingerprint(t *testing.T) {
	b, r := newBench(t), request("redriven")
	r.Fingerprint = dedup.Fingerprint{1}
	c := b.held(dedup.Fresh, long, r)
	require.NoError(t, b.finish(dedup.Completion{Claim: c, Retention: retention, Dead: "poison"}))
	repaired := r
	repaired.Fingerprint = dedup.Fingerprint{2}
	var err error
	repaired.Position, err = b.Reopen(t.Context(), r.Key)
	require.NoError(t, err)
	require.NoError(t, b.finish(completed(b.held(dedup.Fresh, long, repaired))))
	b.meets(dedup.Done, r)
}

// R-02, rule 33: a claim is one command with its expiry, and outlives its lease by the retention.
func TestEveryRecordExpires(t *testing.T) {
	b := newBench(t)
	lives := func(r dedup.Request, want time.Duration) {
		t.Helper()
		require.InDelta(t, want, b.ttl(r), float64(30*time.Second))
	}
	r := request("ttl")
	c := b.held(dedup.Fresh, long, r)
	lives(r, long+retention)
	require.NoError(t, b.Renew(t.Context(), 3*long, []dedup.Claim{c}))
	lives(r, 3*long+retention)
	require.NoError(t, b.Release(t.Context(), []dedup.Release{{Claim: c, Outcome: dedup.Failed, Retention: 2 * retention}}))
	lives(r, 2*retention)
	c = b.held(dedup.Fresh, long, r)
	lives(r, long+retention)
	require.NoError(t, b.finish(dedup.Completion{Claim: c, Retention: 5 * retention, Dead: "why not"}))
	lives(r, 5*retention)
	p, err := b.Reopen(t.Context(), r.Key)
	require.NoError(t, err)
	lives(r, 5*retention)
	r.Position = p
	require.NoError(t, b.finish(completed(b.held(dedup.Fresh, long, r))))
	lives(r, retention)
}

// A TTL that the store never sets does not end a lease: no worker may take the claim over because
// of it.
func TestForeignTTLDoesNotEndALease(t *testing.T) {
	b, r := newBench(t), request("persisted")
	c := b.held(dedup.Fresh, long, r)
	for _, tamper := range []func() error{
		func() error { return b.rdb.Persist(t.Context(), b.key(r.Key)).Err() },
		func() error { return b.rdb.Expire(t.Context(), b.key(r.Key), 100*retention).Err() }, // as a clock set back
	} {
		require.NoError(t, tamper())
		require.LessOrEqual(t, b.meets(dedup.Busy, r).Wait, long)
		require.InDelta(t, long+retention, b.ttl(r), float64(30*time.Second), "the lease began anew, once")
	}
	require.NoError(t, b.finish(completed(c)))
}

// a renewal of a lost claim changes neither the owner nor its lease.
func TestRenewNeverSteals(t *testing.T) {
	b, r := newBench(t), request("stolen")
	zombie, heir := b.takenOver(r)
	before := b.record(r)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			err := b.Renew(context.Background(), 50*long, []dedup.Claim{zombie})
			if !errors.Is(err, dedup.ErrClaimLost) {
				t.Errorf("renewal of a lost claim: %v", err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, before, b.record(r))
	require.LessOrEqual(t, b.ttl(r), long+retention)
	require.Equal(t, heir.Token, before.token)
	require.NoError(t, b.finish(completed(heir)))
}

// a server that forgets its scripts in mid-run, as a restarted one or a new master does, gets
// the scripts again.
func TestScriptFlushInMidRun(t *testing.T) {
	b := newBench(t)
	stop := make(chan struct{})
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := b.rdb.ScriptFlush(context.Background()).Err(); err != nil {
					t.Errorf("script flush: %v", err)
					return
				}
			}
		}
	})
	for round := range 50 {
		reqs := batchOf(fmt.Sprint("flush-", round), 20)
		tok, answers := dedup.NewToken(), make([]dedup.Answer, len(reqs))
		var held []dedup.Claim
		var back []dedup.Release
		require.NoError(t, b.Claim(t.Context(), tok, long, reqs, answers))
		for i, a := range answers {
			held = append(held, reqs[i].Held(tok, a))
			back = append(back, dedup.Release{Claim: held[i], Outcome: dedup.Failed, Retention: retention})
		}
		require.NoError(t, b.Renew(t.Context(), long, held))
		require.NoError(t, b.Release(t.Context(), back))
		require.NoError(t, b.Claim(t.Context(), dedup.NewToken(), long, reqs, answers))
		for _, a := range answers {
			require.Equal(t, dedup.Fresh, a.Verdict)
			require.EqualValues(t, 2, a.Fence)
			require.EqualValues(t, 1, a.Failures)
		}
	}
	close(stop)
	flusher.Wait()
}

// scripts and commands of this store name one key each.
func TestScriptsUseTheirKeyOnly(t *testing.T) {
	for _, s := range []*script{claimScript, renewScript, completeScript, restoreScript, releaseScript, reopenScript, registerScript,
		inspectScript, forgetScript, discardScript} {
		require.Equal(t, 1, strings.Count(s.body, "KEYS["))
		require.Contains(t, s.body, "KEYS[1]")
		require.Equal(t, strings.Count(s.body, "redis.call("), strings.Count(s.body, ", key"),
			"every command has the key as its argument")
	}
}

// R-17, rule 51: different keys never share a name, and no part of a key chooses the slot.
func TestKeysAreInjectiveAndHaveNoHashTag(t *testing.T) {
	s := New(nil)
	seen := make(map[string]dedup.Key)
	for _, k := range []dedup.Key{
		{Tenant: "a:b", ID: "c"}, {Tenant: "a", Scope: "b", ID: "c"}, {Tenant: "a%3Ab", ID: "c"},
		{Scope: "{x}", ID: "1"}, {Scope: "x", ID: "{1}"}, {Scope: "%7Bx%7D", ID: "1"},
	} {
		name := s.key(k)
		require.True(t, strings.HasPrefix(name, "idem:"))
		require.NotContains(t, name, "{")
		require.NotContains(t, seen, name)
		seen[name] = k
	}
	require.Equal(t, "idem:acme:notifier:order.created:42",
		s.key(dedup.Key{Tenant: "acme", Scope: "notifier", Type: "order.created", ID: "42"}))
}

// Rule 35, R-15: a value that cannot be read, or is not this key's, is an outage and never an
// answer.
func TestUnreadableRecordIsNoAnswer(t *testing.T) {
	b := newBench(t)
	foreign := request("foreign")
	b.held(dedup.Fresh, long, foreign)
	theirs, err := b.rdb.Get(t.Context(), b.key(foreign.Key)).Result()
	require.NoError(t, err)
	for name, value := range map[string]string{
		"a later version": "\x02d", "another program's": "PENDING", "empty": "", "another key's": theirs,
	} {
		t.Run(name, func(t *testing.T) {
			reqs := []dedup.Request{request("a"), request("b-" + name), request("c-" + name)}
			require.NoError(t, b.rdb.Set(t.Context(), b.key(reqs[1].Key), value, time.Minute).Err())
			answers := make([]dedup.Answer, len(reqs))
			tok := dedup.NewToken()
			err := b.Claim(t.Context(), tok, long, reqs, answers)
			require.ErrorIs(t, err, dedup.ErrUnavailable)
			require.Equal(t, make([]dedup.Answer, len(reqs)), answers, "no answer to any key of the call")
			c := reqs[1].Held(tok, dedup.Answer{Fence: 1})
			if name != "another key's" { // there the compared token decides
				require.ErrorIs(t, b.Renew(t.Context(), long, []dedup.Claim{c}), dedup.ErrUnavailable)
				require.ErrorIs(t, b.Release(t.Context(), []dedup.Release{{Claim: c, Retention: retention}}), dedup.ErrUnavailable)
			}
			_, err = b.Reopen(t.Context(), c.Key)
			require.Error(t, err)
			_, err = b.Inspect(t.Context(), reqs[0].Key, c.Key)
			require.ErrorIs(t, err, dedup.ErrUnavailable)
			require.ErrorIs(t, b.Forget(t.Context(), c.Key), dedup.ErrUnavailable)
			require.ErrorIs(t, b.Discard(t.Context(), c.Key, retention, "x"), dedup.ErrUnavailable)
			_, err = b.Import(t.Context(), []dedup.Imported{{Key: c.Key, Retention: retention}})
			require.ErrorIs(t, err, dedup.ErrUnavailable)
			if name != "another key's" { // Reopen is seen to be wrong when it has happened
				require.Equal(t, value, b.rdb.Get(t.Context(), b.key(c.Key)).Val(), "a person changes nothing he cannot read")
			}
			require.ErrorIs(t, b.finish(completed(c)), dedup.ErrUnavailable)
		})
	}
}

func TestWrongArguments(t *testing.T) {
	s := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	ctx, r := t.Context(), []dedup.Request{request("x")}
	a := make([]dedup.Answer, 1)
	for _, err := range []error{
		s.Claim(ctx, dedup.NewToken(), 0, r, a),
		s.Claim(ctx, dedup.NewToken(), long, r, nil),
		s.Renew(ctx, -1, nil),
		s.Complete(ctx, []dedup.Completion{{}}),
		s.Release(ctx, []dedup.Release{{}}),
	} {
		require.Error(t, err)
		require.NotErrorIs(t, err, dedup.ErrUnavailable)
	}
	_, err := s.Reopen(ctx, dedup.Key{})
	require.ErrorIs(t, err, dedup.ErrKey)
	require.NoError(t, s.Claim(ctx, dedup.NewToken(), long, nil, nil), "nothing asked, nothing sent")
	require.NoError(t, s.Renew(ctx, long, nil))
	require.NoError(t, s.Complete(ctx, nil))
	require.NoError(t, s.Release(ctx, nil))
}

func TestContextErrorsStayVisible(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var a [1]dedup.Answer
	err := b.Claim(ctx, dedup.NewToken(), long, []dedup.Request{request("x")}, a[:])
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.Zero(t, a[0])
}

// the memory of an event in all: key, record, both dictionary entries.
func TestMemoryPerKey(t *testing.T) {
	b := newBench(t)
	b.prefix = "idem:" + strings.TrimPrefix(b.prefix, "test-")[:4]
	var claimed, done int64
	const n = 1000
	for range n {
		r := request(newUUID())
		c := b.held(dedup.Fresh, 30*time.Second, r)
		t.Cleanup(func() { b.rdb.Del(context.Background(), b.key(r.Key)) })
		claimed += b.rdb.MemoryUsage(t.Context(), b.key(r.Key)).Val()
		require.NoError(t, b.finish(completed(c)))
		done += b.rdb.MemoryUsage(t.Context(), b.key(r.Key)).Val()
	}
	t.Logf("MEMORY USAGE: claimed %d bytes, done %d bytes a key", claimed/n, done/n)
	require.Less(t, done/n, int64(220))
	require.Less(t, claimed/n, int64(220))
}
