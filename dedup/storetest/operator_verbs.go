package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// verbTests cover the operations of a person on single events.
var verbTests = []testCase{
	{name: "forget: in every state, copies are Fresh again", run: forgetAll},
	{name: "forget: another fingerprint is no conflict any longer (rule 17)", needs: Fingerprints,
		run: forgetFingerprint},
	{name: "forget: not from under a live claim", run: forgetHeld},
	{name: "forget: an expired claim is lost", run: forgetOverdue},
	{name: "forget: repeated, or for an unknown key, finds no record", run: forgetNothing},
	{name: "discard: in every state, copies are Dead", run: discardAll},
	{name: "discard: an unknown event is given up too", run: discardUnknown},
	{name: "discard: takes the claim from its holder", run: discardHeld},
	{name: "discard: refuses the late success of a claim released as Unknown", needs: Results,
		run: discardReleased},
	{name: "discard: a handled event is refused", run: discardDone},
	{name: "discard: the reason is cut and any bytes will do (P-22)", run: discardReason},
	{name: "discard: is kept for as long as asked for", run: discardRetention},
	{name: "discard: may be reopened (T-02)", needs: Reopen, run: discardReopen},
	{name: "import: is Done from then on", run: importDone},
	{name: "import: known events stay as they are", run: importKnown},
	{name: "import: in any order, several times, and by several at once", run: importRepeated},
	{name: "operator: keys and retentions that no store can keep are refused", run: verbMistakes},
	{name: "operator: a store that is down is ErrUnavailable (R-19)", needs: Outage,
		run: verbsDown},
	{name: "operator: a cancelled context is an error", run: verbsCancelled},
}

func (k *kit) forget(id string) {
	k.Helper()
	require.NoError(k, k.operator().Forget(k.ctx, key(id)), "%s", id)
}

func (k *kit) discard(id, why string) {
	k.Helper()
	require.NoError(k, k.operator().Discard(k.ctx, key(id), retention, why), "%s", id)
}

var anyPosition = []dedup.Position{{}, {Retry: 2}, {Retry: 9}, {Generation: 1},
	{Generation: 2, Retry: 7}}

func forgetAll(k *kit) {
	for id := range k.everyState() {
		if id == "claimed" {
			continue
		}
		k.forget(id)
		k.seesNothing(id)
		for _, p := range anyPosition {
			a, c := k.get(dedup.Fresh, long, at(id, p.Generation, p.Retry))
			require.Zero(k, a.Failures)
			k.complete(moved(c, p.Retry+1))
			k.forget(id)
		}
	}
	k.meets(dedup.Busy, request("claimed"))
	k.discard("given up", "by mistake")
	k.forget("given up")
	k.meets(dedup.Fresh, request("given up"))
}

func forgetFingerprint(k *kit) {
	r := request("e")
	r.Fingerprint = dedup.Fingerprint{1}
	_, c := k.get(dedup.Fresh, long, r)
	k.complete(completion(c))
	r.Fingerprint = dedup.Fingerprint{2}
	k.meets(dedup.Conflict, r)
	k.forget("e")
	k.meets(dedup.Fresh, r)
}

func forgetHeld(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("e"))
	for range 2 {
		require.ErrorIs(k, k.operator().Forget(k.ctx, key("e")), dedup.ErrHeld)
	}
	k.renew(long, c)
	k.meets(dedup.Busy, request("e"))
	k.release(release(c, dedup.Failed))
	k.forget("e")
}

func forgetOverdue(k *kit) {
	_, late := k.get(dedup.Fresh, k.lease, request("e"))
	k.outlast()
	k.forget("e")
	k.lost(k.s.Renew(k.ctx, long, []dedup.Claim{late}), 0)
	k.seesNothing("e") // the holder of a lost claim does not restore the record
	a := k.meets(dedup.Fresh, request("e"))
	require.Zero(k, a.Takeovers)
	k.lost(k.s.Renew(k.ctx, long, []dedup.Claim{late}), 0)
}

func forgetNothing(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("e"))
	k.complete(completion(c))
	k.forget("e")
	for _, id := range []string{"e", "unknown"} {
		err := k.operator().Forget(k.ctx, key(id))
		require.ErrorIs(k, err, dedup.ErrNotFound)
		require.NotErrorIs(k, err, dedup.ErrUnavailable)
	}
}

// discarded requires that every copy of the event gets Dead and the reason.
func (k *kit) discarded(id, why string) {
	k.Helper()
	r := k.sees(dedup.GivenUp, id)
	require.True(k, r.Discarded())
	require.True(k, r.Settled())
	require.Equal(k, dedup.ReasonDiscarded+why, r.Reason)
	for _, p := range anyPosition {
		a := k.meets(dedup.Dead, at(id, p.Generation, p.Retry))
		require.Equal(k, dedup.ReasonDiscarded+why, a.Reason)
	}
}

