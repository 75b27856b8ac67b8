package storetest

import (
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// leaseTests cover the end of leases, their renewal, and the report of lost ones.
var leaseTests = []testCase{
	{name: "lease: over, the claim is taken over as Uncertain and held (R-03, P-10)",
		run: leaseTakeover},
	{name: "lease: take-overs are counted, fences rise (rule 18)", run: leaseTakeovers},
	{name: "lease: one of many takes over", run: leaseTakeoverRace},
	{name: "lease: a pending record outlives it by its retention (rule 33)", run: leaseOutlived},
	{name: "lease: a take-over is kept for its own lease and retention (rule 33)",
		run: leaseTakeoverKept},
	{name: "lease: lease and retention count from the claim, not from the time of the event",
		run: leaseOfAnyEvent},
	{name: "lease: over but not taken over, the holder may still speak", run: leaseOverdue},
	{name: "lease: over but not taken over, a repeat of the claim has the first answer (R-01)",
		run: leaseOverRepeated},
	{name: "renew: keeps a claim through several leases (R-04)", run: renewKeeps},
	{name: "renew: too late, refused and nothing stolen (R-05)", run: renewLate},
	{name: "renew: reports the lost claims of a call", run: renewMixed},
	{name: "renew: counts as a change for the retention", run: renewRetention},
	{name: "complete: too late, refused and nothing destroyed (R-07)", needs: Results,
		run: completeLate},
	{name: "complete: too late without result, refused in every case (rule 29)",
		run: completeLateFact},
	{name: "release: too late, refused and nothing undone", run: releaseLate},
	{name: "retry and death: too late, refused and nothing destroyed", run: moveLate},
}

func leaseTakeover(k *kit) {
	r := request("stuck")
	k.get(dedup.Fresh, k.lease, r)
	k.outlast()
	other := r
	other.Origin = origin(5, 500)
	a, c := k.get(dedup.Uncertain, long, other)
	require.EqualValues(k, 2, a.Fence)
	require.EqualValues(k, 1, a.Takeovers)
	require.Zero(k, a.Failures, "a lease that ended is a take-over, not a failure")
	sameOrigin(k, r.Origin, a.First)
	busy := k.meets(dedup.Busy, r) // Uncertain is held
	require.Greater(k, busy.Wait, long/2, "the lease of a take-over has its whole length")
	k.complete(completion(c))
	k.meets(dedup.Done, r)
}

func leaseTakeovers(k *kit) {
	short := k.lease / 4
	k.get(dedup.Fresh, short, request("crash loop"))
	for i := range 4 {
		k.h.Sleep(short + short/4 + 5*time.Millisecond)
		a, _ := k.get(dedup.Uncertain, short, request("crash loop"))
		require.EqualValues(k, i+2, a.Fence)
		require.EqualValues(k, i+1, a.Takeovers)
	}
	k.h.Sleep(short + short/4 + 5*time.Millisecond)
	_, c := k.get(dedup.Uncertain, long, request("crash loop"))
	k.release(release(c, dedup.Failed)) // the releasing worker was alive
	a, _ := k.get(dedup.Uncertain, long, request("crash loop"))
	require.EqualValues(k, 5, a.Takeovers, "take-overs are not forgotten, and a release is none")
	require.EqualValues(k, 1, a.Failures)
}

func leaseTakeoverRace(k *kit) {
	k.get(dedup.Fresh, k.lease, request("heirs"))
	k.outlast()
	verdicts := inParallel(50, func(i int) dedup.Verdict {
		s := k.s
		if i%2 == 1 {
			s = k.peer
		}
		var a [1]dedup.Answer
		if s.Claim(k.ctx, dedup.NewToken(), long, []dedup.Request{request("heirs")}, a[:]) != nil {
			return 0
		}
		return a[0].Verdict
	})
	got := tally(verdicts)
	require.Equal(k, map[dedup.Verdict]int{dedup.Uncertain: 1, dedup.Busy: 49}, got)
}

func leaseOutlived(k *kit) {
	r := request("pending")
	r.Retention, r.AnyAge = 20*k.lease, true // as in completeRetention
	k.get(dedup.Fresh, k.lease, r)
	k.h.Sleep(4 * k.lease)
	a, _ := k.get(dedup.Uncertain, long, r)
	require.EqualValues(k, 1, a.Takeovers)
}

// leaseTakeoverKept: The first claim would have been forgotten after four leases.
func leaseTakeoverKept(k *kit) {
	k.patiently(func(lease time.Duration) bool {
		r := request("taken over " + lease.String())
		r.Retention, r.AnyAge = 3*lease, true
		began := time.Now()
		k.get(dedup.Fresh, lease, r)
		k.h.Sleep(2*lease + lease/2)
		a, _ := k.ask(long, r)
		if time.Since(began) > 4*lease {
			return false
		}
		require.Equal(k, dedup.Uncertain, a.Verdict)
		k.h.Sleep(2 * lease)
		k.meets(dedup.Busy, r)
		return true
	})
}

// leaseOfAnyEvent: Neither a lease nor a retention is counted from when the event was made.
func leaseOfAnyEvent(k *kit) {
	for name := range ages {
		r := aged(name)
		_, held := k.get(dedup.Fresh, long, r("held"))
		_, kept := k.get(dedup.Fresh, k.lease, r("renewed"))
		k.renew(long, kept)
		k.get(dedup.Fresh, k.lease, r("left"))
		_, c := k.get(dedup.Fresh, long, r("released"))
		k.release(release(c, dedup.Failed))
		_, c = k.get(dedup.Fresh, long, r("done"))
		k.complete(completion(c))
		k.killed(r("dead"))
		_, c = k.get(dedup.Fresh, long, r("moved"))
		k.complete(moved(c, 1))
		k.outlast()
		k.meets(dedup.Busy, r("held"))
		k.meets(dedup.Busy, r("renewed"))
		a, heir := k.get(dedup.Uncertain, long, r("left"))
		require.EqualValues(k, 1, a.Takeovers)
		k.meets(dedup.Busy, r("left"))
		a, _ = k.get(dedup.Fresh, long, r("released"))
		require.EqualValues(k, 1, a.Failures)
		k.meets(dedup.Busy, r("released"))
		k.meets(dedup.Done, r("done"))
		k.meets(dedup.Dead, r("dead"))
		k.meets(dedup.Rescheduled, r("moved"))
		k.complete(completion(held), completion(heir))
		k.meets(dedup.Done, r("held"))
		k.meets(dedup.Done, r("left"))
	}
}

// leaseOverdue: A claim is lost when the lease has ended AND another holder has taken over.
func leaseOverdue(k *kit) {
	_, done := k.get(dedup.Fresh, k.lease, request("done"))
	_, given := k.get(dedup.Fresh, k.lease, request("given back"))
	_, kept := k.get(dedup.Fresh, k.lease, request("kept"))
	k.outlast()
	k.complete(completion(done))
	k.release(release(given, dedup.Unstarted))
	k.renew(long, kept)
	k.meets(dedup.Done, request("done"))
	k.meets(dedup.Fresh, request("given back"))
	k.meets(dedup.Busy, request("kept"))
}

// leaseOverRepeated: An answer took longer than the lease, and the request is repeated under the
// same token. The claim is no take-over, and the lease begins anew.
func leaseOverRepeated(k *kit) {
	r := request("late answer")
	t := dedup.NewToken()
	first := k.try(k.s, t, k.lease, r)
	require.Equal(k, dedup.Fresh, first.Verdict)
	k.outlast()
	again := k.try(k.s, t, long, r)
	require.Equal(k, first.Verdict, again.Verdict)
	require.Equal(k, first.Fence, again.Fence)
	require.Zero(k, again.Takeovers)
	k.meets(dedup.Busy, r)
	k.complete(completion(r.Held(t, again)))
	k.meets(dedup.Done, r)

	taken := request("late answer, taken over")
	require.Equal(k, dedup.Fresh, k.try(k.s, t, k.lease, taken).Verdict)
	k.outlast()
	_, heir := k.get(dedup.Uncertain, long, taken)
	require.Equal(k, dedup.Busy, k.try(k.s, t, long, taken).Verdict)
	k.complete(completion(heir))
	require.Equal(k, dedup.Done, k.try(k.s, t, long, taken).Verdict)
}

func renewKeeps(k *kit) {
	k.patiently(func(lease time.Duration) bool {
		r := request("slow " + lease.String())
		_, c := k.get(dedup.Fresh, lease, r)
		if !k.staysBusy(lease, r, c) {
			return false
		}
		k.complete(completion(c))
		k.meets(dedup.Done, r)
		return true
	})
}

// staysBusy renews c for four leases. The result is false if an answer took too long for a
// conclusion.
func (k *kit) staysBusy(lease time.Duration, r dedup.Request, c dedup.Claim) bool {
	for until := time.Now().Add(4 * lease); time.Now().Before(until); {
		sent := time.Now()
		err := k.s.Renew(k.ctx, lease, []dedup.Claim{c})
		k.h.Sleep(lease / 3)
		a := k.try(k.peer, dedup.NewToken(), lease, r)
		if time.Since(sent) > lease {
			return false
		}
		require.NoError(k, err)
		require.Equal(k, dedup.Busy, a.Verdict, "a renewed claim is alive")
		require.LessOrEqual(k, a.Wait, lease)
	}
	return true
}

func renewLate(k *kit) {
	late, holder := k.zombie("late")
	k.lost(k.s.Renew(k.ctx, long, []dedup.Claim{late}), 0)
	k.renew(long, holder)
	k.complete(completion(holder))
	k.meets(dedup.Done, request("late"))
	k.lost(k.s.Renew(k.ctx, long, []dedup.Claim{late}), 0)
	k.meets(dedup.Done, request("late"))

	// Renew does not make a claim that was never granted.
	never := request("never").Held(dedup.NewToken(), dedup.Answer{Fence: 1})
	k.lost(k.s.Renew(k.ctx, long, []dedup.Claim{never}), 0)
	a := k.meets(dedup.Fresh, request("never"))
	require.EqualValues(k, 1, a.Fence)
}

func renewMixed(k *kit) {
	late1, holder1 := k.zombie("a")
	_, mine := k.get(dedup.Fresh, k.lease, request("b"))
	late2, _ := k.zombie("c")
	_, back := k.get(dedup.Fresh, long, request("d"))
	k.release(release(back, dedup.Unstarted))
	err := k.s.Renew(k.ctx, long, []dedup.Claim{late1, mine, late2, back})
	k.lost(err, 0, 2, 3)
	k.outlast()
	k.meets(dedup.Busy, request("a"))
	k.meets(dedup.Busy, request("b")) // the others were served
	k.meets(dedup.Fresh, request("d"))
	k.complete(completion(holder1))
}

func renewRetention(k *kit) {
	r := request("long run")
	r.Retention, r.AnyAge = 3*k.lease, true // as in completeRetention
	_, c := k.get(dedup.Fresh, k.lease, r)
	for range 5 {
		k.h.Sleep(k.lease) // overdue now and then: no other worker asks
		k.renew(k.lease, c)
	}
	k.outlast()
	k.get(dedup.Uncertain, long, r)
}

func completeLate(k *kit) {
	late, holder := k.zombie("late")
	zombie := completion(late)
	zombie.Result = dedup.Result{Schema: 1, Data: []byte("zombie")}
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{zombie}), 0)
	k.meets(dedup.Busy, request("late")) // it stays the new holder's
	k.renew(long, holder)
	mine := completion(holder)
	mine.Result = dedup.Result{Schema: 1, Data: []byte("holder")}
	k.complete(mine)
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{zombie}), 0)
	require.Equal(k, "holder", string(k.meets(dedup.Done, request("late")).Result.Data))
}

