package dynamostore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/stretchr/testify/require"
)

// H-04: 50 callers on two hosts ask for 100 keys at once. The function runs once for each key and all are given its result.
func TestDoOnce(t *testing.T) {
	const callers, keys = 50, 100
	client, table := newTable(t)
	var guards [2]*dedup.Guard
	for i := range guards {
		guards[i] = dedup.NewGuard(dynamostore.New(client, table),
			dedup.GuardConfig{Wait: time.Minute, Poll: 20 * time.Millisecond, Lease: time.Minute})
		t.Cleanup(guards[i].Close)
	}
	var runs [keys]atomic.Int64
	var got [callers][keys]string
	var errs [callers]error
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range keys {
				k := (i + c*7) % keys // each caller begins elsewhere and meets the others
				key := dedup.Key{Scope: "do", ID: fmt.Sprint(k)}
				r, _, err := dedup.Do(t.Context(), guards[c%2], key, func(context.Context) (string, error) {
					return fmt.Sprintf("key %d, run %d", k, runs[k].Add(1)), nil
				})
				if err != nil {
					errs[c] = err
					return
				}
				got[c][k] = r
			}
		})
	}
	wg.Wait()
	for c := range callers {
		require.NoError(t, errs[c])
		for k := range keys {
			require.Equal(t, fmt.Sprintf("key %d, run 1", k), got[c][k], "caller %d", c)
		}
	}
	for k := range keys {
		require.EqualValues(t, 1, runs[k].Load(), "key %d", k)
	}
}