func discardAll(k *kit) {
	for id := range k.everyState() {
		if id == "done" {
			continue
		}
		first := k.claims(key(id))[0].First
		for range 2 {
			k.discard(id, "order of a test")
			k.discarded(id, "order of a test")
		}
		sameOrigin(k, first, k.sees(dedup.GivenUp, id).First)
		k.discard(id, "a better reason")
		k.discarded(id, "a better reason")
	}
	if !k.h.lacks(Reopen) {
		k.killed(request("reopened"))
		k.reopen("reopened")
		k.discard("reopened", "after all")
		k.discarded("reopened", "after all")
	}
}

func discardUnknown(k *kit) {
	for range 2 {
		k.discard("unknown", "known to be poison")
	}
	k.discarded("unknown", "known to be poison")
}

func discardHeld(k *kit) {
	hold := func(id string) dedup.Claim {
		_, c := k.get(dedup.Fresh, long, request(id))
		k.discard(id, "enough")
		return c
	}
	c := hold("e")
	k.lost(k.s.Renew(k.ctx, long, []dedup.Claim{c}), 0)
	k.lost(k.s.Release(k.ctx, []dedup.Release{release(c, dedup.Failed)}), 0)
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{dead(c, "its own reason")}), 0)
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{moved(c, 1)}), 0)
	k.discarded("e", "enough")
	if !k.h.lacks(Results) {
		late := completion(c)
		late.Result = dedup.Result{Schema: 1, Data: []byte("late")}
		k.lost(k.s.Complete(k.ctx, []dedup.Completion{late}), 0)
		k.discarded("e", "enough")
	}
	c = hold("done")
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{completion(c)}), 0)
	after := k.try(k.s, dedup.NewToken(), long, request("done")).Verdict
	require.Contains(k, []dedup.Verdict{dedup.Dead, dedup.Done}, after,
		"that it was handled may be kept (rule 29)")
}

func discardReleased(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("e"))
	k.release(release(c, dedup.Unknown))
	k.discard("e", "enough")
	late := completion(c)
	late.Result = dedup.Result{Schema: 1, Data: []byte("late")}
	k.lost(k.s.Complete(k.ctx, []dedup.Completion{late}), 0)
	k.discarded("e", "enough")
}

func discardDone(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("e"))
	k.complete(completion(c))
	for range 2 {
		require.ErrorIs(k, k.operator().Discard(k.ctx, key("e"), retention, "too late"),
			dedup.ErrSettled)
	}
	k.sees(dedup.Finished, "e")
	k.meets(dedup.Done, request("e"))
}

func discardReason(k *kit) {
	for id, why := range map[string]string{
		"empty": "", "long": strings.Repeat("x", 3*dedup.MaxReason),
		"wide": strings.Repeat("é", dedup.MaxReason),
	} {
		k.killed(request(id))
		k.discard(id, why)
		r := k.sees(dedup.GivenUp, id)
		require.True(k, r.Discarded(), id)
		require.LessOrEqual(k, len(r.Reason), dedup.MaxReason, id)
		require.True(k, strings.HasPrefix(dedup.ReasonDiscarded+why, r.Reason),
			"%s: cut, not changed", id)
		require.GreaterOrEqual(k, len(r.Reason), min(dedup.MaxReason-4,
			len(dedup.ReasonDiscarded+why)), id)
	}
	k.discard("bytes", "a\x00b\xffc")
	r := k.sees(dedup.GivenUp, "bytes")
	require.True(k, r.Discarded())
	require.True(k, strings.HasSuffix(r.Reason, "c"), "%q", r.Reason)
}

func discardRetention(k *kit) {
	brief := request("brief")
	brief.Retention, brief.AnyAge = k.lease, true
	_, c := k.get(dedup.Fresh, k.lease, brief)
	d := dead(c, "poison")
	d.Retention = k.lease
	k.complete(d)
	k.discard("brief", "for long")
	k.discard("new", "for long")
	k.outlast()
	k.outlast()
	k.discarded("brief", "for long")
	k.discarded("new", "for long")
}

func discardReopen(k *kit) {
	k.discard("unknown", "by mistake")
	k.killed(request("dead"))
	k.discard("dead", "by mistake")
	k.failing("failed often")
	k.discard("failed often", "by mistake")
	for _, id := range []string{"unknown", "dead", "failed often"} {
		before := k.sees(dedup.GivenUp, id).Fence
		require.Equal(k, dedup.Position{Generation: 1}, k.reopen(id))
		k.meets(dedup.Rescheduled, request(id))
		k.complete(completion(k.startsAnew(id, before+1)))
		k.meets(dedup.Done, request(id))
	}
}

func importDone(k *kit) {
	events := []dedup.Imported{
		{Key: key("b"), Origin: origin(1, 2), Retention: retention},
		{Key: key("a"), Retention: retention},
	}
	added, err := k.operator().Import(k.ctx, events)
	require.NoError(k, err)
	require.Equal(k, 2, added)
	for _, id := range []string{"a", "b"} {
		require.True(k, k.sees(dedup.Finished, id).Settled())
		for _, p := range anyPosition {
			require.True(k, k.meets(dedup.Done, at(id, p.Generation, p.Retry)).Result.IsZero())
		}
	}
	sameOrigin(k, origin(1, 2), k.sees(dedup.Finished, "b").First)
	sameOrigin(k, origin(1, 2), k.meets(dedup.Done, request("b")).First)
	k.meets(dedup.Fresh, request("c"))
	r := request("a")
	r.Fingerprint = dedup.Fingerprint{1}
	k.meets(dedup.Done, r)
	added, err = k.operator().Import(k.ctx, nil)
	require.NoError(k, err)
	require.Zero(k, added)
}

