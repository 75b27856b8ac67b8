package storetest

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// endTests cover Complete and Release by the holders of a claim, and repeats of these calls.
var endTests = []testCase{
	{name: "complete: repeated after a lost reply it succeeds", run: completeRepeated},
	{name: "complete: repeated after another claim, it has no effect", run: completeRepeatedLate},
	{name: "complete: reports the lost claims of a call", run: completeMixed},
	{name: "complete: a claim that was never granted is lost and makes no record", needs: Results,
		run: completeNever},
	{name: "complete: the retention is counted anew", run: completeRetention},
	{name: "complete: the late success of a claim that was released as Unknown (rule 13)",
		run: completeLateSuccess},
	{name: "complete: the late success of a claim comes after others have spoken (rule 13)",
		needs: Results, run: completeTooLateSuccess},
	{name: "complete: retention must be positive", run: endRetention},
	{name: "complete: a result above MaxResult is refused, and the claim stays", needs: Results,
		run: completeTooLarge},
	{name: "dead: answers Dead with the reason", run: deadReason},
	{name: "dead: the reason is cut at MaxReason and any bytes will do (P-22)",
		run: deadLongReason},
	{name: "dead: the origin is the dead-lettered delivery (rule 6)", run: deadOrigin},
	{name: "release: Unstarted gives the next claim the same verdict", run: releaseUnstarted},
	{name: "release: an outcome of a later version counts as Unstarted", run: releaseOther},
	{name: "release: Failed is counted", run: releaseFailed},
	{name: "release: Unknown makes the next claim Uncertain at once (rule 13)",
		run: releaseUnknown},
	{name: "release: an Uncertain claim stays Uncertain", run: releaseUncertain},
	{name: "release: Undone leaves the key to another payload (H-11)", needs: Fingerprints,
		run: releaseUndone},
	{name: "release: a repetition is harmless, even after another claim",
		run: releaseRepeated},
	{name: "release: a token that never held anything changes nothing (rule 32)",
		run: releaseNever},
	{name: "release: reports the lost claims of a call", run: releaseMixed},
	{name: "release: the fence never goes back", run: releaseFence},
	{name: "release: a record that waits outlives a lease", run: releaseRetention},
}

func completeRepeated(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("done"))
	_, gone := k.get(dedup.Fresh, long, request("dead"))
	_, later := k.get(dedup.Fresh, long, request("moved"))
	all := []dedup.Completion{dead(gone, "why"), completion(c), moved(later, 1)}
	for range 3 {
		k.complete(all...)
		require.NoError(k, k.peer.Complete(k.ctx, all), "a repeat through another client")
	}
	k.meets(dedup.Done, request("done"))
	require.Equal(k, "why", k.meets(dedup.Dead, request("dead")).Reason)
	k.meets(dedup.Rescheduled, request("moved"))
}

// completeRepeatedLate: A client library repeats a call after other workers used its outcome.
func completeRepeatedLate(k *kit) {
	again := func(d dedup.Completion) {
		k.Helper()
		k.harmless(k.s.Complete(k.ctx, []dedup.Completion{d}))
	}
	next := at("moved", 0, 1)
	_, c := k.get(dedup.Fresh, long, request("moved"))
	k.complete(moved(c, 1))
	_, holder := k.get(dedup.Fresh, long, next)
	again(moved(c, 1))
	k.meets(dedup.Busy, next)
	k.complete(completion(holder))
	again(moved(c, 1))
	k.meets(dedup.Done, next)
	if k.h.lacks(Reopen) {
		return
	}
	_, c = k.get(dedup.Fresh, long, request("dead"))
	k.complete(dead(c, "why"))
	k.reopen("dead")
	again(dead(c, "why"))
	k.meets(dedup.Rescheduled, request("dead"))
	_, holder = k.get(dedup.Fresh, long, at("dead", 1, 0))
	again(dead(c, "why"))
	k.complete(completion(holder))
	again(dead(c, "why"))
	k.meets(dedup.Done, request("dead"))
}

