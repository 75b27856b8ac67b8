package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A source that fails, hangs or panics costs its own section; all the rest of the page is there.
func TestSources_FailingAndHanging(t *testing.T) {
	release := make(chan struct{})
	defer close(release) // before the pages are closed
	broken := errors.New("no broker: password=hunter2")
	for name, spoil := range map[string]func(*sources){
		"partitions":          func(s *sources) { s.group = &fakeSource[groupState]{err: broken} },
		"claims":              func(s *sources) { s.claims = &fakeSource[[]storeClaims]{err: broken} },
		"deferred":            func(s *sources) { s.deferred = &fakeSource[deferredState]{err: broken} },
		"outbox":              func(s *sources) { s.outbox = &fakeSource[outboxState]{err: broken} },
		"doctor":              func(s *sources) { s.doctor = (&fakeSource[[]Finding]{err: broken}).read },
		"dead-letters":        func(s *sources) { s.deadLetters.(*fakeDeadLetters).err = broken },
		"event?id=order-4711": func(s *sources) { s.events.(*fakeEvents).err = broken },
	} {
		src, _ := full(time.Now())
		spoil(&src)
		s := serve(t, quietConfig(), src)
		a := s.get(name)
		require.Equal(t, http.StatusOK, a.status, name)
		require.Contains(t, a.body, "no broker", name)
		require.NotContains(t, a.body, "hunter2", name)
		require.Equal(t, http.StatusOK, s.get("").status)
	}

	for name, spoil := range map[string]func(*sources){
		"partitions": func(s *sources) { s.group = &fakeSource[groupState]{hangs: release} },
		"claims":     func(s *sources) { s.claims = &fakeSource[[]storeClaims]{hangs: release} },
		"outbox":     func(s *sources) { s.outbox = &fakeSource[outboxState]{hangs: release} },
	} {
		src, _ := full(time.Now())
		spoil(&src)
		cfg := quietConfig()
		cfg.Timeout = 50 * time.Millisecond
		s := serve(t, cfg, src)
		a := s.get(name)
		require.Contains(t, a.body, "no answer in time", name)
		a = s.get("")
		require.Equal(t, http.StatusOK, a.status)
		require.Contains(t, a.body, "Not everything could be looked at")
		require.NotContains(t, a.body, "Nothing needs attention")
		require.Contains(t, a.body, "Duplicates skipped")
	}
}

func TestSources_Missing(t *testing.T) {
	s := serve(t, quietConfig(), sources{})
	for name, want := range map[string]string{
		"activity": "NewMonitor", "partitions": "Brokers", "claims": "Consumer.Store", "deferred": "Consumer.Store", "dead-letters": "Brokers", "outbox": "ops.Config.Outbox",
		"doctor": "ops.Config.Doctor", "event?id=x": "Consumer.Store", "": "No figures yet",
	} {
		a := s.get(name)
		require.Equal(t, http.StatusOK, a.status, name)
		require.Contains(t, a.body, want, name)
		require.NotContains(t, a.body, "Nothing needs attention")
	}
	require.Equal(t, http.StatusNotFound, s.get("dead-letter?topic=x&partition=0&offset=0").status)
	require.Equal(t, http.StatusNotFound, s.post("plan", nil).status)
	require.Equal(t, http.StatusNotFound, s.post("replay", nil).status)
}

// A cell calls its source once at a time and once in an interval, for all persons together. A
// hanging source delays a person once.
func TestCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &background{timeout: time.Second, now: time.Now}
		h.ctx, h.stop = context.WithCancel(t.Context())
		var calls, slow atomic.Int64
		slow.Store(int64(10 * time.Millisecond))
		c := cellOf(h, 2*time.Second, time.Minute, true, func(context.Context) (int64, error) {
			n := calls.Add(1)
			time.Sleep(time.Duration(slow.Load()))
			return n, nil
		})
		together(func() { c.get(t.Context()) }, func() { c.get(t.Context()) }, func() { c.get(t.Context()) })
		require.EqualValues(t, 1, calls.Load())
		require.EqualValues(t, 1, c.get(t.Context()).Value)
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 2, c.get(t.Context()).Value)

		time.Sleep(3 * time.Second)
		slow.Store(int64(10 * time.Second))
		began := time.Now()
		p := c.get(t.Context())
		require.False(t, p.OK())
		require.Equal(t, time.Second, time.Since(began))
		require.False(t, c.get(t.Context()).OK())
		require.Equal(t, time.Second, time.Since(began), "it was waited for a second time")
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 3, c.get(t.Context()).Value)
		require.EqualValues(t, 3, calls.Load())

		c.sparing = true
		time.Sleep(9 * time.Minute)
		require.EqualValues(t, 3, c.get(t.Context()).Value, "what takes 10 s is good for ten minutes")
		time.Sleep(2 * time.Minute)
		_ = c.get(t.Context())
		require.EqualValues(t, 4, calls.Load())
		h.stop()
		h.work.Wait()
	})
}

// So many searches may be under way, and a panic in one is its own.
func TestAsk(t *testing.T) {
	h := &background{timeout: 20 * time.Millisecond, now: time.Now, places: newPlaces()}
	h.ctx, h.stop = context.WithCancel(t.Context())
	visitor := func(who string) *visit {
		return &visit{r: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), who: who}
	}
	release, begun := make(chan struct{}), make(chan struct{})
	for i := range maxScans {
		h.work.Go(func() {
			ask(visitor(fmt.Sprint("p", i/maxScansOf)), h, time.Minute, func(context.Context) (int, error) {
				begun <- struct{}{}
				<-release
				return 0, nil
			})
		})
		<-begun
	}
	p := ask(visitor("late"), h, time.Minute, func(context.Context) (int, error) { return 1, nil })
	require.Contains(t, p.Problem, "too many", "after the time-out")
	h.timeout = time.Minute
	time.AfterFunc(10*time.Millisecond, func() { close(release) })
	p = ask(visitor("late"), h, time.Minute, func(context.Context) (int, error) { return 1, nil })
	require.Equal(t, 1, p.Value, "who waits gets a place")
	h.work.Wait()
	p = ask(visitor("late"), h, time.Minute, func(context.Context) (int, error) { panic("boom") })
	require.Contains(t, p.Problem, "boom")
	p = ask(visitor("late"), h, 20*time.Millisecond, func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 7, ctx.Err()
	})
	require.Contains(t, p.Problem, "no whole answer within")
	require.Equal(t, 7, p.Value, "what was found so far is shown")
	require.Empty(t, h.places.free)
	require.Empty(t, h.places.of)
}

func TestClosed(t *testing.T) {
	s, letters := fullSite(t)
	id := s.planFor("0/0")
	require.NoError(t, s.h.Close(t.Context()))
	for _, name := range []string{"", "event?id=x", "claims", "dead-letters"} {
		a := s.get(name)
		require.Equal(t, http.StatusOK, a.status, name)
		require.Contains(t, a.body, "was closed", name)
	}
	require.Equal(t, http.StatusServiceUnavailable, s.post("replay", url.Values{"id": {id}}).status)
	require.Empty(t, letters.replayed)
}
