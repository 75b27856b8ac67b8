package storetest

import (
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// lookTests cover dedup.Looker.
var lookTests = []testCase{
	{name: "look: the answer that Claim would give, in every state", needs: Look, run: lookStates},
	{name: "look: Done with its result", needs: Look, run: lookResult},
	{name: "look: another fingerprint is a Conflict before all (P-24)", needs: Look,
		run: lookConflict},
	{name: "look: a second fingerprint is no conflict (G-08)", needs: Look, run: lookSecond},
	{name: "look: a claim is Busy for its holder too, and nothing when its lease is over",
		needs: Look, run: lookLease},
	{name: "look: keeps no claim alive", needs: Look, run: lookKeepsNothing},
	{name: "look: old events are TooOld (rule 8)", needs: Look, run: lookHorizon},
	{name: "look: changes nothing", needs: Look, run: lookChangesNothing},
	{name: "look: 1,200 keys in one call", needs: Look, run: lookMany},
	{name: "look: refuses the keys that Claim refuses (P-04)", needs: Look, run: lookRefuses},
	{name: "look: a server that is down is ErrUnavailable (R-19)", needs: Look, run: lookDown},
}

// look asks the peer of the store for many.
func (k *kit) look(reqs ...dedup.Request) []dedup.Answer {
	k.Helper()
	answers := make([]dedup.Answer, len(reqs))
	for i := range answers {
		answers[i] = dedup.Answer{Verdict: dedup.Fresh, Fence: 7, Reason: "of an earlier call"}
	}
	require.NoError(k, k.looker(k.peer).Look(k.ctx, reqs, answers))
	for i, a := range answers {
		require.False(k, a.Verdict.Held(), "%q: Look grants nothing", reqs[i].Key)
		if a.Verdict != 0 {
			k.wellFormed(reqs[i], long, a)
			continue
		}
		require.Equal(k, dedup.Answer{}, a, "%q: nothing is known that would be in the way",
			reqs[i].Key)
	}
	return answers
}

func (k *kit) looker(s dedup.Store) dedup.Looker {
	k.Helper()
	l, ok := s.(dedup.Looker)
	require.True(k, ok, "%T is no dedup.Looker, and storetest.Look is not in Harness.Missing", s)
	return l
}

// shows looks for one, which must have that verdict.
func (k *kit) shows(v dedup.Verdict, r dedup.Request) dedup.Answer {
	k.Helper()
	a := k.look(r)[0]
	require.Equal(k, v.String(), a.Verdict.String(), "%q, position %v", r.Key, r.Position)
	return a
}

// everyVerdict makes records of all kinds. The result has requests for these, by the verdict
// that Claim would answer; zero stands for a grant.
func (k *kit) everyVerdict() map[dedup.Verdict][]dedup.Request {
	k.Helper()
	k.everyState()
	_, c := k.get(dedup.Fresh, long, request("failed"))
	k.release(release(c, dedup.Failed))
	_, c = k.get(dedup.Fresh, long, request("doubtful"))
	k.release(release(c, dedup.Unknown))
	k.get(dedup.Fresh, k.lease, request("overdue"))
	k.get(dedup.Fresh, k.lease, at("overdue later", 0, 2))
	k.outlast()
	return map[dedup.Verdict][]dedup.Request{
		dedup.Busy: {request("claimed")},
		dedup.Done: {request("done"), at("done", 0, 4)},
		dedup.Dead: {request("dead")},
		dedup.Rescheduled: {request("moved"), at("moved", 0, 2), at("moved", 1, 3),
			at("released", 1, 0),
			request("overdue later")},
		0: {request("new"), request("released"), request("failed"), request("doubtful"),
			request("overdue"),
			at("moved", 0, 3), at("moved", 0, 5), at("overdue later", 0, 2)},
	}
}

func lookStates(k *kit) {
	k.looker(k.s)
	for v, reqs := range k.everyVerdict() {
		for _, r := range reqs {
			a := k.shows(v, r)
			if v == 0 {
				continue
			}
			got := k.meets(v, r)
			sameOrigin(k, got.First, a.First)
			require.Equal(k, got.Reason, a.Reason, "%q", r.Key)
			require.InDelta(k, got.Wait, a.Wait, float64(long/2), "%q", r.Key)
		}
	}
	if k.h.lacks(Reopen) {
		return
	}
	p := k.reopen("dead")
	k.shows(dedup.Rescheduled, request("dead"))
	k.shows(0, at("dead", p.Generation, 0))
}

func lookResult(k *kit) {
	k.looker(k.s)
	results := map[string]dedup.Result{"bare": {}}
	if !k.h.lacks(Results) {
		results["text"] = dedup.Result{Schema: 1, Data: []byte(`{"status":"paid"}`)}
		results["binary"] = dedup.Result{Schema: 1<<32 - 1, Data: []byte{0, 255, 0, 10, 13, 0x80,
			0}}
		results["schema only"] = dedup.Result{Schema: 7}
	}
	for name, want := range results {
		_, c := k.get(dedup.Fresh, long, request(name))
		d := completion(c)
		d.Result = want
		k.complete(d)
		for range 2 {
			got := k.shows(dedup.Done, request(name)).Result
			require.Equal(k, want.IsZero(), got.IsZero(), name)
			require.Equal(k, want.Schema, got.Schema, name)
			require.Equal(k, string(want.Data), string(got.Data), name)
		}
		got := k.look(request(name))[0].Result
		clear(got.Data) // it is the caller's
		require.Equal(k, string(want.Data), string(k.shows(dedup.Done, request(name)).Result.Data),
			name)
	}
}

func lookConflict(k *kit) {
	k.looker(k.s)
	if k.h.lacks(Fingerprints) {
		k.Skip("missing in the harness: fingerprints")
	}
	mine, other := request("e"), request("e")
	mine.Fingerprint, other.Fingerprint = dedup.Fingerprint{1}, dedup.Fingerprint{2}
	k.shows(0, mine)
	_, c := k.get(dedup.Fresh, long, mine)
	// First the event is claimed, then done.
	for _, known := range []dedup.Verdict{dedup.Busy, dedup.Done} {
		got := k.shows(dedup.Conflict, other)
		sameOrigin(k, mine.Origin, got.First)
		require.Equal(k, known.String(), got.Known.String(), "the answer to an equal copy")
		require.Equal(k, known == dedup.Busy, got.Wait > 0, "Busy has a wait")
		require.NotEqual(k, dedup.Conflict, k.look(mine)[0].Verdict)
		require.NotEqual(k, dedup.Conflict, k.look(request("e"))[0].Verdict)
		redriven := other
		redriven.Position.Generation = 1
		require.NotEqual(k, dedup.Conflict, k.look(redriven)[0].Verdict)
		k.complete(completion(c))
	}
}

func lookLease(k *kit) {
	k.looker(k.s)
	_, c := k.get(dedup.Fresh, long, request("e"))
	a := k.shows(dedup.Busy, request("e"))
	require.Greater(k, a.Wait, long/2, "the lease has only begun")
	lease := k.shortLease(c)
	k.h.Sleep(lease + lease/4 + 5*time.Millisecond)
	k.shows(0, request("e"))
	k.renew(long, c) // no other claim took over
	k.shows(dedup.Busy, request("e"))
}

func lookKeepsNothing(k *kit) {
	k.get(dedup.Fresh, k.lease, request("e"))
	for range 8 {
		k.h.Sleep(k.lease / 4)
		k.look(request("e"))
	}
	k.shows(0, request("e"))
	a := k.meets(dedup.Uncertain, request("e"))
	require.EqualValues(k, 1, a.Takeovers)
}

// shortLease renews c with a short lease, and requires Look to show Busy before the lease is over.
// A machine that stalls for a whole lease proves no fault. The next attempt has a longer lease.
func (k *kit) shortLease(c dedup.Claim) time.Duration {
	k.Helper()
	lease := k.lease
	for range 8 {
		sent := time.Now()
		k.renew(lease, c)
		a := k.look(request("e"))[0]
		if time.Since(sent) < lease/2 { // the clock of a server may be rounded
			require.Equal(k, dedup.Busy.String(), a.Verdict.String(), "the lease is not over")
			require.LessOrEqual(k, a.Wait, lease)
			return lease
		}
		lease *= 2
	}
	require.Fail(k, "the store never answered within a lease")
	return 0
}

func lookHorizon(k *kit) {
	k.looker(k.s)
	if k.h.Horizon == nil {
		k.Skip("missing in the harness: horizon of its own")
	}
	k.shows(0, dated("old", beforeHorizon))
	_, c := k.get(dedup.Fresh, long, dated("done", beforeHorizon))
	k.complete(completion(c))
	k.h.Horizon(k, k.s, request("").Key.Scope, horizonAt)
	k.shows(dedup.TooOld, dated("old", beforeHorizon))
	k.shows(dedup.Done, dated("done", beforeHorizon))
	for _, r := range unjudged() {
		k.shows(0, r)
	}
	k.meets(dedup.TooOld, dated("old", beforeHorizon))
}

// lookChangesNothing: Look changes neither a record nor an answer of Claim.
func lookChangesNothing(k *kit) {
	k.looker(k.s)
	all := k.everyVerdict()
	var reqs []dedup.Request
	var keys []dedup.Key
	for _, of := range all {
		for _, r := range of {
			if !slices.Contains(keys, r.Key) {
				reqs, keys = append(reqs, r), append(keys, r.Key)
			}
		}
	}
	sorted(reqs)
	records := func() []dedup.Record {
		o, ok := k.s.(dedup.Operator)
		if !ok {
			return nil
		}
		found, err := o.Inspect(k.ctx, keys...)
		require.NoError(k, err)
		for i := range found { // these run on, and a slow clock rounds them
			found[i].Lease, found[i].Expires, found[i].Changed = 0, time.Time{}, time.Time{}
		}
		return found
	}
	was := records()
	for range 3 {
		k.look(reqs...)
	}
	require.Equal(k, was, records())
	a := k.meets(dedup.Fresh, request("failed"))
	require.EqualValues(k, 2, a.Fence)
	require.EqualValues(k, 1, a.Failures)
	require.EqualValues(k, 1, k.meets(dedup.Uncertain, request("overdue")).Takeovers)
	require.EqualValues(k, 1, k.meets(dedup.Fresh, request("new")).Fence)
	for _, v := range []dedup.Verdict{dedup.Busy, dedup.Done, dedup.Dead} {
		k.meets(v, all[v][0])
	}
	k.meets(dedup.Rescheduled, request("moved"))
}

func lookMany(k *kit) {
	k.looker(k.s)
	const n = 1200
	reqs, done := make([]dedup.Request, n), []dedup.Completion(nil)
	for i := range n {
		reqs[i] = request(numbered("many", i))
	}
	third := slices.Collect(func(yield func(dedup.Request) bool) {
		for i := 0; i < n && yield(reqs[i]); i += 3 {
		}
	})
	t, granted := dedup.NewToken(), make([]dedup.Answer, len(third))
	require.NoError(k, k.s.Claim(k.ctx, t, long, third, granted))
	for i := 0; i < len(third); i += 2 {
		done = append(done, completion(third[i].Held(t, granted[i])))
	}
	k.complete(done...)
	for i, a := range k.look(reqs...) {
		want := [...]dedup.Verdict{dedup.Done, 0, 0, dedup.Busy, 0, 0}[i%6]
		require.Equal(k, want.String(), a.Verdict.String(), "%q", reqs[i].Key)
	}
	k.look()
}

func lookRefuses(k *kit) {
	l := k.looker(k.s)
	answers := make([]dedup.Answer, 2)
	err := l.Look(k.ctx, []dedup.Request{request("b"), request("a")}, answers)
	require.ErrorIs(k, err, dedup.ErrOrder)
	err = l.Look(k.ctx, []dedup.Request{request("a"), request("a")}, answers)
	require.ErrorIs(k, err, dedup.ErrOrder)
	require.ErrorIs(k, l.Look(k.ctx, []dedup.Request{{Retention: retention}}, answers[:1]),
		dedup.ErrKey)
	require.Error(k, l.Look(k.ctx, []dedup.Request{request("a")}, answers))
}

func lookDown(k *kit) {
	k.looker(k.s)
	if k.h.lacks(Outage) {
		k.Skip("missing in the harness: outage")
	}
	answers := []dedup.Answer{{Verdict: dedup.Done}}
	err := k.looker(k.h.Down(k)).Look(k.ctx, []dedup.Request{request("e")}, answers)
	require.ErrorIs(k, err, dedup.ErrUnavailable)
	require.Zero(k, answers[0])
}
