package consumer

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// hangOnce returns a handler that never ends for the first delivery of event 0, also after the end
// of its context. The gate lets it end.
func hangOnce(got *tally) (handle func(context.Context, *idem.Message) error, hung *atomic.Bool, gate chan struct{}) {
	hung, gate = new(atomic.Bool), make(chan struct{})
	return func(_ context.Context, m *idem.Message) error {
		if eventID(m) == "0" && hung.CompareAndSwap(false, true) {
			<-gate
			return nil
		}
		got.add(eventID(m))
		return nil
	}, hung, gate
}

// TestKafka_LeaveGroup_K13: a handler hangs for ever. Readiness turns red, the partition moves to
// the other member within StallTimeout + 10 s, and the one that left comes back. Liveness stays
// green, because no restart is needed.
func TestKafka_LeaveGroup_K13(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"eager": func(*Config) {}, "cooperative": func(c *Config) { c.Cooperative = true }, "static": func(c *Config) { c.InstanceID = "pod-0" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokers, topic, cfg := onKafka(t, 2)
			cfg.Store, cfg.StallTimeout, cfg.WhenStalled, cfg.Lease = forever(), 2*time.Second, LeaveGroup, 2*time.Second
			change(&cfg)
			var got tally
			handle, hung, gate := hangOnce(&got)
			one := start(t, cfg, routed(handle))
			if cfg.InstanceID != "" {
				cfg.InstanceID = "pod-1"
			}
			two := start(t, cfg, routed(handle))
			balanced := func() bool { return claimsOf(one) == 1 && claimsOf(two) == 1 }
			require.Eventually(t, balanced, soon, poll)
			produceEvents(t, brokers, topic, 0, 1)
			require.Eventually(t, hung.Load, soon, poll)
			began := time.Now()
			red := false
			require.Eventually(t, func() bool {
				red = red || one.Ready() != nil || two.Ready() != nil
				require.Equal(t, http.StatusOK, liveness(t, one))
				require.Equal(t, http.StatusOK, liveness(t, two))
				return got.events() == 1
			}, cfg.StallTimeout+10*time.Second, poll)
			t.Logf("handled elsewhere after %s", time.Since(began))
			require.True(t, red)
			produceEvents(t, brokers, topic, 1, 50)
			require.Eventually(t, func() bool { return got.events() == 50 }, soon, poll)
			require.Eventually(t, balanced, soon, poll, "comes back")
			require.Equal(t, 50, got.total())
			close(gate)
			require.NoError(t, one.end())
			require.NoError(t, two.end())
			require.Equal(t, http.StatusServiceUnavailable, liveness(t, one))
		})
	}
}

// liveness returns the answer to a probe.
func liveness(t *testing.T, m *member) int {
	t.Helper()
	rec := httptest.NewRecorder()
	m.LiveHandler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	require.Equal(t, rec.Code == http.StatusOK, strings.Contains(rec.Body.String(), `"live":true`), rec.Body.String())
	return rec.Code
}

// TestKafka_LeaveGroupAlone_K13: without another member the partition comes back, and the event
// that hung is met again. Those of other partitions are delivered once.
func TestKafka_LeaveGroupAlone_K13(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 3)
	cfg.Store, cfg.StallTimeout, cfg.WhenStalled, cfg.Lease = forever(), 2*time.Second, LeaveGroup, 2*time.Second
	again := new(duplicates)
	cfg.Observers = []observe.Observer{again}
	var got tally
	handle, hung, gate := hangOnce(&got)
	m := start(t, cfg, routed(handle))
	produceEvents(t, brokers, topic, 0, 60)
	require.Eventually(t, hung.Load, soon, poll)
	require.Eventually(t, func() bool { return got.events() == 60 }, soon, poll)
	require.Eventually(t, func() bool { return m.Ready() != nil }, soon, poll, "a handler hangs, and counts")
	require.ErrorContains(t, m.Ready(), "1 handlers hang")
	close(gate)
	require.Eventually(t, func() bool { return m.Ready() == nil }, soon, poll)
	require.NoError(t, m.end())
	require.Equal(t, 60, got.total())
	require.Zero(t, again.total(), "what was settled was committed")
}