// completeLateSuccess: The claim of a slow run is released, and then the run succeeds. No other
// claim was made meanwhile.
func completeLateSuccess(k *kit) {
	later := request("left behind, moved")
	later.Position.Retry = 2
	for _, r := range []dedup.Request{later, request("left behind")} {
		_, c := k.get(dedup.Fresh, long, r)
		back := release(c, dedup.Unknown)
		k.release(back)
		k.lost(k.s.Complete(k.ctx, []dedup.Completion{dead(c, "too late to give up")}), 0)
		k.lost(k.s.Complete(k.ctx, []dedup.Completion{moved(c, 3)}), 0)
		done := []dedup.Completion{completion(c)}
		if r.Position.Retry == 0 && !k.h.lacks(Results) {
			done[0].Result = dedup.Result{Schema: 1, Data: []byte("late")}
		}
		k.complete(done...)
		require.NoError(k, k.peer.Complete(k.ctx, done), "repeated")
		require.Equal(k, done[0].Result, k.meets(dedup.Done, r).Result)
		k.harmless(k.s.Release(k.ctx, []dedup.Release{back})) // a client library repeats it now
		k.meets(dedup.Done, r)
	}
}

// completeTooLateSuccess: A completion made meanwhile stands.
func completeTooLateSuccess(k *kit) {
	success := func(c dedup.Claim) []dedup.Completion {
		d := completion(c)
		d.Result = dedup.Result{Schema: 1, Data: []byte("too late")}
		return []dedup.Completion{d}
	}
	late := func(c dedup.Claim) {
		k.Helper()
		k.lost(k.s.Complete(k.ctx, success(c)), 0)
	}
	_, first := k.get(dedup.Fresh, long, request("claimed since"))
	k.release(release(first, dedup.Unknown))
	_, second := k.get(dedup.Uncertain, long, request("claimed since"))
	late(first)
	k.meets(dedup.Busy, request("claimed since"))
	k.release(release(second, dedup.Unknown))
	late(first)
	k.meets(dedup.Uncertain, request("claimed since"))

	_, c := k.get(dedup.Fresh, long, request("moved by itself"))
	k.release(release(c, dedup.Unknown))
	_, c = k.get(dedup.Uncertain, long, request("moved by itself"))
	k.complete(moved(c, 1))
	k.harmless(k.s.Complete(k.ctx, success(c))) // a store may take it for a repeat
	k.meets(dedup.Rescheduled, request("moved by itself"))

	for _, o := range []dedup.Outcome{dedup.Unstarted, dedup.Failed} {
		_, c = k.get(dedup.Fresh, long, request(numbered("no doubt", int(o))))
		k.release(release(c, o))
		late(c)
		k.meets(dedup.Fresh, request(numbered("no doubt", int(o))))
	}
	for _, o := range []dedup.Outcome{dedup.Unstarted, dedup.Failed, dedup.Undone} {
		r := request(numbered("earlier doubt", int(o)))
		_, c = k.get(dedup.Fresh, long, r)
		k.release(release(c, dedup.Unknown))
		_, c = k.get(dedup.Uncertain, long, r)
		k.release(release(c, o))
		if err := k.s.Complete(k.ctx, success(c)); err != nil {
			k.lost(err, 0)
			k.meets(dedup.Uncertain, r)
			continue
		}
		k.meets(dedup.Done, r) // a store that does not keep the outcome
	}
}

func completeMixed(k *kit) {
	late, holder := k.zombie("b")
	_, a := k.get(dedup.Fresh, long, request("a"))
	_, c := k.get(dedup.Fresh, long, request("c"))
	zombie, mine := completion(late), completion(holder)
	if !k.h.lacks(Results) { // a result must not overwrite the new holder (rule 29)
		zombie.Result = dedup.Result{Schema: 1, Data: []byte("zombie")}
	}
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{completion(a), zombie, dead(c, "poison")}), 1)
	k.meets(dedup.Done, request("a"))
	k.meets(dedup.Dead, request("c"))
	if !k.h.lacks(Results) {
		k.meets(dedup.Busy, request("b"))
		k.complete(mine)
	}
	k.meets(dedup.Done, request("b"))
}

func completeNever(k *kit) {
	never := completion(request("never").Held(dedup.NewToken(), dedup.Answer{Fence: 1}))
	never.Result = dedup.Result{Schema: 1, Data: []byte("ghost")}
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{never}), 0)
	k.meets(dedup.Fresh, request("never"))
}