// completeLateFact: The effect has happened, so a store may write the completion, but must
// report the claim as lost.
func completeLateFact(k *kit) {
	late, holder := k.zombie("b")
	_, mine := k.get(dedup.Fresh, long, request("a"))
	_, other := k.get(dedup.Fresh, long, request("c"))
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{completion(mine), completion(late),
		completion(other)}), 1)
	k.meets(dedup.Done, request("a"))
	k.meets(dedup.Done, request("c"))
	if a, _ := k.ask(long, request("b")); a.Verdict != dedup.Done {
		require.Equal(k, dedup.Busy, a.Verdict)
		k.complete(completion(holder))
	}
	k.meets(dedup.Done, request("b"))
}

func releaseLate(k *kit) {
	late, holder := k.zombie("b")
	_, mine := k.get(dedup.Fresh, long, request("a"))
	back := []dedup.Release{release(mine, dedup.Failed), release(late, dedup.Unknown)}
	k.lost(k.s.Release(k.ctx, back), 1)
	k.meets(dedup.Fresh, request("a"))
	k.meets(dedup.Busy, request("b"))
	k.release(release(holder, dedup.Unstarted))
	a := k.meets(dedup.Uncertain, request("b"))
	require.Zero(k, a.Failures, "the late release counted nothing")

	_, c := k.get(dedup.Fresh, long, request("done"))
	k.complete(completion(c))
	k.harmless(k.s.Release(k.ctx, []dedup.Release{release(c, dedup.Unknown)}))
	k.meets(dedup.Done, request("done"))
}

func moveLate(k *kit) {
	late, holder := k.zombie("late")
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{moved(late, 3)}), 0)
	k.meets(dedup.Busy, request("late"))
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{dead(late, "zombie")}), 0)
	k.meets(dedup.Busy, request("late"))
	k.complete(completion(holder))
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{dead(late, "zombie")}), 0)
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{moved(late, 3)}), 0)
	k.meets(dedup.Done, request("late"))
}
