package storetest

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// claimTests cover the table of Store.Claim except positions, and the recipients of each answer.
var claimTests = []testCase{
	{name: "claim: a new key is Fresh with fence 1 and its own origin", run: claimNew},
	{name: "claim: 100 goroutines race for one key, one is Fresh and 99 are Busy (R-09)",
		run: claimRace},
	{name: "claim: Busy has the rest of the lease", run: claimBusy},
	{name: "claim: two tokens of one process are two owners (R-01)", run: claimTwoTokens},
	{name: "claim: Fresh stays Fresh when the reply was lost (R-01)", run: claimLostReplyFresh},
	{name: "claim: Uncertain stays Uncertain when the reply was lost (R-01)",
		run: claimLostReplyUncertain},
	{name: "claim: a repeat after the lost reply lets the lease begin anew",
		run: claimRepeatRenews},
	{name: "claim: a repeated batch answers the same for every key (R-01)", run: claimRepeatBatch},
	{name: "claim: many repeats at once are one claim (R-01)", run: claimRepeatRace},
	{name: "claim: Done keeps the origin of the first delivery", run: claimDoneOrigin},
	{name: "claim: Done keeps result and schema", needs: Results, run: claimDoneResult},
	{name: "claim: Done without a result has none", run: claimDoneNoResult},
	{name: "claim: another fingerprint is a Conflict before all (P-24)", needs: Fingerprints,
		run: claimConflict},
	{name: "claim: only two nonzero fingerprints can conflict", needs: Fingerprints,
		run: claimNoConflict},
	{name: "claim: one without a fingerprint keeps that of the record", needs: Fingerprints,
		run: claimKeepsPrint},
	{name: "claim: a second fingerprint is no conflict (G-08)", needs: Fingerprints,
		run: secondNoConflict},
	{name: "claim: a second fingerprint and another content is a Conflict (G-08)",
		needs: Fingerprints, run: secondConflict},
	{name: "claim: a batch mixes verdicts", run: claimMixed},
	{name: "claim: a request has a token of its own (R-01)", needs: Tokens, run: claimOwnTokens},
	{name: "claim: 300 keys in one call", run: claimMany},
	{name: "claim: a peer of the store sees the same store", run: claimPeer},
	{name: "store: comparable with ==", run: storeComparable},
}

func claimNew(k *kit) {
	r := request("new")
	a, _ := k.get(dedup.Fresh, long, r)
	require.EqualValues(k, 1, a.Fence)
	require.Zero(k, a.Failures)
	require.Zero(k, a.Takeovers)
	sameOrigin(k, r.Origin, a.First)
}

func claimRace(k *kit) {
	const racers = 100
	var answers [racers][1]dedup.Answer
	var errs [racers]error
	var origins [racers]dedup.Origin
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range racers {
		r := request("race")
		r.Origin = origin(i, i)
		origins[i] = r.Origin
		s := k.s
		if i%2 == 1 {
			s = k.peer
		}
		wg.Go(func() {
			<-start
			errs[i] = s.Claim(k.ctx, dedup.NewToken(), long, []dedup.Request{r}, answers[i][:])
		})
	}
	close(start)
	wg.Wait()
	winner := -1
	for i := range racers {
		require.NoError(k, errs[i])
		switch a := answers[i][0]; a.Verdict {
		case dedup.Fresh:
			require.Equal(k, -1, winner, "two racers are Fresh")
			winner = i
		case dedup.Busy:
			require.Positive(k, a.Wait)
			require.LessOrEqual(k, a.Wait, long)
		default:
			require.Fail(k, "neither Fresh nor Busy", "%v", a.Verdict)
		}
	}
	require.NotEqual(k, -1, winner, "no answer is Fresh")
	for i := range racers {
		sameOrigin(k, origins[winner], answers[i][0].First)
	}
}