func completeRetention(k *kit) {
	for name, end := range map[string]func(dedup.Claim) dedup.Completion{
		"done":  completion,
		"dead":  func(c dedup.Claim) dedup.Completion { return dead(c, "why") },
		"moved": func(c dedup.Claim) dedup.Completion { return moved(c, 1) },
	} {
		k.patiently(func(lease time.Duration) bool {
			brief := request(name + " " + lease.String())
			// A store that forgets so soon may no longer know.
			brief.Retention, brief.AnyAge = lease, true
			began := time.Now()
			_, c := k.get(dedup.Fresh, lease, brief)
			err := k.s.Complete(k.ctx, []dedup.Completion{end(c)})
			if time.Since(began) > lease { // lease and retention may have ended
				return false
			}
			require.NoError(k, err)
			want := k.try(k.s, dedup.NewToken(), long, brief).Verdict
			require.Contains(k, []dedup.Verdict{dedup.Done, dedup.Dead, dedup.Rescheduled}, want)
			k.h.Sleep(2*lease + lease/2)
			k.meets(want, brief)
			return true
		})
	}
}

// largeResult is the length of a large result that the store must keep: n, or less if the store
// has a lower limit.
func (k *kit) largeResult(n int) int {
	if l, ok := k.s.(dedup.ResultLimiter); ok {
		return min(n, l.MaxResult())
	}
	return n
}

// completeTooLarge is for stores that are a [dedup.ResultLimiter].
func completeTooLarge(k *kit) {
	const most = 16 << 20 // as much as this test sends
	size := k.largeResult(most)
	if size == most {
		k.Skip("no dedup.ResultLimiter, or a limit of more than 16 MiB")
	}
	_, c := k.get(dedup.Fresh, long, request("e"))
	d := completion(c)
	d.Result = dedup.Result{Schema: 1, Data: make([]byte, size+1)}
	err := k.s.Complete(k.ctx, []dedup.Completion{d})
	require.Error(k, err, "MaxResult is %d", size)
	require.NotErrorIs(k, err, dedup.ErrClaimLost)
	require.NotErrorIs(k, err, dedup.ErrUnavailable, "the result is the cause, not the store")
	k.meets(dedup.Busy, request("e"))
	d.Result.Data = d.Result.Data[:size]
	k.complete(d)
	require.Len(k, k.meets(dedup.Done, request("e")).Result.Data, size)
}

func endRetention(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("kept"))
	for _, d := range []dedup.Completion{{Claim: c}, {Claim: c, Retention: -1}} {
		require.Error(k, k.s.Complete(k.ctx, []dedup.Completion{d}))
	}
	for _, r := range []dedup.Release{{Claim: c}, {Claim: c, Retention: -1}} {
		require.Error(k, k.s.Release(k.ctx, []dedup.Release{r}))
	}
	k.meets(dedup.Busy, request("kept"))
}

func deadReason(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("dead"))
	const why = "permanent: order 7 has no items: {\"a\":1}\n"
	k.complete(dead(c, why))
	for range 2 {
		again := request("dead")
		again.Origin = origin(8, 8)
		a := k.meets(dedup.Dead, again)
		require.Equal(k, why, a.Reason)
		sameOrigin(k, request("dead").Origin, a.First)
	}
	a := k.try(k.s, dedup.NewToken(), long, dedup.Request{Key: key("dead"), Retention: retention,
		Position: dedup.Position{Generation: 1}})
	require.Equal(k, dedup.Dead, a.Verdict, "a copy of an event that was not reopened: the store "+
		"decides, not a header (rule 6)")
}

func deadLongReason(k *kit) {
	for id, why := range map[string]string{
		"ascii":   strings.Repeat("x", 3*dedup.MaxReason),
		"two":     strings.Repeat("é", dedup.MaxReason),
		"four":    "ab" + strings.Repeat("\U0001F600", dedup.MaxReason),
		"exactly": strings.Repeat("y", dedup.MaxReason),
	} {
		_, c := k.get(dedup.Fresh, long, request(id))
		k.complete(dead(c, why))
		got := k.meets(dedup.Dead, request(id)).Reason
		require.LessOrEqual(k, len(got), dedup.MaxReason, id)
		require.Greater(k, len(got), dedup.MaxReason-utf8.UTFMax, id)
		require.True(k, strings.HasPrefix(why, got), "%s: cut, not changed", id)
	}
	for id, why := range map[string]string{"nul": "a\x00b", "broken": "a\xff\xfeb",
		"only nul": "\x00"} {
		_, c := k.get(dedup.Fresh, long, request(id))
		k.complete(dead(c, why)) // the reason must not keep the event alive
		require.NotEmpty(k, k.meets(dedup.Dead, request(id)).Reason, id)
	}
}

