package redisstore

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func isUnavailable(err error) bool { return errors.Is(err, dedup.ErrUnavailable) }

// failsClosed requires that every verb fails as an outage, with its cause.
func failsClosed(t *testing.T, s *Store, cause func(error) bool) {
	t.Helper()
	ctx := t.Context()
	r := request("x")
	for _, first := range []error{ // before the first claim, and at the registration
		New(s.client).Claim(ctx, dedup.NewToken(), long, []dedup.Request{r}, make([]dedup.Answer, 1)),
		New(s.client).Register(ctx, dedup.Registration{Scope: "x", Topics: []string{"t"}, NoOffsets: true}),
		New(s.client).Register(ctx, dedup.Registration{Scope: "x"}),
		New(s.client).Discard(ctx, r.Key, retention, "x"),
	} {
		require.ErrorIs(t, first, dedup.ErrUnavailable)
		require.True(t, cause(first), "%v", first)
	}
	tok, answers := dedup.NewToken(), []dedup.Answer{{Verdict: dedup.Fresh}}
	c := r.Held(tok, dedup.Answer{Fence: 1})
	_, reopen := s.Reopen(ctx, r.Key)
	_, inspect := s.Inspect(ctx, r.Key)
	added, imported := s.Import(ctx, []dedup.Imported{{Key: r.Key, Retention: retention}})
	require.Zero(t, added)
	for verb, err := range map[string]error{
		"claim":    s.Claim(ctx, tok, long, []dedup.Request{r}, answers),
		"renew":    s.Renew(ctx, long, []dedup.Claim{c}),
		"release":  s.Release(ctx, []dedup.Release{{Claim: c, Retention: retention}}),
		"complete": s.Complete(ctx, []dedup.Completion{completed(c)}),
		"die":      s.Complete(ctx, []dedup.Completion{{Claim: c, Retention: retention, Dead: "x"}}),
		"reopen":   reopen,
		"inspect":  inspect,
		"import":   imported,
		"forget":   s.Forget(ctx, r.Key),
		"discard":  s.Discard(ctx, r.Key, retention, "x"),
	} {
		require.ErrorIs(t, err, dedup.ErrUnavailable, verb)
		require.True(t, cause(err), "%s: %v", verb, err)
		require.NotErrorIs(t, err, dedup.ErrClaimLost, verb)
		require.NotErrorIs(t, err, dedup.ErrNotDead, verb)
		require.NotErrorIs(t, err, dedup.ErrNotFound, verb)
	}
	require.Zero(t, answers[0], "no answer is left")
}

// no error from a server is a verdict about an event.
func TestServerErrorsAreOutages(t *testing.T) {
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica.",
		"MASTERDOWN Link with MASTER is down", "CLUSTERDOWN The cluster is down", "TRYAGAIN Multiple keys request",
		"BUSY Redis is busy running a script", "OOM command not allowed when used memory > 'maxmemory'.",
		"MISCONF Redis is configured to save RDB snapshots", "NOREPLICAS Not enough good replicas to write.",
		"NOAUTH Authentication required.", "WRONGPASS invalid username-password pair", "NOPERM no permissions to run",
		"WRONGTYPE Operation against a key holding the wrong kind of value", "UNBLOCKED", "NOSCRIPT No matching script.",
		"ERR syntax error", "ERR max number of clients reached", "MOVED 1 127.0.0.1:1", "CROSSSLOT Keys in request",
	} {
		t.Run(strings.Fields(text)[0], func(t *testing.T) {
			client := newFake(t, func([]string) string { return "-" + text + "\r\n" })
			failsClosed(t, acquainted(client), func(err error) bool {
				var answered redis.Error
				return errors.As(err, &answered) && answered.Error() == text
			})
		})
	}
}

// the way to the server.
func TestBrokenConnectionsAreOutages(t *testing.T) {
	t.Run("closed by the server", func(t *testing.T) {
		s := acquainted(newFake(t, func([]string) string { return "" }))
		failsClosed(t, s, func(err error) bool { return errors.Is(err, io.EOF) })
	})
	t.Run("refused", func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: testenv.FreeAddr(t), MaxRetries: -1, DialerRetries: 1})
		t.Cleanup(func() { _ = client.Close() })
		failsClosed(t, acquainted(client), func(error) bool { return true })
		require.ErrorIs(t, New(client).Ping(t.Context()), dedup.ErrUnavailable)
		_, err := New(client).Check(t.Context())
		require.ErrorIs(t, err, dedup.ErrUnavailable)
	})
	t.Run("client closed", func(t *testing.T) {
		client := redis.NewClient(&redis.Options{})
		require.NoError(t, client.Close())
		failsClosed(t, acquainted(client), func(err error) bool { return errors.Is(err, redis.ErrClosed) })
	})
	t.Run("silent", func(t *testing.T) {
		block := make(chan struct{})
		client := newFake(t, func([]string) string { <-block; return "" })
		t.Cleanup(func() { close(block) })
		opts := *client.Options()
		opts.ReadTimeout = 20 * time.Millisecond
		hasty := redis.NewClient(&opts)
		t.Cleanup(func() { _ = hasty.Close() })
		failsClosed(t, acquainted(hasty), func(err error) bool {
			var timeout interface{ Timeout() bool }
			return errors.As(err, &timeout) && timeout.Timeout()
		})
	})
}

