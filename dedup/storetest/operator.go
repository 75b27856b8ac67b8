package storetest

import (
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// inspectTests cover the inspection of the records of a store.
var inspectTests = []testCase{
	{name: "inspect: every state is distinguished", run: inspectStates},
	{name: "inspect: a released copy of a later attempt waits or is released",
		run: inspectLaterCopy},
	{name: "inspect: counters", run: inspectCounts},
	{name: "inspect: how copies are compared", needs: Fingerprints, run: inspectContent},
	{name: "conflicts: copies with another content are noted beside the record",
		needs: Fingerprints, run: noteConflicts},
	{name: "inspect: the lease that is left, and that it is over", run: inspectLease},
	{name: "inspect: times are the server's", run: inspectTimes},
	{name: "inspect: in the order of the keys, without those that are not known",
		run: inspectOrder},
	{name: "inspect: many keys in one call", run: inspectMany},
	{name: "inspect: looking changes nothing", run: inspectChangesNothing},
	{name: "inspect: looking keeps no claim alive", run: inspectKeepsNothing},
	{name: "inspect: a dead record has the origin of the dead-lettered delivery (rule 6)",
		run: inspectDeadOrigin},
}

func (k *kit) operator() dedup.Operator {
	k.Helper()
	return operatorOf(k, k.s)
}

func operatorOf(k *kit, s dedup.Store) dedup.Operator {
	k.Helper()
	o, ok := s.(dedup.Operator)
	require.True(k, ok, "%T is no dedup.Operator", s)
	return o
}

// claims are the records of claims under keys.
func (k *kit) claims(keys ...dedup.Key) []dedup.Record {
	k.Helper()
	all, err := k.operator().Inspect(k.ctx, keys...)
	require.NoError(k, err)
	return slices.DeleteFunc(all, func(r dedup.Record) bool { return r.Tx })
}

// sees is the one record of a claim under the key of id, which must be in state s.
func (k *kit) sees(s dedup.State, id string) dedup.Record {
	k.Helper()
	all := k.claims(key(id))
	require.Len(k, all, 1, "%s", id)
	require.Equal(k, key(id), all[0].Key)
	require.Equal(k, s.String(), all[0].State.String(), "%s", id)
	return all[0]
}

func (k *kit) seesNothing(id string) {
	k.Helper()
	all, err := k.operator().Inspect(k.ctx, key(id))
	require.NoError(k, err)
	require.Empty(k, all, "%s", id)
}

// everyState makes a record in each state except that of a reopened one, and returns the states
// by ID.
func (k *kit) everyState() map[string]dedup.State {
	k.Helper()
	return k.everyStateOf(request)
}

// everyStateOf is everyState for the events that of makes.
func (k *kit) everyStateOf(of func(id string) dedup.Request) map[string]dedup.State {
	k.Helper()
	claimed, released, done, killed, waits := of("claimed"), of("released"), of("done"), of("dead"),
		of("moved")
	k.get(dedup.Fresh, long, claimed)
	_, c := k.get(dedup.Fresh, long, released)
	k.release(release(c, dedup.Unstarted))
	_, c = k.get(dedup.Fresh, long, done)
	k.complete(completion(c))
	k.killed(killed)
	_, c = k.get(dedup.Fresh, long, waits)
	k.complete(moved(c, 3))
	return map[string]dedup.State{claimed.Key.ID: dedup.Claimed, released.Key.ID: dedup.Released,
		done.Key.ID:   dedup.Finished,
		killed.Key.ID: dedup.GivenUp, waits.Key.ID: dedup.Waiting}
}

func inspectStates(k *kit) {
	k.seesNothing("claimed")
	for id, s := range k.everyState() {
		r := k.sees(s, id)
		sameOrigin(k, request(id).Origin, r.First)
		require.False(k, r.Discarded(), id)
		require.Equal(k, id == "done", r.Settled(), id)
		require.Equal(k, id == "dead", r.Reason != "", id)
		require.EqualValues(k, 1, r.Fence, id)
	}
	require.Equal(k, "poison", k.sees(dedup.GivenUp, "dead").Reason)
	require.Equal(k, dedup.Position{Retry: 3}, k.sees(dedup.Waiting, "moved").Position)
	if k.h.lacks(Reopen) {
		return
	}
	p := k.reopen("dead")
	r := k.sees(dedup.Waiting, "dead")
	require.Equal(k, p, r.Position)
	require.Empty(k, r.Reason)
	k.get(dedup.Fresh, long, at("dead", p.Generation, p.Retry))
	require.Equal(k, p, k.sees(dedup.Claimed, "dead").Position)
}

func inspectLaterCopy(k *kit) {
	_, c := k.get(dedup.Fresh, long, at("e", 0, 2))
	k.release(release(c, dedup.Failed))
	all := k.claims(key("e"))
	require.Len(k, all, 1)
	require.Contains(k, []dedup.State{dedup.Released, dedup.Waiting}, all[0].State)
	require.Equal(k, dedup.Position{Retry: 2}, all[0].Position)
}

func inspectContent(k *kit) {
	k.get(dedup.Fresh, long, request("none"))
	require.Equal(k, dedup.NotCompared.String(), k.sees(dedup.Claimed, "none").Compared.String())
	for id, want := range map[string]dedup.Comparison{"checksum": dedup.ByChecksum,
		"keyed hash": dedup.ByFingerprint} {
		_, c := k.get(dedup.Fresh, long, printed(id, prints[id][0]))
		k.complete(completion(c))
		require.Equal(k, want.String(), k.sees(dedup.Finished, id).Compared.String())
	}
}

// noteConflicts is for stores that are a [dedup.ConflictNoter].
func noteConflicts(k *kit) {
	s, ok := k.s.(dedup.ConflictNoter)
	if !ok {
		k.Skip("not a dedup.ConflictNoter")
	}
	noted := func(id string, limit int) []dedup.Origin {
		k.Helper()
		found, err := s.Conflicts(k.ctx, key(id), limit)
		require.NoError(k, err)
		return found
	}
	first := printed("e", prints["checksum"][0])
	_, c := k.get(dedup.Fresh, long, first)
	k.complete(completion(c))
	k.get(dedup.Fresh, long, request("other"))
	require.Empty(k, noted("e", 10))
	was := k.sees(dedup.Finished, "e")
	copies := []dedup.Origin{{Topic: "b", Partition: 2, Offset: 9},
		{Topic: "b", Partition: 2, Offset: 3}, {Topic: "a", Offset: 7}}
	for _, o := range slices.Concat(copies, copies) {
		withTime := o
		withTime.Time = time.Unix(1, 0)
		require.NoError(k, s.NoteConflict(k.ctx, key("e"), withTime))
	}
	require.Equal(k, copies, noted("e", 10))
	require.Equal(k, copies[:2], noted("e", 2))
	require.Empty(k, noted("other", 10))
	require.Equal(k, was, k.sees(dedup.Finished, "e"), "the record is as it was")
	k.meets(dedup.Done, first)
	require.NoError(k, s.NoteConflict(k.ctx, key("unknown"), copies[0]))
	k.seesNothing("unknown")
	k.get(dedup.Fresh, long, request("unknown"))
	require.NoError(k, k.operator().Forget(k.ctx, key("e")))
	require.Empty(k, noted("e", 10))
	require.ErrorIs(k, s.NoteConflict(k.ctx, dedup.Key{}, copies[0]), dedup.ErrKey)
	_, err := s.Conflicts(k.ctx, dedup.Key{}, 1)
	require.ErrorIs(k, err, dedup.ErrKey)
}

func inspectCounts(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("e"))
	k.release(release(c, dedup.Failed))
	require.False(k, k.sees(dedup.Released, "e").Doubtful)
	_, c = k.get(dedup.Fresh, long, request("e"))
	k.release(release(c, dedup.Unknown))
	r := k.sees(dedup.Released, "e")
	require.True(k, r.Doubtful)
	require.EqualValues(k, 1, r.Failures)
	k.get(dedup.Uncertain, k.lease, request("e"))
	k.outlast()
	k.get(dedup.Uncertain, long, request("e"))
	r = k.sees(dedup.Claimed, "e")
	require.True(k, r.Doubtful)
	require.EqualValues(k, 4, r.Fence)
	require.EqualValues(k, 1, r.Failures)
	require.EqualValues(k, 1, r.Takeovers)
}