// deadOrigin: Only the answer for the dead letter's own record has DeadOrigin, so every other
// copy gets a dead letter too.
func deadOrigin(k *kit) {
	first, copied := request("e").Origin, origin(900, 41)
	copied.Topic = "orders.by.another.way"
	_, c := k.get(dedup.Fresh, long, request("e"))
	k.release(release(c, dedup.Failed))
	r := request("e")
	r.Origin = copied
	a, c := k.get(dedup.Fresh, long, r)
	sameOrigin(k, first, a.First)
	d := dead(c, "poison")
	d.First = copied
	for range 2 {
		k.complete(d)
		sameOrigin(k, copied, k.meets(dedup.Dead, request("e")).First)
	}
}

func releaseUnstarted(k *kit) {
	for i := range 3 {
		a, c := k.get(dedup.Fresh, long, request("never ran"))
		require.Zero(k, a.Failures)
		require.Zero(k, a.Takeovers)
		require.EqualValues(k, i+1, a.Fence)
		k.release(release(c, dedup.Unstarted))
	}
}

func releaseOther(k *kit) {
	for _, o := range []dedup.Outcome{dedup.Undone + 1, 100, math.MaxUint8} {
		r := request(numbered("other", int(o)))
		other := r
		if !k.h.lacks(Fingerprints) {
			r.Fingerprint, other.Fingerprint = dedup.Fingerprint{1}, dedup.Fingerprint{2}
		}
		_, c := k.get(dedup.Fresh, long, r)
		k.release(release(c, o))
		if !k.h.lacks(Fingerprints) {
			k.meets(dedup.Conflict, other)
		}
		a := k.meets(dedup.Fresh, r)
		require.Zero(k, a.Failures, "outcome %d", o)
		require.Zero(k, a.Takeovers, "outcome %d", o)
		require.EqualValues(k, 2, a.Fence, "outcome %d", o)
	}
}

func releaseFailed(k *kit) {
	for i := range 4 {
		a, c := k.get(dedup.Fresh, long, request("fails"))
		require.EqualValues(k, i, a.Failures)
		k.release(release(c, dedup.Failed))
	}
	a, c := k.get(dedup.Fresh, long, request("fails"))
	require.EqualValues(k, 4, a.Failures)
	k.release(release(c, dedup.Unstarted))
	a, _ = k.get(dedup.Fresh, long, request("fails"))
	require.EqualValues(k, 4, a.Failures, "an unstarted run is no failure")
	busy := k.meets(dedup.Busy, request("fails"))
	require.Greater(k, busy.Wait, long/2, "the lease after a release has its whole length")
}

func releaseUnknown(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("cut short"))
	k.release(release(c, dedup.Unknown))
	a := k.meets(dedup.Uncertain, request("cut short"))
	require.Zero(k, a.Failures, "a stop is not the event's fault")
	require.Zero(k, a.Takeovers, "its holder spoke")
	require.EqualValues(k, 2, a.Fence)
	k.meets(dedup.Busy, request("cut short"))
}

func releaseUncertain(k *kit) {
	for _, o := range []dedup.Outcome{dedup.Unstarted, dedup.Failed, dedup.Unknown} {
		id := numbered("doubt", int(o))
		_, c := k.get(dedup.Fresh, long, request(id))
		k.release(release(c, dedup.Unknown))
		for range 3 {
			_, c = k.get(dedup.Uncertain, long, request(id))
			k.release(release(c, o))
		}
		k.meets(dedup.Uncertain, request(id))
	}
	_, heir := k.zombie("taken over")
	k.release(release(heir, dedup.Unstarted))
	a := k.meets(dedup.Uncertain, request("taken over"))
	require.EqualValues(k, 1, a.Takeovers)
}

func releaseUndone(k *kit) {
	printed := func(id string, n byte) dedup.Request {
		r := request(id)
		r.Fingerprint = dedup.Fingerprint{n}
		return r
	}
	_, c := k.get(dedup.Fresh, long, printed("mended", 1))
	back := []dedup.Release{release(c, dedup.Undone)}
	require.NoError(k, k.s.Release(k.ctx, back))
	k.harmless(k.s.Release(k.ctx, back))
	a, c := k.get(dedup.Fresh, long, printed("mended", 2))
	require.Zero(k, a.Failures)
	require.EqualValues(k, 2, a.Fence, "the fence never goes back")
	k.meets(dedup.Conflict, printed("mended", 1))
	k.release(release(c, dedup.Failed))
	k.meets(dedup.Conflict, printed("mended", 1))

	_, c = k.get(dedup.Fresh, long, printed("doubtful", 1))
	k.release(release(c, dedup.Unknown))
	_, c = k.get(dedup.Uncertain, long, printed("doubtful", 1))
	k.release(release(c, dedup.Undone))
	k.meets(dedup.Conflict, printed("doubtful", 2))
	k.meets(dedup.Uncertain, printed("doubtful", 1))
}