func claimBusy(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("busy"))
	a := k.meets(dedup.Busy, request("busy"))
	require.LessOrEqual(k, a.Wait, long)
	require.Greater(k, a.Wait, long/2, "the lease has only begun")
	k.renew(long/2, c) // a shorter lease from now on
	a = k.meets(dedup.Busy, request("busy"))
	require.LessOrEqual(k, a.Wait, long/2, "renewed with a shorter lease")

	r := request("short retention") // the lease counts, not the retention
	r.Retention, r.AnyAge = k.lease/6, true
	k.get(dedup.Fresh, long, r)
	k.h.Sleep(k.lease / 2)
	k.meets(dedup.Busy, r)
}

func claimTwoTokens(k *kit) {
	_, first := k.get(dedup.Fresh, long, request("twice"))
	a, second := k.ask(long, request("twice"))
	require.Equal(k, dedup.Busy, a.Verdict, "two lanes with copies of one event")
	require.NotEqual(k, first.Token, second.Token)
	k.harmless(k.s.Release(k.ctx, []dedup.Release{release(second, dedup.Failed)}))
	k.meets(dedup.Busy, request("twice"))
	k.complete(completion(first))
	k.meets(dedup.Done, request("twice"))
}

func claimLostReplyFresh(k *kit) {
	t := dedup.NewToken()
	first := k.try(k.s, t, long, request("lost"))
	require.Equal(k, dedup.Fresh, first.Verdict)
	for range 3 {
		again := k.try(k.peer, t, long, request("lost"))
		require.Equal(k, first.Verdict, again.Verdict)
		require.Equal(k, first.Fence, again.Fence, "one claim, one fence")
		require.Zero(k, again.Takeovers)
		sameOrigin(k, first.First, again.First)
	}
	k.complete(completion(request("lost").Held(t, first)))
	k.meets(dedup.Done, request("lost"))
}

func claimLostReplyUncertain(k *kit) {
	k.get(dedup.Fresh, k.lease, request("lost"))
	k.outlast()
	t := dedup.NewToken()
	first := k.try(k.s, t, long, request("lost"))
	require.Equal(k, dedup.Uncertain, first.Verdict)
	for range 3 {
		again := k.try(k.peer, t, long, request("lost"))
		require.Equal(k, dedup.Uncertain, again.Verdict)
		require.Equal(k, first.Fence, again.Fence)
		require.EqualValues(k, 1, again.Takeovers, "one take-over, however often it is asked for")
	}
	k.meets(dedup.Busy, request("lost"))
}

func claimRepeatRenews(k *kit) {
	t := dedup.NewToken()
	k.try(k.s, t, k.lease, request("anew"))
	k.try(k.s, t, long, request("anew"))
	k.outlast()
	k.meets(dedup.Busy, request("anew"))
}

func claimRepeatBatch(k *kit) {
	reqs := sorted([]dedup.Request{request("done"), request("busy"), request("doubt"),
		request("new"), request("again")})
	_, c := k.get(dedup.Fresh, long, request("done"))
	k.complete(completion(c))
	k.get(dedup.Fresh, long, request("busy"))
	_, c = k.get(dedup.Fresh, long, request("doubt"))
	k.release(release(c, dedup.Unknown))
	_, c = k.get(dedup.Fresh, long, request("again"))
	k.release(release(c, dedup.Failed))

	t := dedup.NewToken()
	first, again := make([]dedup.Answer, len(reqs)), make([]dedup.Answer, len(reqs))
	require.NoError(k, k.s.Claim(k.ctx, t, long, reqs, first))
	for range 2 {
		require.NoError(k, k.s.Claim(k.ctx, t, long, reqs, again))
		for i := range first {
			require.Equal(k, first[i].Verdict, again[i].Verdict, "%q", reqs[i].Key)
			require.Equal(k, first[i].Fence, again[i].Fence, "%q", reqs[i].Key)
			require.Equal(k, first[i].Failures, again[i].Failures, "%q", reqs[i].Key)
		}
	}
}

