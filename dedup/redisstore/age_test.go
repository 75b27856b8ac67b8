package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// bornAt makes the scope of [request] one that this store has known since then.
func (b bench) bornAt(t time.Time) {
	b.Helper()
	require.NoError(b, b.rdb.Set(b.Context(), b.about("born", request("").Key.Scope), t.UnixMilli(), 0).Err())
}

func ofAge(id string, age time.Duration) dedup.Request {
	r := request(id)
	r.Origin.Time = time.Now().Add(-age)
	return r
}

// Rule 8: an event that may have been forgotten is never silently Fresh, and asking leaves no claim.
func TestTooOld(t *testing.T) {
	b := newBench(t)
	b.bornAt(time.Now().Add(-10 * retention))
	forgotten := ofAge("forgotten", 2*retention)
	b.meets(dedup.TooOld, forgotten)
	b.meets(dedup.TooOld, forgotten)
	require.Zero(t, b.rdb.Exists(t.Context(), b.key(forgotten.Key)).Val())
	b.meets(dedup.TooOld, ofAge("in the margin", retention-30*time.Second))
	b.meets(dedup.Fresh, ofAge("before the margin", retention-2*time.Minute))
	b.meets(dedup.Fresh, ofAge("of now", 0))

	for name, change := range map[string]func(*dedup.Request){
		"any age":         func(r *dedup.Request) { r.AnyAge = true },
		"retried":         func(r *dedup.Request) { r.Position.Retry = 1 },
		"redriven":        func(r *dedup.Request) { r.Position.Generation = 1 },
		"without time":    func(r *dedup.Request) { r.Origin.Time = time.Time{} },
		"Kafka's no time": func(r *dedup.Request) { r.Origin.Time = time.UnixMilli(-1) },
		"longer kept":     func(r *dedup.Request) { r.Retention = 3 * retention },
		"scope is new":    func(r *dedup.Request) { r.Key.Scope = "new" },
	} {
		r := ofAge(name, 2*retention)
		change(&r)
		b.meets(dedup.Fresh, r)
	}
}

// Rule 8: a known event is answered as ever, however old the event is.
func TestOldEventsThatAreKnown(t *testing.T) {
	b := newBench(t)
	known := func(id string, leave func(dedup.Claim)) dedup.Request {
		r := ofAge(id, 2*retention)
		leave(b.held(dedup.Fresh, long, r))
		return r
	}
	done := known("done", func(c dedup.Claim) { require.NoError(t, b.finish(completed(c))) })
	dead := known("dead", func(c dedup.Claim) {
		require.NoError(t, b.finish(dedup.Completion{Claim: c, Retention: retention, Dead: "x"}))
	})
	moved := known("moved", func(c dedup.Claim) {
		require.NoError(t, b.finish(dedup.Completion{Claim: c, Retention: retention, Retry: 1}))
	})
	released := known("released", func(c dedup.Claim) {
		require.NoError(t, b.Release(t.Context(), []dedup.Release{{Claim: c, Outcome: dedup.Failed, Retention: retention}}))
	})
	busy := known("busy", func(dedup.Claim) {})
	left := ofAge("left", 2*retention)
	_, heir := b.takenOver(left)

	b.bornAt(time.Now().Add(-10 * retention))
	later := b.another() // has not asked for the birth yet
	later.meets(dedup.TooOld, ofAge("unknown", 2*retention))
	later.meets(dedup.Done, done)
	later.meets(dedup.Dead, dead)
	later.meets(dedup.Rescheduled, moved)
	require.EqualValues(t, 1, later.meets(dedup.Fresh, released).Failures)
	later.meets(dedup.Busy, busy)
	later.meets(dedup.Busy, left)
	var a [1]dedup.Answer
	require.NoError(t, later.Claim(t.Context(), heir.Token, long, []dedup.Request{left}, a[:]))
	require.Equal(t, dedup.Uncertain, a[0].Verdict, "the claim of a call that is repeated")

	// In one call with others, each has its own answer.
	reqs := []dedup.Request{busy, done, ofAge("new", 0), ofAge("unknown", 2*retention)}
	answers := make([]dedup.Answer, len(reqs))
	require.NoError(t, later.Claim(t.Context(), dedup.NewToken(), long, reqs, answers))
	for i, want := range []dedup.Verdict{dedup.Busy, dedup.Done, dedup.Fresh, dedup.TooOld} {
		require.Equal(t, want, answers[i].Verdict, "%q", reqs[i].Key)
	}
}