// TestKafka_ExitOnStall_K13: Run ends, and the settled events are committed.
func TestKafka_ExitOnStall_K13(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 1)
	cfg.StallTimeout, cfg.WhenStalled = 2*time.Second, ExitOnStall
	var got tally
	handle, hung, gate := hangOnce(&got)
	defer close(gate)
	m := start(t, cfg, routed(handle))
	produceEvents(t, brokers, topic, 1, 10)
	require.Eventually(t, func() bool { return got.events() == 9 }, soon, poll)
	require.NoError(t, m.Live())
	produceEvents(t, brokers, topic, 0, 1)
	require.Eventually(t, hung.Load, soon, poll)
	began := time.Now()
	err := m.wait(t, cfg.StallTimeout+10*time.Second)
	t.Logf("ended after %s", time.Since(began))
	require.ErrorIs(t, err, ErrStalled)
	require.ErrorIs(t, err, idem.ErrAbandoned)
	require.ErrorIs(t, m.Live(), ErrNotLive)
	require.EqualValues(t, 9, committed(t, brokers, cfg.Group, topic, 0)[0])
}

// verdicts is a store that gives chosen answers.
type verdicts struct {
	dedup.Store
	busy, down atomic.Bool
}

func (v *verdicts) Volatile() error { return nil }

func (v *verdicts) Claim(ctx context.Context, token dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	if v.down.Load() {
		return dedup.ErrUnavailable
	}
	if v.busy.Load() {
		for i := range answers {
			answers[i] = dedup.Answer{Verdict: dedup.Busy, Wait: time.Minute}
		}
		return nil
	}
	return v.Store.Claim(ctx, token, lease, reqs, answers)
}

// TestHandler_NoStall_K13_Rule9: a partition with an event that is busy elsewhere, or with a store
// that is down, is reported and not given up. Afterwards it has its whole time again. A partition
// with a hanging handler is given up.
func TestHandler_NoStall_K13_Rule9(t *testing.T) {
	for name, excuse := range map[string]func(*verdicts, bool){
		"busy":       func(v *verdicts, on bool) { v.busy.Store(on) },
		"store down": func(v *verdicts, on bool) { v.down.Store(on) },
		"none":       func(*verdicts, bool) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &verdicts{Store: forever()}
				gate := make(chan struct{})
				r := idem.NewRouter(idem.Type(idem.Fixed("thing")), idem.ID(idem.FromHeader("event-id")))
				idem.On(r, "thing", func(context.Context, idem.Event[struct{}]) error { <-gate; return nil })
				h, err := NewGroupHandler(Config{
					Group: "g", Store: v, Logger: quiet, StallTimeout: time.Minute, WhenStalled: LeaveGroup,
				}, r)
				require.NoError(t, err)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				sess := newFakeSession(ctx, map[string][]int32{"t": {0, 1}})
				require.NoError(t, h.Setup(sess))
				claim, idle := newFakeClaim("t", 0, 10), newFakeClaim("t", 1, 10)
				run, other := consume(h, sess, claim), consume(h, sess, idle)
				excuse(v, true)
				claim.messages <- claim.record(0)
				time.Sleep(10 * time.Minute)
				if name == "none" {
					<-run.done
					<-other.done // the session ends as a whole
					require.ErrorIs(t, h.g.TakeEnding(), ErrStalled)
				} else {
					require.False(t, run.ended(), "given up although no restart helps")
					require.ErrorContains(t, h.Ready(), "t/0 has not moved")
					excuse(v, false)
					time.Sleep(50 * time.Second)
					require.False(t, run.ended(), "its handler has just begun")
					time.Sleep(20 * time.Second) // busyMoment included
					<-run.done
				}
				require.NoError(t, run.err)
				cancel(sarama.ErrRebalanceInProgress)
				<-other.done
				require.NoError(t, h.Cleanup(sess))
				close(gate)
				synctest.Wait()
				require.NoError(t, h.Close())
				require.Zero(t, sess.offset("t", 0))
			})
		})
	}
}

// TestKafka_PoisonedPartition_K22: an event fails for ever in its place. Its partition waits, and
// that ends no session. The others go on, and there is no rebalance.
func TestKafka_PoisonedPartition_K22(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 4)
	cfg.StallTimeout = time.Second
	var got, tries tally
	m := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
		if m.Partition == 0 {
			tries.add(eventID(m))
			return errTest
		}
		got.add(eventID(m))
		return nil
	}, idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit, InPlace: idem.Forever, MaxBackoff: 100 * time.Millisecond})))
	to := func(from, to int) {
		var msgs []*sarama.ProducerMessage
		for i := from; i < to; i++ {
			r := record(topic, i)
			r.Metadata = toPartition(i % 4)
			msgs = append(msgs, r)
		}
		produce(t, brokers, msgs...)
	}
	to(0, 400)
	require.Eventually(t, func() bool { return got.events() == 300 && m.Ready() != nil }, soon, poll)
	to(400, 800)
	require.Eventually(t, func() bool { return got.events() == 600 && tries.total() > 20 }, soon, poll)
	require.Equal(t, 1, tries.events(), "the partition waits")
	require.Equal(t, 1, m.count("partitions assigned"))
	require.NoError(t, m.end())
}
