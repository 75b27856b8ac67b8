package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

const (
	long      = time.Minute // a lease that does not end during a test
	retention = time.Hour
)

func key(id string) dedup.Key {
	return dedup.Key{Tenant: "acme", Scope: "orders", Type: "order.created", ID: id}
}

func request(id string) dedup.Request {
	return dedup.Request{Key: key(id), Retention: retention, Origin: origin(len(id), 7)}
}

// origin has a time in milliseconds, as records of Kafka have.
func origin(partition, offset int) dedup.Origin {
	return dedup.Origin{Topic: "orders", Partition: int32(partition), Offset: int64(offset),
		Time: today.Add(time.Duration(offset) * time.Millisecond)}
}

// today is the time of events, which a store must not take for too old.
var today = time.Now().UTC().Truncate(time.Millisecond)

// prints are two fingerprints of each kind.
var prints = map[string][2]dedup.Fingerprint{
	"checksum":   {dedup.Checksum([]byte("one")), dedup.Checksum([]byte("two"))},
	"keyed hash": {keyedHash(1), keyedHash(2)},
}

func keyedHash(n byte) (f dedup.Fingerprint) {
	for i := range f {
		f[i] = n*16 + byte(i)
	}
	return f
}

func completion(c dedup.Claim) dedup.Completion {
	return dedup.Completion{Claim: c, Retention: retention}
}

func dead(c dedup.Claim, why string) dedup.Completion {
	d := completion(c)
	d.Dead = why
	return d
}

func moved(c dedup.Claim, retry uint32) dedup.Completion {
	d := completion(c)
	d.Retry = retry
	return d
}

func release(c dedup.Claim, o dedup.Outcome) dedup.Release {
	return dedup.Release{Claim: c, Outcome: o, Retention: retention}
}

func sorted(reqs []dedup.Request) []dedup.Request {
	slices.SortFunc(reqs, func(a, b dedup.Request) int { return a.Key.Compare(b.Key) })
	return reqs
}

func sameOrigin(t testing.TB, want, got dedup.Origin) {
	t.Helper()
	require.True(t, want.Same(got), "origin %v, want %v", got, want)
	require.True(t, want.Time.Equal(got.Time), "time of the origin %v, want %v", got.Time,
		want.Time)
}

// lostIsFine accepts the errors of callers that may come too late.
func lostIsFine(err error) error {
	if errors.Is(err, dedup.ErrClaimLost) {
		return nil
	}
	return err
}

// numbered makes IDs that sort as their numbers do.
func numbered(name string, i int) string { return fmt.Sprintf("%s-%05d", name, i) }

// inParallel calls fn n times at once.
func inParallel[T any](n int, fn func(i int) T) []T {
	out := make([]T, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			out[i] = fn(i)
		})
	}
	close(start)
	wg.Wait()
	return out
}

func tally[T comparable](all []T) map[T]int {
	n := make(map[T]int)
	for _, v := range all {
		n[v]++
	}
	return n
}

func at(id string, generation, retry uint32) dedup.Request {
	r := request(id)
	r.Position = dedup.Position{Generation: generation, Retry: retry}
	return r
}

// The horizon of the tests, the time of a record before the horizon, and the time of a record at
// the horizon.
var (
	horizonAt     = time.UnixMilli(1_700_000_000_000).UTC()
	beforeHorizon = horizonAt.Add(-time.Millisecond)
)

func dated(id string, at time.Time) dedup.Request {
	r := request(id)
	r.Origin.Time = at
	return r
}

func printed(id string, f dedup.Fingerprint) dedup.Request {
	r := request(id)
	r.Fingerprint = f
	return r
}

// ages are possible ages of events on arrival: after a rewind, and from a producer with a wrong
// clock.
var ages = map[string]time.Duration{"old": 100 * retention, "ahead": -100 * retention}

// aged returns requests for events of an age.
func aged(name string) func(id string) dedup.Request {
	return func(id string) dedup.Request {
		// not today: the clock may be a test's
		r := dated(name+" "+id, time.Now().Add(-ages[name]).Truncate(time.Millisecond))
		r.AnyAge = true
		return r
	}
}

// awkward parts: separators, escapes, hash tags, case, blanks, numbers and two forms of one
// character.
var awkward = []string{"a", "A", "a ", " a", "a:b", "a%3Ab", "a%3ab", "a%b", "%", ":", "{a}", "{",
	"}", "é", "e\u0301",
	"ß", "ss", "SS", "İ", "i", "I", "01", "1", "1.0", "\t", "\n", "\u00a0", "\u200b", "日本", "😀",
	"'", `"`, `\`, `\x41`, "null",
	"*", "a*", "?", "[a]",
	"00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000A",
	"01ARZ3NDEKTSV4RRFFQ69G5FAV",
	"01arz3ndektsv4rrffq69g5fav", "0000000000000000000000000000000a"}

// stale returns answers as left behind by an earlier call.
func stale(n int) []dedup.Answer {
	answers := make([]dedup.Answer, n)
	for i := range answers {
		answers[i] = dedup.Answer{Verdict: dedup.Done, Fence: 9, Failures: 9, Takeovers: 9,
			Wait:  long,
			First: origin(9, 9), Reason: "stale", Result: dedup.Result{Schema: 9,
				Data: []byte("stale")}}
	}
	return answers
}

func verdicts(answers []dedup.Answer) []dedup.Verdict {
	out := make([]dedup.Verdict, len(answers))
	for i := range answers {
		out[i] = answers[i].Verdict
	}
	return out
}