// claimOwnTokens: callers that share a call hold their claims under tokens of their own, and repeat
// the call alone.
func claimOwnTokens(k *kit) {
	whole, call := []string{"busy", "doubt", "new", "own", "taken"}, dedup.NewToken()
	tokens := make(map[string]dedup.Token)
	reqs := make([]dedup.Request, len(whole))
	for i, id := range whole {
		reqs[i], tokens[id] = request(id), call
		if id != "new" {
			tokens[id] = dedup.NewToken()
			reqs[i].Token = tokens[id]
		}
	}
	k.get(dedup.Fresh, long, request("busy"))
	_, c := k.get(dedup.Fresh, long, request("doubt"))
	k.release(release(c, dedup.Unknown))
	_, c = k.get(dedup.Fresh, long, request("taken"))
	k.release(release(c, dedup.Failed))

	want := []dedup.Verdict{dedup.Busy, dedup.Uncertain, dedup.Fresh, dedup.Fresh, dedup.Fresh}
	answers := make([]dedup.Answer, len(reqs))
	require.NoError(k, k.s.Claim(k.ctx, call, long, reqs, answers))
	for i := range reqs {
		require.Equal(k, want[i], answers[i].Verdict, "%q", reqs[i].Key)
		k.wellFormed(reqs[i], long, answers[i])
		if !want[i].Held() {
			continue
		}
		require.Equal(k, tokens[whole[i]], reqs[i].Held(call, answers[i]).Token)
		alone := request(whole[i])
		again := k.try(k.s, tokens[whole[i]], long, alone)
		require.Equal(k, want[i], again.Verdict, "%q is repeated alone", alone.Key)
		require.Equal(k, answers[i].Fence, again.Fence)
		other := k.try(k.peer, dedup.NewToken(), long, alone)
		require.Equal(k, dedup.Busy, other.Verdict, "%q", alone.Key)
	}
	repeated := make([]dedup.Answer, len(reqs))
	require.NoError(k, k.s.Claim(k.ctx, call, long, reqs, repeated))
	for i := range reqs {
		require.Equal(k, want[i], repeated[i].Verdict, "%q", reqs[i].Key)
	}
	require.Equal(k, dedup.Busy, k.try(k.s, call, long, request("own")).Verdict,
		"the token of the call holds no claim of a request with a token")
	for i, id := range whole {
		if want[i].Held() {
			mine := reqs[i].Held(call, answers[i])
			stranger := mine
			stranger.Token = dedup.NewToken()
			k.lost(k.s.Renew(k.ctx, long, []dedup.Claim{stranger}), 0)
			k.complete(completion(mine))
			k.meets(dedup.Done, request(id))
		}
	}
}

// claimRepeatRace: A client library retries while the first request is still under way.
func claimRepeatRace(k *kit) {
	t, r := dedup.NewToken(), request("retried")
	var answers [16][1]dedup.Answer
	var errs [16]error
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { errs[i] = k.s.Claim(k.ctx, t, long, []dedup.Request{r}, answers[i][:]) })
	}
	wg.Wait()
	for i := range answers {
		require.NoError(k, errs[i])
		require.Equal(k, dedup.Fresh, answers[i][0].Verdict)
		require.EqualValues(k, 1, answers[i][0].Fence)
	}
}

func claimDoneOrigin(k *kit) {
	first := request("first")
	_, c := k.get(dedup.Fresh, long, first)
	k.complete(completion(c))
	copied := first
	copied.Origin = origin(99, 1_234_567)
	a := k.meets(dedup.Done, copied)
	sameOrigin(k, first.Origin, a.First)

	// The record is of the first delivery, also if another delivery finished the event.
	_, c = k.get(dedup.Fresh, long, request("released"))
	k.release(release(c, dedup.Failed))
	copied.Key = key("released")
	a, c = k.get(dedup.Fresh, long, copied)
	sameOrigin(k, request("released").Origin, a.First)
	k.complete(completion(c))
	sameOrigin(k, request("released").Origin, k.meets(dedup.Done, copied).First)

	far := request("far")
	far.AnyAge = true // its time lies before every horizon
	far.Origin = dedup.Origin{Topic: "tøpic: {1}%", Partition: 1<<31 - 1, Offset: 1<<63 - 1,
		Time: time.UnixMilli(1)}
	k.get(dedup.Fresh, long, far)
	sameOrigin(k, far.Origin, k.meets(dedup.Busy, request("far")).First)
}

