package lane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
)

// rule 4: a lane takes up the events that wait in the store for its partition, also those of an
// earlier owner.
func TestPartition_RunsDeferredEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		r := idem.NewRouter()
		idem.On(r, "paid", func(_ context.Context, e idem.Event[struct{}]) error {
			if e.Attempt == 1 && e.ID == "a1" {
				return errors.New("boom")
			}
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e.ID)
			return nil
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.KeyOrdered(time.Minute))
		store := memstore.New()
		open := func() (*idem.Processor, *Partition) {
			p, err := idem.NewProcessor(r,
				idem.Config{Store: store, Scope: "g", BusyWait: idem.Forever})
			require.NoError(t, err)
			p.Assigned("t", 3)
			return p, New(p, "t", 3, Config{Lanes: 3})
		}
		p, l := open()
		for i, id := range []string{"a1", "a2", "b1"} {
			m := message(int64(i))
			m.Key, m.Value = []byte(id[:1]), fmt.Appendf(nil, `{"event_id":%q,"type":"paid"}`, id)
			require.NoError(t, l.Push(t.Context(), m))
		}
		synctest.Wait()
		next, _ := l.Watermark()
		require.EqualValues(t, 3, next, "what waits holds nothing up")
		require.NoError(t, closeLane(t, l, nil))
		require.NoError(t, p.Close())
		require.Equal(t, []string{"b1"}, seen)

		p, l = open()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.NoError(t, closeLane(t, l, nil))
		require.NoError(t, p.Close())
		require.Equal(t, []string{"b1", "a1", "a2"}, seen)
		require.NoError(t, l.Err())
	})
}
