package storetest

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// keyTests cover the parts of a key, and the calls that are refused before a server receives
// them.
var keyTests = []testCase{
	{name: "keys: tenant, scope, type and ID separate (P-23)", run: keysSeparate},
	{name: "keys: awkward parts are different keys (R-17, P-23, rule 51)", run: keysAwkward},
	{name: "keys: random parts never collide (R-17)", run: keysRandom},
	{name: "keys: the longest parts fit (P-22)", run: keysLongest},
	{name: "keys: invalid keys are refused by all stores (P-22)", run: keysInvalid},
	{name: "call: keys must ascend, none twice (P-04, P-05)", run: callOrder},
	{name: "call: the order is that of the bytes", run: callByteOrder},
	{name: "call: as many answers as requests", run: callLengths},
	{name: "call: retention must be positive", run: callRetention},
	{name: "call: an empty one succeeds", run: callEmpty},
	{name: "call: old answers are overwritten", run: callOverwrites},
}

func keysSeparate(k *kit) {
	base := dedup.Key{Tenant: "t", Scope: "s", Type: "y", ID: "i"}
	keys := []dedup.Key{base, base, base, base, base, {ID: "i"}, {Tenant: "i", ID: "t"}}
	keys[1].Tenant = "T"
	keys[2].Scope = ""
	keys[3].Type = "z"
	keys[4].ID = "j"
	k.distinct(keys)
}

// distinct requires each of keys to be remembered alone: all Fresh at first, and each finished
// without the others.
func (k *kit) distinct(keys []dedup.Key) {
	k.Helper()
	for _, key := range keys {
		r := dedup.Request{Key: key, Retention: retention}
		a, c := k.ask(long, r)
		require.Equal(k, dedup.Fresh, a.Verdict, "%+v is taken for another key", key)
		k.complete(dead(c, key.String()))
	}
	for _, key := range keys {
		a := k.meets(dedup.Dead, dedup.Request{Key: key, Retention: retention})
		require.Equal(k, key.String()[:min(len(key.String()), dedup.MaxReason)], a.Reason, "%+v",
			key)
	}
}

func keysAwkward(k *kit) {
	var keys []dedup.Key
	for _, p := range awkward {
		keys = append(keys, dedup.Key{ID: p}, dedup.Key{Tenant: p, ID: "x"},
			dedup.Key{Scope: p, ID: "x"},
			dedup.Key{Type: p, ID: "x"})
	}
	keys = append(keys, // one text, cut at other places
		dedup.Key{Tenant: "a:b", Scope: "c", ID: "d"}, dedup.Key{Tenant: "a", Scope: "b:c",
			ID: "d"},
		dedup.Key{Tenant: "a", Scope: "b", Type: "c", ID: "d"},
		dedup.Key{Scope: "a:b", Type: "c", ID: "d"},
		dedup.Key{ID: "a:b:c:d"}, dedup.Key{Type: "a", ID: "b:c:d"},
		dedup.Key{Type: "a:b", ID: "c:d"})
	k.distinct(keys)
}

func keysRandom(k *kit) {
	rng, seed := k.random()
	alphabet := []string{"a", "A", ":", "%", "{", "}", "%3A", "é", "\u0301", " ", "0", "/", "\\",
		"\n"}
	part := func(least int) string {
		var b strings.Builder
		for n := least + rng.IntN(4); n > 0; n-- {
			b.WriteString(alphabet[rng.IntN(len(alphabet))])
		}
		return b.String()
	}
	seen := make(map[dedup.Key]bool)
	var reqs []dedup.Request
	for len(reqs) < 250 {
		key := dedup.Key{Tenant: part(0), Scope: part(0), Type: part(0), ID: part(1)}
		if !seen[key] {
			seen[key] = true
			reqs = append(reqs, dedup.Request{Key: key, Retention: retention,
				Origin: origin(1, len(reqs))})
		}
	}
	sorted(reqs)
	answers := make([]dedup.Answer, len(reqs))
	require.NoError(k, k.s.Claim(k.ctx, dedup.NewToken(), long, reqs, answers))
	for i, a := range answers {
		require.Equal(k, dedup.Fresh, a.Verdict, "%+v collides (seed %d)", reqs[i].Key, seed)
		sameOrigin(k, reqs[i].Origin, a.First)
	}
	require.NoError(k, k.peer.Claim(k.ctx, dedup.NewToken(), long, reqs, answers))
	for i, a := range answers {
		require.Equal(k, dedup.Busy, a.Verdict, "%+v is not found again (seed %d)", reqs[i].Key,
			seed)
		sameOrigin(k, reqs[i].Origin, a.First)
	}
}

func keysLongest(k *kit) {
	rng := rand.New(rand.NewPCG(1, 2)) // text that no database can compress
	part := func(alphabet []string) string {
		var b strings.Builder
		for {
			next := alphabet[rng.IntN(len(alphabet))]
			if b.Len()+len(next) > dedup.MaxPart {
				return b.String()
			}
			b.WriteString(next)
		}
	}
	var keys []dedup.Key
	latin := strings.Split("abcdefghijklmnopqrstuvwxyz0123456789", "")
	for _, alphabet := range [][]string{latin, {":", "%", "{", "}"}, {"é", "😀", "本"}} {
		p := part(alphabet)
		runes := []rune(p) // the other key differs in its last character only
		keys = append(keys, dedup.Key{Tenant: p, Scope: p, Type: p, ID: p},
			dedup.Key{Tenant: p, Scope: p, Type: p, ID: string(runes[:len(runes)-1]) + "~"})
	}
	for _, key := range keys {
		require.NoError(k, key.Validate(), "%q", key)
	}
	k.distinct(keys)
}