func claimDoneResult(k *kit) {
	big := make([]byte, k.largeResult(100_000))
	for i := range big {
		big[i] = byte(i * 7)
	}
	for name, want := range map[string]dedup.Result{
		"text":        {Schema: 1, Data: []byte(`{"status":"paid"}`)},
		"binary":      {Schema: 1<<32 - 1, Data: []byte{0, 255, 0, 10, 13, 0x80, 0}},
		"schema only": {Schema: 7},
		"no schema":   {Data: []byte("x")},
		"big":         {Schema: 3, Data: big},
	} {
		_, c := k.get(dedup.Fresh, long, request(name))
		d := completion(c)
		d.Result = want
		k.complete(d)
		for range 2 {
			got := k.meets(dedup.Done, request(name)).Result
			require.Equal(k, want.Schema, got.Schema, name)
			require.Equal(k, string(want.Data), string(got.Data), name)
			clear(got.Data) // it is the caller's
		}
	}
}

func claimDoneNoResult(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("bare"))
	k.complete(completion(c))
	require.True(k, k.meets(dedup.Done, request("bare")).Result.IsZero(),
		"nothing was stored, nothing is replayed")
}

func claimConflict(k *kit) {
	for kind, p := range prints {
		k.conflicts(kind+" ", p[0], p[1])
	}
	k.get(dedup.Fresh, long, printed("other kind", prints["checksum"][0]))
	k.meets(dedup.Busy, printed("other kind", prints["keyed hash"][0]))
	k.get(dedup.Fresh, long, printed("kind other", prints["keyed hash"][0]))
	k.meets(dedup.Busy, printed("kind other", prints["checksum"][0]))
}

func (k *kit) conflicts(prefix string, a, b dedup.Fingerprint) {
	printed := func(id string, f dedup.Fingerprint) dedup.Request { return printed(prefix+id, f) }
	claim := func(id string) dedup.Claim {
		_, c := k.get(dedup.Fresh, long, printed(id, a))
		return c
	}
	claim("busy")
	k.complete(completion(claim("done")))
	k.complete(dead(claim("dead"), "poison"))
	k.complete(moved(claim("moved"), 2))
	k.release(release(claim("open"), dedup.Failed))
	k.release(release(claim("doubtful"), dedup.Unknown))
	k.get(dedup.Fresh, k.lease, printed("over", a))
	k.outlast()
	known := map[string]dedup.Verdict{"busy": dedup.Busy, "done": dedup.Done, "dead": dedup.Dead,
		"moved": dedup.Rescheduled,
		"open":  dedup.Fresh, "doubtful": dedup.Fresh, "over": dedup.Fresh}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		got := k.meets(dedup.Conflict, printed(id, b))
		sameOrigin(k, request(prefix+id).Origin, got.First)
		require.Equal(k, known[id].String(), got.Known.String(),
			"%s: the answer to an equal copy", id)
		if id == "dead" {
			require.Equal(k, "poison", got.Reason)
		}
		forged := printed(id, b)
		forged.Position = dedup.Position{Generation: 1}
		require.NotEqual(k, dedup.Conflict, k.try(k.s, dedup.NewToken(), long, forged).Verdict,
			"%s: a redriven copy may have been repaired", id)
	}
	k.meets(dedup.Done, printed("done", a))
	k.meets(dedup.Dead, printed("dead", a))
	k.meets(dedup.Fresh, printed("open", a))
}

func claimNoConflict(k *kit) {
	plain, printed := request("plain"), request("printed")
	printed.Fingerprint = dedup.Fingerprint{9}
	_, c := k.get(dedup.Fresh, long, plain)
	k.complete(completion(c))
	plain.Fingerprint = dedup.Fingerprint{1}
	k.meets(dedup.Done, plain)

	_, c = k.get(dedup.Fresh, long, printed)
	k.complete(completion(c))
	printed.Fingerprint = dedup.Fingerprint{}
	k.meets(dedup.Done, printed)
}