func inspectLease(k *kit) {
	k.get(dedup.Fresh, k.lease, request("short"))
	k.get(dedup.Fresh, long, request("long"))
	k.outlast()
	require.LessOrEqual(k, k.sees(dedup.Claimed, "short").Lease, time.Duration(0))
	left := k.sees(dedup.Claimed, "long").Lease
	require.Positive(k, left)
	require.LessOrEqual(k, left, long)
}

// inspectTimes allows a minute for two clocks that differ. The time of an event has no influence
// on the time for which the event is remembered.
func inspectTimes(k *kit) {
	between := func(from, at, to time.Time, what string) {
		k.Helper()
		if !at.IsZero() {
			require.WithinRange(k, at, from.Add(-time.Minute), to.Add(time.Minute), what)
		}
	}
	began := time.Now()
	states := k.everyState()
	for age := range ages {
		of := aged(age)
		maps.Copy(states, k.everyStateOf(of))
		_, kept := k.get(dedup.Fresh, k.lease, of("renewed"))
		k.renew(long, kept)
		k.get(dedup.Fresh, k.lease, of("taken over"))
		_, back := k.get(dedup.Fresh, long, of("claimed again"))
		k.release(release(back, dedup.Failed))
		k.get(dedup.Fresh, long, of("claimed again"))
		k.outlast()
		k.get(dedup.Uncertain, long, of("taken over"))
		for _, r := range []dedup.Request{of("renewed"), of("taken over"), of("claimed again")} {
			states[r.Key.ID] = dedup.Claimed
		}
		known, given := of("imported"), of("discarded")
		_, err := k.operator().Import(k.ctx, []dedup.Imported{{Key: known.Key, Origin: known.Origin,
			Retention: retention}})
		require.NoError(k, err)
		_, c := k.get(dedup.Fresh, long, given)
		k.release(release(c, dedup.Failed))
		require.NoError(k, k.operator().Discard(k.ctx, given.Key, retention, "an old one"))
		states[known.Key.ID], states[given.Key.ID] = dedup.Finished, dedup.GivenUp
		if !k.h.lacks(Reopen) {
			again := of("reopened")
			k.killed(again)
			k.reopen(again.Key.ID)
			states[again.Key.ID] = dedup.Waiting
		}
	}
	for id, s := range states {
		r := k.sees(s, id)
		now := time.Now()
		between(began, r.Created, now, id+": created")
		between(began, r.Changed, now, id+": changed")
		between(began.Add(retention), r.Expires, now.Add(long+retention), id+": expires")
	}
}

