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

// TestLanes_UnavailableHoldsUpItsLane_Rule30: a handler that is unavailable for one Kafka key holds
// up the lane that runs it, with the events of its call. The other lanes handle all other keys
// meanwhile.
func TestLanes_UnavailableHoldsUpItsLane_Rule30(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		handled, down := map[string]bool{}, true
		r := idem.NewRouter()
		idem.On(r, "paid", func(_ context.Context, e idem.Event[struct{}]) error {
			mu.Lock()
			defer mu.Unlock()
			if down && string(e.Message.Key) == "down" {
				return idem.Unavailable(errors.New("endpoint of one tenant"))
			}
			handled[e.ID] = true
			return nil
		})
		p, err := idem.NewProcessor(r,
			idem.Config{Store: memstore.New(), Scope: "g", BusyWait: idem.Forever})
		require.NoError(t, err)
		p.Assigned("t", 3)
		l := New(p, "t", 3, Config{Lanes: 2})
		const events = 100
		for i := range events {
			m := message(int64(i))
			m.Key, m.Value = fmt.Append(nil, "k", i%10),
				fmt.Appendf(nil, `{"event_id":"e%d","type":"paid"}`, i)
			if i%10 == 0 {
				m.Key = []byte("down")
			}
			require.NoError(t, l.Push(t.Context(), m))
			if i == 0 {
				synctest.Wait() // the first event has its lane to itself
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		require.Len(t, handled, events*9/10, "all but the key that waits")
		down = false
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		next, _ := l.Watermark()
		require.EqualValues(t, events, next)
		require.NoError(t, closeLane(t, l, nil))
		require.NoError(t, p.Close())
	})
}