func claimKeepsPrint(k *kit) {
	for kind, p := range prints {
		_, c := k.get(dedup.Fresh, long, printed(kind, p[0]))
		k.release(release(c, dedup.Failed))
		_, c = k.get(dedup.Fresh, long, request(kind))
		k.meets(dedup.Conflict, printed(kind, p[1]))
		k.complete(completion(c))
		k.meets(dedup.Conflict, printed(kind, p[1]))
		k.meets(dedup.Done, printed(kind, p[0]))
	}
}

func claimMixed(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("done"))
	k.complete(completion(c))
	_, c = k.get(dedup.Fresh, long, request("dead"))
	k.complete(dead(c, "why not"))
	_, c = k.get(dedup.Fresh, long, request("moved"))
	k.complete(moved(c, 1))
	_, c = k.get(dedup.Fresh, long, request("doubt"))
	k.release(release(c, dedup.Unknown))
	k.get(dedup.Fresh, long, request("busy"))
	want := map[string]dedup.Verdict{"busy": dedup.Busy, "dead": dedup.Dead, "done": dedup.Done,
		"doubt":   dedup.Uncertain,
		"fresh 1": dedup.Fresh, "fresh 2": dedup.Fresh, "moved": dedup.Rescheduled}
	var reqs []dedup.Request
	for id := range want {
		reqs = append(reqs, request(id))
	}
	sorted(reqs)
	answers := make([]dedup.Answer, len(reqs))
	require.NoError(k, k.s.Claim(k.ctx, dedup.NewToken(), long, reqs, answers))
	for i, a := range answers {
		k.wellFormed(reqs[i], long, a)
		require.Equal(k, want[reqs[i].Key.ID].String(), a.Verdict.String(), "%q", reqs[i].Key)
		sameOrigin(k, reqs[i].Origin, a.First)
	}
}

func claimMany(k *kit) {
	const n = 300
	reqs := make([]dedup.Request, n)
	for i := range reqs {
		reqs[i] = request(numbered("many", i))
		reqs[i].Origin = origin(3, i)
	}
	answers := make([]dedup.Answer, n)
	t := dedup.NewToken()
	require.NoError(k, k.s.Claim(k.ctx, t, long, reqs, answers))
	var done []dedup.Completion
	var held []dedup.Claim
	var back []dedup.Release
	for i, a := range answers {
		require.Equal(k, dedup.Fresh, a.Verdict, "%q", reqs[i].Key)
		sameOrigin(k, reqs[i].Origin, a.First)
		c := reqs[i].Held(t, a)
		held = append(held, c)
		if i%3 == 0 {
			back = append(back, release(c, dedup.Failed))
		} else {
			done = append(done, completion(c))
		}
	}
	k.renew(long, held...)
	k.complete(done...)
	k.release(back...)
	require.NoError(k, k.peer.Claim(k.ctx, dedup.NewToken(), long, reqs, answers))
	for i, a := range answers {
		want := dedup.Done
		if i%3 == 0 {
			want = dedup.Fresh
		}
		require.Equal(k, want, a.Verdict, "%q", reqs[i].Key)
		sameOrigin(k, reqs[i].Origin, a.First)
	}
}

func claimPeer(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("shared"))
	require.Equal(k, dedup.Busy, k.try(k.peer, dedup.NewToken(), long, request("shared")).Verdict)
	require.NoError(k, k.peer.Complete(k.ctx, []dedup.Completion{completion(c)}))
	require.Equal(k, dedup.Done, k.try(k.s, dedup.NewToken(), long, request("shared")).Verdict)
}

func storeComparable(k *kit) {
	require.True(k, reflect.ValueOf(k.s).Comparable(), "%T: stores are compared with ==", k.s)
}