// Rule 8: a record that expires between the two pipelines leaves an old event too old, not Fresh.
func TestTooOldInTheScript(t *testing.T) {
	b, r, tok := newBench(t), request("gone"), dedup.NewToken()
	want := claimed(tok, long, &r)
	want.check = checkOf(r.Key)
	for _, c := range []struct {
		first  kind
		code   string
		exists int64
	}{{look, "old", 0}, {setNew, "held", 1}} {
		calls := []call{{script: claimScript, key: b.key(r.Key), token: tok, args: []any{want.encode(), int(c.first)}}}
		require.NoError(t, b.runScripts(t.Context(), calls))
		require.Equal(t, c.code, calls[0].reply.code)
		require.Equal(t, c.exists, b.rdb.Exists(t.Context(), b.key(r.Key)).Val())
	}
	old := reply{code: "old"}
	a, err := b.granted(old, tok, &r)
	require.NoError(t, err)
	require.Equal(t, dedup.Answer{Verdict: dedup.TooOld}, a)
}

// Rule 8: a store that is younger than the retention has forgotten no event, and all of its
// processes agree on its birth.
func TestBirthOfAScope(t *testing.T) {
	b := newBench(t)
	ctx, name := t.Context(), b.about("born", request("").Key.Scope)
	b.meets(dedup.Fresh, ofAge("very old", 1000*retention))
	born := b.rdb.Get(ctx, name).Val()
	at, err := strconv.ParseInt(born, 10, 64)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), time.UnixMilli(at), 10*time.Second)
	require.EqualValues(t, -1, b.rdb.TTL(ctx, name).Val(), "it outlives all records")

	b.another().meets(dedup.Fresh, ofAge("very old too", 1000*retention))
	require.Equal(t, born, b.rdb.Get(ctx, name).Val(), "who asks first decides")

	require.NoError(t, b.rdb.Set(ctx, name, "yesterday", 0).Err())
	var a [1]dedup.Answer
	err = b.another().Claim(ctx, dedup.NewToken(), long, []dedup.Request{request("x")}, a[:])
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	b.meets(dedup.Fresh, request("x")) // remembers
}

// Rule 8: a running process gives an emptied store the birth of its scope back. Otherwise the next
// process would set a new one, and handle again what was handled in between and has expired.
func TestBirthAfterTheStoreWasEmptied_Rule8(t *testing.T) {
	b := newBench(t)
	ctx, name := t.Context(), b.about("born", request("").Key.Scope)
	b.bornAt(time.Now().Add(-10 * retention))
	born := b.rdb.Get(ctx, name).Val()
	b.meets(dedup.Fresh, ofAge("before", 0))
	require.NoError(t, b.rdb.Del(ctx, name, b.key(request("before").Key)).Err())
	b.meets(dedup.Fresh, ofAge("in the same minute", 0))
	require.Zero(t, b.rdb.Exists(ctx, name).Val(), "no round trip more")

	b.births.age(clockAge)
	require.Equal(t, dedup.TooOld, b.look(ofAge("handled and expired", 2*retention)).Verdict)
	require.Zero(t, b.rdb.Exists(ctx, name).Val(), "a look writes nothing")
	b.meets(dedup.Fresh, ofAge("a minute later", 0))
	require.Equal(t, born, b.rdb.Get(ctx, name).Val())
	b.another().meets(dedup.TooOld, ofAge("handled and expired", 2*retention))

	b.bornAt(time.Now())
	b.births.age(clockAge)
	b.meets(dedup.Fresh, ofAge("backlog", 2*retention))
	b.births.age(clockAge / 2)
	b.bornAt(time.Now().Add(-10 * retention))
	b.meets(dedup.Fresh, ofAge("more backlog", 2*retention))
}

// the server with the birth of a scope is down. Claims and looks at keys of other servers go on with
// the remembered birth. One caller a minute asks for the birth, and does not wait long.
func TestKnownBirthNeedsNoServer_R14(t *testing.T) {
	for name, answer := range map[string]string{
		"refused": "-CLUSTERDOWN Hash slot not served\r\n", "no use": bulk("yesterday"), "lost": "", "silent": "",
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			end := make(chan struct{})
			b := bench{TB: t, Store: acquainted(prompt(t, newFake(t, func(cmd []string) string {
				if cmd[1] != "idem:born:notifier" {
					return "$-1\r\n"
				}
				asked.Add(1)
				if name == "silent" {
					<-end
				}
				return answer
			})))}
			t.Cleanup(func() { close(end) })
			claims := func(id string, wantAsked int64) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), dedup.DefaultStoreTimeout)
				defer cancel()
				var a [1]dedup.Answer
				require.NoError(t, b.Claim(ctx, dedup.NewToken(), long, []dedup.Request{request(id)}, a[:]))
				require.Equal(t, dedup.Fresh, a[0].Verdict)
				require.Equal(t, wantAsked, asked.Load())
			}
			b.births.age(clockAge)
			claims("first", 1)
			claims("in the same minute", 1)
			b.births.age(clockAge)
			born, err := b.knownBirth(t.Context(), request("").Key.Scope)
			require.NoError(t, err)
			require.Equal(t, b.clock.server, born)
			claims("after a look", 2)
		})
	}
}