func importKnown(k *kit) {
	states := k.everyState()
	k.discard("given up", "for good")
	states["given up"] = dedup.GivenUp
	events := []dedup.Imported{{Key: key("new"), Retention: retention}}
	for id := range states {
		events = append(events, dedup.Imported{Key: key(id), Origin: origin(9, 9),
			Retention: retention})
	}
	added, err := k.operator().Import(k.ctx, events)
	require.NoError(k, err)
	require.Equal(k, 1, added)
	for id, s := range states {
		r := k.sees(s, id)
		require.False(k, r.First.Same(origin(9, 9)), id)
	}
	k.meets(dedup.Busy, request("claimed"))
	k.meets(dedup.Rescheduled, request("moved"))
	k.discarded("given up", "for good")
}

func importRepeated(k *kit) {
	rng, _ := k.random()
	const n, most = 150, 4
	sums := inParallel(most, func(i int) int {
		var events []dedup.Imported
		for j := range n {
			for range 1 + (i+j)%2 { // some twice in one call
				events = append(events, dedup.Imported{Key: key(numbered("old", j)),
					Origin: origin(1, j), Retention: retention})
			}
		}
		s := k.s
		if i%2 == 1 {
			s = k.peer
		}
		slices.Reverse(events[:i*n/most])
		added, err := s.(dedup.Operator).Import(k.ctx, events)
		if err != nil {
			k.Errorf("import: %v", err)
		}
		return added
	})
	total := 0
	for _, added := range sums {
		total += added
	}
	require.Equal(k, n, total, "each is new once: %v", sums)
	for range 20 {
		j := rng.IntN(n)
		sameOrigin(k, origin(1, j), k.meets(dedup.Done, request(numbered("old", j))).First)
	}
}

func verbMistakes(k *kit) {
	o := k.operator()
	for _, bad := range []dedup.Key{{}, {ID: "a\x00"}, {ID: strings.Repeat("x", dedup.MaxPart+1)}} {
		_, err := o.Inspect(k.ctx, key("a"), bad)
		require.ErrorIs(k, err, dedup.ErrKey)
		require.ErrorIs(k, o.Forget(k.ctx, bad), dedup.ErrKey)
		require.ErrorIs(k, o.Discard(k.ctx, bad, retention, "x"), dedup.ErrKey)
		_, err = o.Import(k.ctx, []dedup.Imported{{Key: key("a"), Retention: retention},
			{Key: bad, Retention: retention}})
		require.ErrorIs(k, err, dedup.ErrKey)
		require.NotErrorIs(k, err, dedup.ErrUnavailable)
	}
	for _, none := range []time.Duration{0, -1} {
		require.Error(k, o.Discard(k.ctx, key("a"), none, "x"))
		_, err := o.Import(k.ctx, []dedup.Imported{{Key: key("a"), Retention: none}})
		require.Error(k, err)
		require.NotErrorIs(k, err, dedup.ErrUnavailable)
	}
	k.seesNothing("a")
}

func verbsDown(k *kit) {
	s := k.h.Down(k)
	o := operatorOf(k, s)
	_, inspect := o.Inspect(k.ctx, key("a"))
	_, imported := o.Import(k.ctx, []dedup.Imported{{Key: key("a"), Retention: retention}})
	errs := map[string]error{
		"inspect": inspect, "import": imported,
		"forget": o.Forget(k.ctx, key("a")), "discard": o.Discard(k.ctx, key("a"), retention, "x"),
	}
	if l, ok := s.(dedup.Lister); ok {
		errs["list"] = l.List(k.ctx, dedup.Filter{}, 0, func(dedup.Record) bool { return true })
		_, errs["find"] = l.Find(k.ctx, "", "a")
	}
	for verb, err := range errs {
		require.ErrorIs(k, err, dedup.ErrUnavailable, verb)
		require.NotErrorIs(k, err, dedup.ErrNotFound, verb)
		require.NotErrorIs(k, err, dedup.ErrHeld, verb)
		require.NotErrorIs(k, err, dedup.ErrSettled, verb)
	}
}

func verbsCancelled(k *kit) {
	k.killed(request("e"))
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	o := k.operator()
	_, err := o.Inspect(ctx, key("e"))
	require.ErrorIs(k, err, context.Canceled)
	require.ErrorIs(k, o.Forget(ctx, key("e")), context.Canceled)
	require.ErrorIs(k, o.Discard(ctx, key("new"), retention, "x"), context.Canceled)
	_, err = o.Import(ctx, []dedup.Imported{{Key: key("new"), Retention: retention}})
	require.ErrorIs(k, err, context.Canceled)
	k.sees(dedup.GivenUp, "e")
	k.seesNothing("new")
}
