// Package findtest holds the test of Find for the databases of a store.
package findtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/internal/sqlrecord"
	"github.com/stretchr/testify/require"
)

const (
	tenants = 1100 // of scope "a", each with one type
	types   = 600  // of one tenant and scope
	scopes  = 600  // of one tenant, each with one type
)

// Walk lets an empty store with thousands of tenants, scopes and types find an ID. The number of
// statements is that of the pages, not that of the kinds. The tables have IDs before the wanted one
// and after it.
func Walk(t *testing.T, s *sqlstore.Store, log *sqlrecord.Log) {
	t.Helper()
	ctx := t.Context()
	var events []dedup.Imported
	var want []dedup.Key
	for i, k := range kinds() {
		for _, id := range []string{"before", "wanted", "zz-after"} {
			if k.ID = id; id == "wanted" {
				if i%3 != 0 {
					continue
				}
				want = append(want, k)
			}
			events = append(events, dedup.Imported{Key: k, Retention: time.Hour})
		}
	}
	_, err := s.Import(ctx, events)
	require.NoError(t, err)
	both := want[7]
	_, err = s.Import(ctx, []dedup.Imported{{Key: both, Retention: time.Hour, Tx: true}})
	require.NoError(t, err)
	want = slices.Insert(want, 7, both)

	for _, scope := range []string{"", "a", "b", "s-003", "unknown"} {
		log.Take()
		records, err := s.Find(ctx, scope, "wanted")
		require.NoError(t, err)
		const pages = (tenants+types+scopes)/500 + 1
		require.LessOrEqual(t, len(log.Take()), 3*(pages+1), "three statements for each page")
		var found []dedup.Key
		for i, r := range records {
			found = append(found, r.Key)
			require.Equal(t, r.Key == both && (i == 0 || records[i-1].Key != both), r.Tx,
				"the record of a transaction comes first")
		}
		of := slices.DeleteFunc(slices.Clone(want), func(k dedup.Key) bool {
			return scope != "" && k.Scope != scope
		})
		require.Equal(t, scope == "unknown", len(of) == 0)
		require.True(t, slices.Equal(of, found), "scope %q: %d of %d keys", scope, len(found),
			len(of))
	}
}

// kinds returns keys without an ID, in order.
func kinds() (all []dedup.Key) {
	for i := range tenants {
		all = append(all, dedup.Key{Tenant: fmt.Sprintf("t-%04d", i), Scope: "a", Type: "x"})
	}
	for i := range types {
		all = append(all, dedup.Key{Tenant: "t-0500", Scope: "b", Type: fmt.Sprintf("y-%03d", i)})
	}
	for i := range scopes {
		all = append(all, dedup.Key{Scope: fmt.Sprintf("s-%03d", i), Type: "x"})
	}
	slices.SortFunc(all, dedup.Key.Compare)
	return all
}
