package storetest

import (
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// listTests cover the search for records by their contents.
var listTests = []testCase{
	{name: "list: by scope, type and state", needs: Lists, run: listFilter},
	{name: "list: least recently changed first, no more than asked for", needs: Lists,
		run: listOrder},
	{name: "list: claims with an expired lease", needs: Lists, run: listStuck},
	{name: "find: an ID of every tenant and type, in one scope or all", needs: Lists, run: findID},
}

func (k *kit) lister() dedup.Lister {
	k.Helper()
	l, ok := k.s.(dedup.Lister)
	require.True(k, ok, "%T has no List, and Missing of the harness does not list it", k.s)
	return l
}

// list returns the IDs of the records that f chooses.
func (k *kit) list(f dedup.Filter, limit int) (ids []string) {
	k.Helper()
	ids = []string{}
	require.NoError(k, k.lister().List(k.ctx, f, limit, func(r dedup.Record) bool {
		if !r.Tx {
			ids = append(ids, r.Key.ID)
		}
		return true
	}))
	return ids
}

func listFilter(k *kit) {
	for id, s := range k.everyState() {
		require.Equal(k, []string{id}, k.list(dedup.Filter{States: []dedup.State{s}}, 0))
		require.NoError(k, k.lister().List(k.ctx, dedup.Filter{States: []dedup.State{s}}, 0,
			func(r dedup.Record) bool {
				seen := k.sees(s, id)
				require.Equal(k, seen, withLease(r, seen))
				return true
			}))
	}
	other := request("elsewhere")
	other.Key.Scope, other.Key.Type = "billing", "order.paid"
	_, c := k.get(dedup.Fresh, long, other)
	k.complete(completion(c))
	require.ElementsMatch(k, []string{"claimed", "released", "done", "dead", "moved", "elsewhere"},
		k.list(dedup.Filter{}, 0))
	require.Equal(k, []string{"elsewhere"}, k.list(dedup.Filter{Scope: "billing"}, 0))
	require.Equal(k, []string{"elsewhere"}, k.list(dedup.Filter{Type: "order.paid"}, 0))
	require.Empty(k, k.list(dedup.Filter{Scope: "billing", Type: "order.created"}, 0))
	both := []dedup.State{dedup.Finished, dedup.GivenUp}
	require.ElementsMatch(k, []string{"done", "dead"},
		k.list(dedup.Filter{Scope: "orders", States: both}, 0))
	require.Empty(k, k.list(dedup.Filter{Scope: "nobody's"}, 0))
}

// withLease is r with the lease of o, which runs on between two looks.
func withLease(r, o dedup.Record) dedup.Record {
	r.Lease = o.Lease
	return r
}

func listOrder(k *kit) {
	var want []string
	for i := range 12 {
		id := numbered("e", (i*5)%12)
		k.get(dedup.Fresh, long, request(id))
		want = append(want, id)
		k.h.Sleep(2 * time.Millisecond)
	}
	require.Equal(k, want, k.list(dedup.Filter{}, 0))
	require.Equal(k, want[:5], k.list(dedup.Filter{}, 5))
	require.NoError(k, k.s.Complete(k.ctx, nil))
	k.discard(want[0], "changed last")
	claims := dedup.Filter{States: []dedup.State{dedup.Claimed, dedup.GivenUp}}
	require.Equal(k, append(slices.Clone(want[1:]), want[0]), k.list(claims, 0))
	seen := 0
	require.NoError(k, k.lister().List(k.ctx, dedup.Filter{}, 0,
		func(dedup.Record) bool { seen++; return seen < 3 }))
	require.Equal(k, 3, seen, "yield ends the list")
}

func listStuck(k *kit) {
	k.get(dedup.Fresh, k.lease, request("stuck"))
	k.get(dedup.Fresh, long, request("alive"))
	k.killed(request("dead"))
	k.outlast()
	require.Equal(k, []string{"stuck"}, k.list(dedup.Filter{Stuck: true}, 0))
	require.ElementsMatch(k, []string{"stuck", "alive", "dead"},
		k.list(dedup.Filter{Unchanged: k.lease}, 0))
	for i := range 10 { // a machine that stands still for a lease makes a new record an old one
		began, id := time.Now(), numbered("new", i)
		k.get(dedup.Fresh, long, request(id))
		old := k.list(dedup.Filter{Unchanged: k.lease}, 0)
		if time.Since(began) < k.lease {
			require.NotContains(k, old, id)
			break
		}
		require.Less(k, i, 9, "each look took longer than a lease")
	}
	require.Empty(k, k.list(dedup.Filter{Stuck: true, Unchanged: time.Hour}, 0))
}

func findID(k *kit) {
	tenant, scope, typ := key("e"), key("e"), key("e")
	tenant.Tenant, scope.Scope, typ.Type = "umbrella", "billing", "order.paid"
	for _, of := range []dedup.Key{key("e"), tenant, scope, typ, key("E"), key("ee")} {
		k.get(dedup.Fresh, long, dedup.Request{Key: of, Retention: retention})
	}
	find := func(scope, id string) (keys []dedup.Key) {
		k.Helper()
		all, err := k.lister().Find(k.ctx, scope, id)
		require.NoError(k, err)
		for _, r := range all {
			require.Equal(k, dedup.Claimed, r.State)
			keys = append(keys, r.Key)
		}
		return keys
	}
	require.ElementsMatch(k, []dedup.Key{key("e"), tenant, typ}, find("orders", "e"))
	require.ElementsMatch(k, []dedup.Key{key("e"), tenant, scope, typ}, find("", "e"))
	require.Empty(k, find("orders", "unknown"))
	require.Empty(k, find("nobody's", "e"))
	// The ID is found once if both tables of a store may have its kind.
	require.NoError(k, k.operator().Discard(k.ctx, key("skipped"), retention, "lost"))
	skipped, err := k.lister().Find(k.ctx, "orders", "skipped")
	require.NoError(k, err)
	inspected, err := k.operator().Inspect(k.ctx, key("skipped"))
	require.NoError(k, err)
	require.Equal(k, inspected, skipped)
	require.ElementsMatch(k, []dedup.Key{key("e"), tenant, typ}, find("orders", "e"))
}