// replies that do not fit are errors and never answers.
func TestRepliesThatDoNotFitAreRefused(t *testing.T) {
	c := request("x")
	rec := claimed(dedup.NewToken(), long, &c) // of another worker
	rec.check = checkOf(c.Key)
	rival := bulk(rec.encode())
	other := dedup.NewToken()
	scripted := func(code string, left int, value string) string {
		return fmt.Sprintf("*4\r\n%s%s:%d\r\n%s", bulk(string(other[:])), bulk(code), left, value)
	}
	for name, script := range map[string]string{
		"token of another call": scripted("held", 0, rival),
		"too short":             "*1\r\n$4\r\nheld\r\n",
		"a number":              ":1\r\n",
		"nothing":               "$-1\r\n",
		"OK":                    "+OK\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := acquainted(newFake(t, func(cmd []string) string {
				if cmd[0] == "set" {
					return rival
				}
				return script
			}))
			answers := make([]dedup.Answer, 1)
			err := s.Claim(t.Context(), dedup.NewToken(), long, []dedup.Request{c}, answers)
			require.ErrorIs(t, err, dedup.ErrUnavailable)
			require.Zero(t, answers[0])
			held := []dedup.Claim{c.Held(other, dedup.Answer{})}
			require.ErrorIs(t, s.Renew(t.Context(), long, held), dedup.ErrUnavailable)
		})
	}
	for _, code := range []string{"held", "busy", "look", "what"} { // the right token, the wrong record
		s := acquainted(newFake(t, func(cmd []string) string {
			if cmd[0] == "set" {
				return rival
			}
			return scripted(code, 0, rival)
		}))
		answers := make([]dedup.Answer, 1)
		require.ErrorIs(t, s.Claim(t.Context(), other, long, []dedup.Request{c}, answers), dedup.ErrUnavailable, code)
		require.Zero(t, answers[0])
	}
	late := acquainted(newFake(t, func([]string) string { return scripted("ok", 0, bulk("")) })) // ok for another claim
	require.ErrorIs(t, late.Renew(t.Context(), long, []dedup.Claim{c.Held(dedup.NewToken(), dedup.Answer{})}),
		dedup.ErrUnavailable)
	require.NoError(t, late.Renew(t.Context(), long, []dedup.Claim{c.Held(other, dedup.Answer{})}))
	plain := acquainted(newFake(t, func([]string) string { return "+OK\r\n" })) // a SET without GET
	require.ErrorIs(t, bench{Store: plain}.finish(completed(c.Held(other, dedup.Answer{}))), dedup.ErrUnavailable)
}

// A pipeline of which some commands failed is a failed call: no answer to any of its keys.
func TestPartlyFailedPipelineAnswersNothing(t *testing.T) {
	for name, second := range map[string]string{"an error": "-OOM command not allowed\r\n", "a lost connection": ""} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			s := acquainted(newFake(t, func([]string) string {
				if n.Add(1)%3 == 2 {
					return second
				}
				return "$-1\r\n"
			}))
			reqs, answers := batchOf("part", 3), make([]dedup.Answer, 3)
			require.ErrorIs(t, s.Claim(t.Context(), dedup.NewToken(), long, reqs, answers), dedup.ErrUnavailable)
			require.Equal(t, make([]dedup.Answer, 3), answers)
		})
	}
}

// a full Redis grants no claims and loses no claims. Leases can still be renewed, and work
// goes on when there is room.
func TestFullRedisFailsClosed(t *testing.T) {
	b := onServer(t, testenv.RedisServer(t, "--maxmemory-policy", "noeviction"))
	ctx := t.Context()
	early, finished := request("early"), request("finished")
	require.NoError(t, b.finish(completed(b.held(dedup.Fresh, long, finished))))
	c := b.held(dedup.Fresh, long, early)
	require.NoError(t, b.rdb.ConfigSet(ctx, "maxmemory", "100kb").Err(), "less than an empty server has")

	outOfMemory := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.True(t, redis.HasErrorPrefix(err, "OOM"), "%v", err)
	}
	var a [1]dedup.Answer
	outOfMemory(b.Claim(ctx, dedup.NewToken(), long, []dedup.Request{request("late")}, a[:]))
	require.Zero(t, a[0])
	outOfMemory(b.finish(completed(c)))
	outOfMemory(b.finish(dedup.Completion{Claim: c, Retention: retention, Dead: "by script"}))
	outOfMemory(b.Release(ctx, []dedup.Release{{Claim: c, Retention: retention}}))
	require.NoError(t, b.Renew(ctx, long, []dedup.Claim{c}), "the holder keeps what he has")
	outOfMemory(b.Discard(ctx, early.Key, retention, "enough"))
	added, err := b.Import(ctx, []dedup.Imported{{Key: request("old").Key, Retention: retention}})
	outOfMemory(err)
	require.Zero(t, added)
	records, err := b.Inspect(ctx, early.Key, finished.Key)
	require.NoError(t, err, "a person can see what is there")
	require.Len(t, records, 2)
	require.NoError(t, b.Forget(ctx, finished.Key), "and make room")
	require.ErrorIs(t, b.Forget(ctx, early.Key), dedup.ErrHeld)

	require.NoError(t, b.rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	b.meets(dedup.Busy, early)
	b.meets(dedup.Fresh, finished)
	require.NoError(t, b.finish(completed(c)))
	b.meets(dedup.Fresh, request("late"))
}
