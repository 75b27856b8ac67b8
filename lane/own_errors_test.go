package lane

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
)

// A handler has a consumer of its own, and returns the errors of that consumer. These errors neither
// stop the lane nor hold it up.
func TestPartition_StopOfTheHandlersOwn(t *testing.T) {
	for _, own := range []error{
		idem.ErrStopping,
		idem.ErrPartitionLost,
		&idem.WaitError{Err: idem.ErrStopping, After: time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			r := idem.NewRouter()
			idem.On(r, "paid", func(context.Context, idem.Event[struct{}]) error {
				if runs++; runs <= 2 {
					time.Sleep(2 * time.Second)
					return idem.Unavailable(fmt.Errorf("inner: %w", own))
				}
				return nil
			})
			p, err := idem.NewProcessor(r,
				idem.Config{Store: memstore.New(), Scope: "g", BusyWait: 10 * time.Millisecond})
			require.NoError(t, err)
			p.Assigned("t", 3)
			l := New(p, "t", 3, Config{Lanes: 1})
			m := message(0)
			m.Value = []byte(`{"event_id":"e0","type":"paid"}`)
			require.NoError(t, l.Push(t.Context(), m))
			time.Sleep(time.Minute)
			synctest.Wait()
			select {
			case <-l.Done():
				t.Errorf("the lane has ended after %v: %v", own, l.Err())
			default:
			}
			require.Equal(t, 3, runs)
			next, ok := l.Watermark()
			require.True(t, ok)
			require.EqualValues(t, 1, next)
			require.NoError(t, closeLane(t, l, nil))
			require.NoError(t, p.Close())
		})
	}
}

// The end of a lane is not hidden by an error of the handler's own that asks to wait.
func TestPartition_WaitOfTheHandlersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := idem.NewRouter()
		idem.On(r, "paid", func(context.Context, idem.Event[struct{}]) error {
			return &idem.WaitError{Err: idem.ErrStopping, After: time.Hour}
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.RetryTopics(time.Minute))
		p, err := idem.NewProcessor(r,
			idem.Config{Store: memstore.New(), Scope: "g", Group: "g", BusyWait: time.Millisecond})
		require.NoError(t, err)
		p.Assigned("t", 3)
		l := New(p, "t", 3, Config{Lanes: 1})
		m := message(0)
		m.Value = []byte(`{"event_id":"e0","type":"paid"}`)
		require.NoError(t, l.Push(t.Context(), m))
		began := time.Now()
		<-l.Done()
		require.Less(t, time.Since(began), time.Minute)
		require.ErrorIs(t, l.Err(), idem.ErrNoProducer)
		require.NoError(t, closeLane(t, l, nil))
		require.NoError(t, p.Close())
	})
}