// one caller a minute asks for a known birth, and each caller for an unknown one.
func TestOneCallerAsksForAKnownBirth_R14(t *testing.T) {
	var b births
	asks := func(scope string, want int64, wantAsk bool) {
		t.Helper()
		born, ask := b.of(scope)
		require.Equal(t, want, born)
		require.Equal(t, wantAsk, ask)
	}
	asks("a", 0, true)
	asks("a", 0, true)
	b.remember("a", 7)
	asks("a", 7, false)
	b.age(clockAge)
	asks("a", 7, true)
	asks("a", 7, false)
	b.askAgain("a")
	asks("a", 7, true)
	asks("a", 7, false)
	b.askAgain("b")
	asks("b", 0, true)
}

func TestBirthWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, 500*time.Millisecond, birthWait(t.Context()))
		for limit, want := range map[time.Duration]time.Duration{
			time.Minute: 500 * time.Millisecond, time.Second: 500 * time.Millisecond, 300 * time.Millisecond: 150 * time.Millisecond,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			require.Equal(t, want, birthWait(ctx))
			cancel()
		}
	})
}

// the client of a cluster looks for the new master of an unknown birth.
func TestUnknownBirthOnADeadServer_R14(t *testing.T) {
	c := &reloads{UniversalClient: newFake(t, func([]string) string { return "" })}
	s := acquainted(c)
	s.births.known = nil
	err := s.Claim(t.Context(), dedup.NewToken(), long, []dedup.Request{request("x")}, make([]dedup.Answer, 1))
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.EqualValues(t, 1, c.n.Load())
}

// reloads is a client of a cluster that counts its reloads.
type reloads struct {
	redis.UniversalClient
	n atomic.Int64
}

func (r *reloads) ReloadState(context.Context) { r.n.Add(1) }

// prompt is a client of the same server whose calls end with their context.
func prompt(t *testing.T, client *redis.Client) *redis.Client {
	opts := *client.Options()
	opts.ContextTimeoutEnabled, opts.MaxRetries = true, -1
	c := redis.NewClient(&opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// age lets the births be asked for that much earlier.
func (b *births) age(d time.Duration) {
	for scope, known := range b.known {
		known.asked = known.asked.Add(-d)
		b.known[scope] = known
	}
}

func TestHorizon(t *testing.T) {
	const now = int64(1_800_000_000_000)
	for retention, margin := range map[time.Duration]time.Duration{
		time.Second: time.Second / 2, time.Minute: time.Minute / 2, 2 * time.Minute: time.Minute, time.Hour: time.Minute,
		24 * time.Hour: 24 * time.Hour / 100, 100 * time.Hour: time.Hour, 1000 * time.Hour: time.Hour,
	} {
		require.Equal(t, now-(retention-margin).Milliseconds(), horizon(now, retention), retention)
	}
}

// the age of an event is measured by the server's clock. It is asked once a minute, and after a sleep of this host.
func TestAgeIsByTheServersClock(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	ahead := 100 * time.Hour
	client := newFake(t, func(cmd []string) string {
		mu.Lock()
		defer mu.Unlock()
		asked[cmd[0]]++
		switch {
		case cmd[0] == "time":
			at := time.Now().Add(ahead)
			return "*2\r\n" + bulk(strconv.FormatInt(at.Unix(), 10)) + bulk(strconv.Itoa(at.Nanosecond()/1000))
		case cmd[0] == "set" && cmd[1] == "idem:born:notifier":
			return bulk("1")
		}
		return "$-1\r\n"
	})
	b := bench{TB: t, Store: New(client)}
	claims := func(want dedup.Verdict, times int) {
		t.Helper()
		for range 10 {
			b.meets(want, ofAge(fmt.Sprint(times), 0))
		}
		require.Equal(t, times, asked["time"])
	}
	claims(dedup.TooOld, 1)
	require.Equal(t, map[string]int{"time": 1, "set": 1, "get": 10}, asked)
	ahead = 0
	claims(dedup.TooOld, 1)
	b.clock.asked = b.clock.asked.Add(-clockAge)
	b.clock.wall = b.clock.wall.Add(-clockAge)
	claims(dedup.Fresh, 2)
	require.Equal(t, 1+10, asked["set"], "a young event costs nothing more")
	ahead = 100 * time.Hour
	b.clock.wall = b.clock.wall.Add(-time.Hour) // the monotonic clock stood still meanwhile
	claims(dedup.TooOld, 3)
}

// The memory of births is bounded: scopes may be made of data.
func TestBirthsAreBounded(t *testing.T) {
	b := newBench(t)
	for i := range 3 {
		b.births.known = make(map[string]birth, maxBirths)
		for j := range maxBirths {
			b.births.known[fmt.Sprint(j)] = birth{born: 1}
		}
		_, err := b.birth(t.Context(), fmt.Sprint("one more ", i))
		require.NoError(t, err)
		require.Len(t, b.births.known, 1)
	}
}