func inspectOrder(k *kit) {
	for _, id := range []string{"a", "b", "c"} {
		k.get(dedup.Fresh, long, request(id))
	}
	other := key("a")
	other.Tenant = "umbrella"
	all := k.claims(key("c"), other, key("a"), key("unknown"), key("b"))
	require.Len(k, all, 3)
	for i, id := range []string{"c", "a", "b"} {
		require.Equal(k, key(id), all[i].Key)
	}
	none, err := k.operator().Inspect(k.ctx)
	require.NoError(k, err)
	require.Empty(k, none)
}

func inspectMany(k *kit) {
	const n = 1200
	keys, events := make([]dedup.Key, n), make([]dedup.Imported, n)
	for i := range n {
		keys[i] = key(numbered("many", i))
		events[i] = dedup.Imported{Key: keys[i], Retention: retention}
	}
	added, err := k.operator().Import(k.ctx, events)
	require.NoError(k, err)
	require.Equal(k, n, added)
	slices.Reverse(keys)
	all := k.claims(keys...)
	require.Len(k, all, n)
	for i := range all {
		require.Equal(k, keys[i], all[i].Key)
		require.Equal(k, dedup.Finished, all[i].State)
	}
}

func inspectChangesNothing(k *kit) {
	states := k.everyState()
	_, c := k.get(dedup.Fresh, k.lease, request("overdue"))
	k.outlast()
	for range 3 {
		for id, s := range states {
			k.sees(s, id)
		}
		k.sees(dedup.Claimed, "overdue")
		k.seesNothing("unknown")
	}
	k.renew(long, c) // no other claim took over
	k.meets(dedup.Busy, request("claimed"))
	k.meets(dedup.Fresh, request("released"))
	k.meets(dedup.Done, request("done"))
	k.meets(dedup.Dead, request("dead"))
	k.meets(dedup.Rescheduled, request("moved"))
	k.meets(dedup.Fresh, request("unknown"))
}

func inspectKeepsNothing(k *kit) {
	k.get(dedup.Fresh, k.lease, request("e"))
	for range 8 {
		k.h.Sleep(k.lease / 4)
		k.sees(dedup.Claimed, "e")
		if !k.h.lacks(Lists) {
			require.Equal(k, []string{"e"}, k.list(dedup.Filter{}, 0))
		}
	}
	require.LessOrEqual(k, k.sees(dedup.Claimed, "e").Lease, time.Duration(0))
	a := k.meets(dedup.Uncertain, request("e"))
	require.EqualValues(k, 1, a.Takeovers)
}

// inspectDeadOrigin: The first delivery made the record, and the second delivery became the dead
// record of the event.
func inspectDeadOrigin(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("e"))
	k.release(release(c, dedup.Failed))
	_, c = k.get(dedup.Fresh, long, request("e"))
	c.First = origin(4, 44)
	k.complete(dead(c, "poison"))
	sameOrigin(k, origin(4, 44), k.sees(dedup.GivenUp, "e").First)
	sameOrigin(k, origin(4, 44), k.meets(dedup.Dead, request("e")).First)
}
