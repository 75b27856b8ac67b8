package storetest

import (
	"math"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// positionTests cover the copies of an event: those moved to a later attempt and those that an
// operator lets run again.
var positionTests = []testCase{
	{name: "retry: Rescheduled for a lower attempt, Fresh for the one waited for (rule 3)",
		run: retryMove},
	{name: "retry: a higher attempt is accepted when the move was not written (rule 3)",
		run: retryAhead},
	{name: "retry: a claim that is held is not overtaken", run: retryHeld},
	{name: "retry: a lower attempt does not take over an expired claim (rule 3)",
		run: retryOverdue},
	{name: "retry: doubt, failures and take-overs move along", run: retryKeeps},
	{name: "retry: another generation is Rescheduled (rule 6)", run: retryGeneration},
	{name: "retry: Done and Dead do not ask for the position", run: retryEnded},
	{name: "retry: the highest position can be stored", run: retryHighest},
	{name: "reopen: only the next generation runs (rule 6, T-02)", needs: Reopen, run: reopenRuns},
	{name: "reopen: failures and take-overs are forgotten", needs: Reopen, run: reopenForgets},
	{name: "reopen: repeated it returns the same position", needs: Reopen, run: reopenRepeated},
	{name: "reopen: many at once reopen once", needs: Reopen, run: reopenRace},
	{name: "reopen: refuses events that are not dead", needs: Reopen, run: reopenNotDead},
	{name: "reopen: the fence never goes back", needs: Reopen, run: reopenFence},
	{name: "reopen: a repaired copy is not compared, others are (rules 6d and 17)", needs: Reopen,
		run: reopenFingerprint},
	{name: "reopen: a second death, a third generation", needs: Reopen, run: reopenAgain},
	{name: "reopen: the redriven copy may be retried", needs: Reopen, run: reopenRetry},
	{name: "reopen: the death of a retry reopens at retry 0", needs: Reopen, run: reopenOfRetry},
}

func retryMove(k *kit) {
	_, c := k.get(dedup.Fresh, long, at("e", 0, 0))
	k.complete(moved(c, 1))
	k.meets(dedup.Rescheduled, at("e", 0, 0))
	_, c = k.get(dedup.Fresh, long, at("e", 0, 1))
	k.complete(moved(c, 2))
	k.meets(dedup.Rescheduled, at("e", 0, 0))
	k.meets(dedup.Rescheduled, at("e", 0, 1))
	a, c := k.get(dedup.Fresh, long, at("e", 0, 2))
	sameOrigin(k, request("e").Origin, a.First)
	k.release(release(c, dedup.Failed)) // in place, the attempt stays
	k.meets(dedup.Rescheduled, at("e", 0, 1))
	_, c = k.get(dedup.Fresh, long, at("e", 0, 2))
	k.complete(completion(c))
	for retry := range uint32(4) {
		k.meets(dedup.Done, at("e", 0, retry))
	}
}

// retryAhead: Attempt 3 was published, then the worker died before the completion.
func retryAhead(k *kit) {
	_, c := k.get(dedup.Fresh, long, at("e", 0, 0))
	k.release(release(c, dedup.Failed))
	_, c = k.get(dedup.Fresh, long, at("e", 0, 3))
	k.release(release(c, dedup.Failed))
	k.meets(dedup.Rescheduled, at("e", 0, 2)) // the record followed
	k.meets(dedup.Rescheduled, at("e", 0, 0))
	k.get(dedup.Fresh, k.lease, at("e", 0, 3))
	k.outlast()
	k.get(dedup.Uncertain, long, at("e", 0, 4)) // the lease of attempt 3 ended as well
	k.meets(dedup.Busy, at("e", 0, 5))
}

func retryHeld(k *kit) {
	_, c := k.get(dedup.Fresh, long, at("e", 0, 1))
	k.meets(dedup.Busy, at("e", 0, 1))
	k.meets(dedup.Busy, at("e", 0, 2)) // its holder is about to write the move
	lower := k.try(k.s, dedup.NewToken(), long, at("e", 0, 0)).Verdict
	require.Contains(k, []dedup.Verdict{dedup.Busy, dedup.Rescheduled}, lower,
		"overtaken, or to wait: never to run")
	k.complete(moved(c, 2))
	k.meets(dedup.Fresh, at("e", 0, 2))
}

// retryOverdue: The copy of attempt 1 comes again, since no worker has marked that copy. The
// copy of attempt 0 must not run instead.
func retryOverdue(k *kit) {
	k.get(dedup.Fresh, k.lease, at("e", 0, 1))
	k.outlast()
	k.meets(dedup.Rescheduled, at("e", 0, 0))
	a := k.meets(dedup.Uncertain, at("e", 0, 1))
	require.EqualValues(k, 1, a.Takeovers)
}

func retryKeeps(k *kit) {
	_, c := k.get(dedup.Fresh, long, at("e", 0, 0))
	k.release(release(c, dedup.Unknown))
	_, c = k.get(dedup.Uncertain, long, at("e", 0, 0))
	k.release(release(c, dedup.Failed))
	_, c = k.get(dedup.Uncertain, long, at("e", 0, 0))
	k.complete(moved(c, 1))
	// Fresh would promise that no effect can have happened.
	a, _ := k.get(dedup.Uncertain, k.lease, at("e", 0, 1))
	require.EqualValues(k, 1, a.Failures)
	require.EqualValues(k, 4, a.Fence)
	k.outlast()
	a, c = k.get(dedup.Uncertain, long, at("e", 0, 1))
	require.EqualValues(k, 1, a.Takeovers)
	k.complete(moved(c, 2))
	a = k.meets(dedup.Uncertain, at("e", 0, 2))
	require.EqualValues(k, 1, a.Takeovers)
	require.EqualValues(k, 1, a.Failures)
	require.EqualValues(k, 6, a.Fence)
}

func retryGeneration(k *kit) {
	_, c := k.get(dedup.Fresh, long, at("e", 1, 0))
	k.release(release(c, dedup.Failed))
	k.meets(dedup.Rescheduled, at("e", 0, 0))
	k.meets(dedup.Rescheduled, at("e", 0, 9))
	// a header can be forged, a generation of the store cannot
	k.meets(dedup.Rescheduled, at("e", 2, 0))
	k.meets(dedup.Rescheduled, at("e", 2, 9))
	k.meets(dedup.Fresh, at("e", 1, 0))
}

func retryEnded(k *kit) {
	_, c := k.get(dedup.Fresh, long, at("done", 0, 2))
	k.complete(completion(c))
	_, c = k.get(dedup.Fresh, long, at("dead", 0, 2))
	k.complete(dead(c, "why"))
	for _, p := range []dedup.Position{{}, {Retry: 2}, {Retry: 3}, {Generation: 1},
		{Generation: 1, Retry: 7}} {
		k.meets(dedup.Done, at("done", p.Generation, p.Retry))
		k.meets(dedup.Dead, at("dead", p.Generation, p.Retry))
	}
}

// retryHighest: The numbers come from headers, which any producer may write. A number that
// cannot be stored would block the partition of the copy.
func retryHighest(k *kit) {
	const most = math.MaxUint32
	_, c := k.get(dedup.Fresh, long, at("e", most, most-1))
	k.complete(moved(c, most))
	k.meets(dedup.Rescheduled, at("e", most, most-1))
	k.meets(dedup.Rescheduled, at("e", most-1, most))
	k.meets(dedup.Fresh, at("e", most, most))
}

func (k *kit) reopen(id string) dedup.Position {
	k.Helper()
	p, err := k.reopener().Reopen(k.ctx, key(id))
	require.NoError(k, err)
	return p
}

func (k *kit) reopener() dedup.Operator {
	k.Helper()
	r, ok := k.s.(dedup.Operator)
	require.True(k, ok, "%T has no Reopen, and Missing of the harness does not list it", k.s)
	return r
}

// killed makes a dead record out of r.
func (k *kit) killed(r dedup.Request) (fence uint64) {
	k.Helper()
	a, c := k.ask(long, r)
	require.True(k, a.Verdict.Held(), "%v", a.Verdict)
	k.complete(dead(c, "poison"))
	return a.Fence
}

func reopenRuns(k *kit) {
	k.killed(request("e"))
	require.Equal(k, dedup.Position{Generation: 1}, k.reopen("e"))
	k.meets(dedup.Rescheduled, at("e", 0, 0))
	k.meets(dedup.Rescheduled, at("e", 0, 5))
	k.meets(dedup.Rescheduled, at("e", 2, 0))
	a, c := k.get(dedup.Fresh, long, at("e", 1, 0)) // a person decided: no doubt is left
	sameOrigin(k, request("e").Origin, a.First)
	k.complete(completion(c))
	k.meets(dedup.Done, at("e", 0, 0))
	k.meets(dedup.Done, at("e", 1, 0))
}

// failing makes a claim after a failure and a take-over, which is held.
func (k *kit) failing(id string) dedup.Claim {
	k.Helper()
	_, c := k.get(dedup.Fresh, long, request(id))
	k.release(release(c, dedup.Failed))
	k.get(dedup.Fresh, k.lease, request(id))
	k.outlast()
	a, c := k.get(dedup.Uncertain, long, request(id))
	require.EqualValues(k, 1, a.Failures)
	require.EqualValues(k, 1, a.Takeovers)
	return c
}

// startsAnew requires the copy of generation 1 to be Fresh, without the counts of before.
func (k *kit) startsAnew(id string, fence uint64) dedup.Claim {
	k.Helper()
	a, c := k.get(dedup.Fresh, long, at(id, 1, 0))
	require.Zero(k, a.Failures, "the failures before a repair do not count")
	require.Zero(k, a.Takeovers, "the take-overs before a repair do not count")
	require.Equal(k, fence, a.Fence)
	return c
}

func reopenForgets(k *kit) {
	c := k.failing("e")
	k.complete(dead(c, "poison"))
	k.reopen("e")
	c = k.startsAnew("e", c.Fence+1)
	k.release(release(c, dedup.Failed))
	a := k.meets(dedup.Fresh, at("e", 1, 0))
	require.EqualValues(k, 1, a.Failures, "those after it do")
}

func reopenRepeated(k *kit) {
	k.killed(request("e"))
	first := k.reopen("e")
	for range 3 {
		require.Equal(k, first, k.reopen("e"))
	}
	k.meets(dedup.Rescheduled, at("e", 0, 0)) // an overtaken copy claims no event
	require.Equal(k, first, k.reopen("e"))
	k.meets(dedup.Fresh, at("e", 1, 0))
}

func reopenRace(k *kit) {
	k.killed(request("e"))
	r := k.reopener()
	got := inParallel(20, func(int) dedup.Position {
		p, err := r.Reopen(k.ctx, key("e"))
		if err != nil {
			return dedup.Position{}
		}
		return p
	})
	require.Equal(k, map[dedup.Position]int{{Generation: 1}: 20}, tally(got))
}

func reopenNotDead(k *kit) {
	notDead := func(id string) {
		k.Helper()
		_, err := k.reopener().Reopen(k.ctx, key(id))
		require.ErrorIs(k, err, dedup.ErrNotDead, id)
	}
	notDead("unknown")
	k.meets(dedup.Fresh, request("unknown")) // asking makes no record
	_, c := k.get(dedup.Fresh, long, request("e"))
	notDead("e")
	k.release(release(c, dedup.Failed))
	notDead("e")
	_, c = k.get(dedup.Fresh, long, request("e"))
	k.complete(completion(c))
	notDead("e")
	k.meets(dedup.Done, request("e"))
	_, c = k.get(dedup.Fresh, long, request("moved"))
	k.complete(moved(c, 1))
	notDead("moved")
	k.meets(dedup.Rescheduled, request("moved"))
	k.killed(request("dead"))
	k.reopen("dead")
	k.get(dedup.Fresh, long, at("dead", 1, 0))
	notDead("dead") // its copy runs
}

func reopenFence(k *kit) {
	before := k.killed(request("e"))
	k.reopen("e")
	a := k.meets(dedup.Fresh, at("e", 1, 0))
	require.Equal(k, before+1, a.Fence)
}

func reopenFingerprint(k *kit) {
	r := request("e")
	r.Fingerprint = dedup.Fingerprint{1}
	k.killed(r)
	r.Fingerprint = dedup.Fingerprint{2}
	if !k.h.lacks(Fingerprints) {
		k.meets(dedup.Conflict, r)
	}
	k.reopen("e")
	wants := func(content byte) {
		k.Helper()
		r := request("e")
		r.Fingerprint = dedup.Fingerprint{content}
		if content == 1 || k.h.lacks(Fingerprints) {
			k.meets(dedup.Rescheduled, r)
			return
		}
		require.Equal(k, dedup.Rescheduled, k.meets(dedup.Conflict, r).Known,
			"the answer to an equal copy")
	}
	wants(1)
	wants(3)
	r.Position.Generation = 1
	_, c := k.get(dedup.Fresh, long, r)
	k.complete(moved(c, 1))
	wants(1)
	wants(3)
	r.Position.Retry = 1
	k.meets(dedup.Fresh, r)
}

func reopenAgain(k *kit) {
	k.killed(request("e"))
	for g := range uint32(3) {
		require.Equal(k, dedup.Position{Generation: g + 1}, k.reopen("e"))
		k.killed(at("e", g+1, 0))
		k.meets(dedup.Dead, at("e", g, 0))
	}
}

func reopenRetry(k *kit) {
	k.killed(request("e"))
	k.reopen("e")
	_, c := k.get(dedup.Fresh, long, at("e", 1, 0))
	k.complete(moved(c, 1))
	k.meets(dedup.Rescheduled, at("e", 1, 0))
	k.meets(dedup.Rescheduled, at("e", 0, 1))
	_, c = k.get(dedup.Fresh, long, at("e", 1, 1))
	k.complete(completion(c))
	k.meets(dedup.Done, at("e", 1, 0))
}

func reopenOfRetry(k *kit) {
	_, c := k.get(dedup.Fresh, long, at("e", 0, 0))
	k.complete(moved(c, 4))
	k.killed(at("e", 0, 4))
	require.Equal(k, dedup.Position{Generation: 1}, k.reopen("e"))
	k.meets(dedup.Rescheduled, at("e", 0, 4))
	k.meets(dedup.Fresh, at("e", 1, 0))
}