func keysInvalid(k *kit) {
	long256 := strings.Repeat("x", dedup.MaxPart+1)
	for _, bad := range []dedup.Key{
		{}, {Tenant: "t", Scope: "s", Type: "y"},
		{ID: "a\x00b"}, {Tenant: "\x00", ID: "x"}, {Scope: "a\x00", ID: "x"},
		{Type: "\x00a", ID: "x"},
		{ID: "\xff"}, {Tenant: "a\xc3", ID: "x"}, {Scope: "\xed\xa0\x80", ID: "x"},
		{Type: "\xc0\x80", ID: "x"},
		{ID: long256}, {Tenant: long256, ID: "x"}, {Scope: long256, ID: "x"},
		{Type: long256, ID: "x"},
	} {
		good := dedup.Request{Key: dedup.Key{Tenant: "\x01", ID: "good"}, Retention: retention}
		reqs := sorted([]dedup.Request{good, {Key: bad, Retention: retention}})
		err := k.refused(reqs)
		require.ErrorIs(k, err, dedup.ErrKey, "%q", bad)
		k.untouched(good)
	}
}

// refused requires a call of Claim to fail as a mistake of the caller, without answers. The
// error is not an outage, since a caller repeats after an outage.
func (k *kit) refused(reqs []dedup.Request) error {
	k.Helper()
	answers := stale(len(reqs))
	err := k.s.Claim(k.ctx, dedup.NewToken(), long, reqs, answers)
	require.Error(k, err)
	require.NotErrorIs(k, err, dedup.ErrUnavailable)
	noAnswers(k, answers)
	return err
}

// untouched requires r's key to be unknown, and leaves the key unknown.
func (k *kit) untouched(r dedup.Request) {
	k.Helper()
	t := dedup.NewToken()
	a := k.try(k.s, t, long, r)
	require.Equal(k, dedup.Fresh, a.Verdict, "nothing is done by a call that is refused")
	k.release(release(r.Held(t, a), dedup.Unstarted))
}

func callOrder(k *kit) {
	a, b, c := request("a"), request("b"), request("c")
	for _, reqs := range [][]dedup.Request{{b, a}, {a, c, b}, {a, a}, {a, b, b}, {c, b, a},
		{a, b, c, a}} {
		require.ErrorIs(k, k.refused(reqs), dedup.ErrOrder)
	}
	for _, r := range []dedup.Request{a, b, c} {
		k.untouched(r)
	}
	twice := a
	twice.Position.Retry = 1 // the same key, with another position
	require.ErrorIs(k, k.refused([]dedup.Request{a, twice}), dedup.ErrOrder)
}

// callByteOrder has keys that any collation but that of the bytes would sort otherwise.
func callByteOrder(k *kit) {
	var reqs []dedup.Request
	for _, id := range []string{"B", "Z", "a", "a ", "a-", "aB", "b", "z", "É", "é", "日", "😀"} {
		reqs = append(reqs, dedup.Request{Key: dedup.Key{Scope: "order", ID: id},
			Retention: retention})
	}
	answers := make([]dedup.Answer, len(reqs))
	require.NoError(k, k.s.Claim(k.ctx, dedup.NewToken(), long, reqs, answers))
	for i := range answers {
		require.Equal(k, dedup.Fresh, answers[i].Verdict, "%q", reqs[i].Key)
	}
}

func callLengths(k *kit) {
	reqs := []dedup.Request{request("a"), request("b")}
	for _, n := range []int{0, 1, 3} {
		err := k.s.Claim(k.ctx, dedup.NewToken(), long, reqs, stale(n))
		require.Error(k, err, "%d answers", n)
		require.NotErrorIs(k, err, dedup.ErrUnavailable)
	}
	k.untouched(reqs[0])
	k.untouched(reqs[1])
}

func callRetention(k *kit) {
	for _, d := range []time.Duration{0, -1, -retention} {
		r := request("b")
		r.Retention = d
		_ = k.refused([]dedup.Request{request("a"), r})
	}
	k.untouched(request("a"))
	k.untouched(request("b"))
}

func callEmpty(k *kit) {
	require.NoError(k, k.s.Claim(k.ctx, dedup.NewToken(), long, nil, nil))
	require.NoError(k, k.s.Renew(k.ctx, long, nil))
	require.NoError(k, k.s.Complete(k.ctx, nil))
	require.NoError(k, k.s.Release(k.ctx, nil))
}

func callOverwrites(k *kit) {
	answers := stale(1)
	require.NoError(k, k.s.Claim(k.ctx, dedup.NewToken(), long, []dedup.Request{request("a")},
		answers))
	k.wellFormed(request("a"), long, answers[0])
	require.Equal(k, dedup.Fresh, answers[0].Verdict)
	require.EqualValues(k, 1, answers[0].Fence)
	require.Zero(k, answers[0].Failures)
	require.Zero(k, answers[0].Takeovers)
}