func releaseRepeated(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("back"))
	back := []dedup.Release{release(c, dedup.Failed)}
	require.NoError(k, k.s.Release(k.ctx, back))
	k.harmless(k.s.Release(k.ctx, back))
	k.harmless(k.peer.Release(k.ctx, back))
	a, next := k.get(dedup.Fresh, long, request("back"))
	require.EqualValues(k, 1, a.Failures, "one failure, even if it is reported twice")
	require.EqualValues(k, 2, a.Fence)

	k.harmless(k.s.Release(k.ctx, back)) // a client library repeats it now
	k.meets(dedup.Busy, request("back"))
	k.renew(long, next)
	k.complete(completion(next))
	k.harmless(k.s.Release(k.ctx, back))
	k.meets(dedup.Done, request("back"))
}

func releaseNever(k *kit) {
	ghost := func(id string) []dedup.Release {
		return []dedup.Release{release(request(id).Held(dedup.NewToken(), dedup.Answer{Fence: 1}),
			dedup.Unknown)}
	}
	k.harmless(k.s.Release(k.ctx, ghost("nothing")))
	a := k.meets(dedup.Fresh, request("nothing"))
	require.EqualValues(k, 1, a.Fence)
	require.Zero(k, a.Failures)

	_, c := k.get(dedup.Fresh, long, request("held"))
	k.harmless(k.s.Release(k.ctx, ghost("held")))
	k.meets(dedup.Busy, request("held"))
	k.complete(completion(c))
	k.harmless(k.s.Release(k.ctx, ghost("held")))
	k.meets(dedup.Done, request("held"))

	_, c = k.get(dedup.Fresh, long, request("open"))
	k.release(release(c, dedup.Failed))
	k.harmless(k.s.Release(k.ctx, ghost("open")))
	a = k.meets(dedup.Fresh, request("open"))
	require.EqualValues(k, 1, a.Failures)
}

func releaseMixed(k *kit) {
	late, _ := k.zombie("b")
	_, a := k.get(dedup.Fresh, long, request("a"))
	_, c := k.get(dedup.Fresh, long, request("c"))
	_, d := k.get(dedup.Fresh, long, request("d"))
	k.lost(k.s.Release(k.ctx, []dedup.Release{
		release(a, dedup.Unstarted), release(late, dedup.Failed), release(c, dedup.Unknown),
		release(d, dedup.Failed),
	}), 1)
	k.meets(dedup.Fresh, request("a"))
	k.meets(dedup.Busy, request("b"))
	k.meets(dedup.Uncertain, request("c"))
	require.EqualValues(k, 1, k.meets(dedup.Fresh, request("d")).Failures)
}

func releaseFence(k *kit) {
	for i, o := range []dedup.Outcome{dedup.Unstarted, dedup.Failed, dedup.Unknown,
		dedup.Unstarted} {
		a, c := k.ask(long, request("fenced"))
		require.True(k, a.Verdict.Held())
		require.EqualValues(k, i+1, a.Fence)
		k.release(release(c, o))
	}
	for i := range 3 {
		r := request("fenced")
		r.Position.Retry = uint32(i + 1)
		a, c := k.ask(long, r)
		require.True(k, a.Verdict.Held())
		require.EqualValues(k, i+5, a.Fence, "a later attempt has a higher fence")
		k.complete(moved(c, uint32(i+2)))
	}
}

func releaseRetention(k *kit) {
	_, c := k.get(dedup.Fresh, k.lease, request("waits"))
	k.release(release(c, dedup.Unknown))
	_, c = k.get(dedup.Uncertain, k.lease, request("waits"))
	k.release(release(c, dedup.Failed))
	k.outlast()
	k.outlast()
	a := k.meets(dedup.Uncertain, request("waits"))
	require.EqualValues(k, 1, a.Failures)
	require.Zero(k, a.Takeovers)
}
