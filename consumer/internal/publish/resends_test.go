package publish

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
)

// produceFault is an error for produce requests. RequestTimedOut comes after the batch was appended.
func produceFault(err *kerr.Error, count int) kfake.Fault {
	return kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: err, Count: count}
}

// TestProduceEach_RefusedAfterNoAnswer_K35: sarama sends a batch again that has no answer, and the
// broker refuses it then. The first attempt is in the log. So the messages are not sent again, and
// no error says that they are not in the log.
func TestProduceEach_RefusedAfterNoAnswer_K35(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.MessageTooLarge, kerr.InvalidRecord, kerr.TopicAuthorizationFailed} {
		t.Run(refusal.Message, func(t *testing.T) {
			cluster, brokers := fakeCluster(t, 1, []string{"orders"})
			p := openProducer(t, brokers)
			noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 1)))
			cluster.Fault(produceFault(kerr.RequestTimedOut, 1), produceFault(refusal, 1))
			err := p.ProduceEach(t.Context(), messages("orders", 1, 2))[0]
			require.Error(t, err)
			require.False(t, isAny(err, idem.ErrTooLarge, idem.ErrRefused, idem.ErrNoTopic), "%v", err)
			require.ErrorContains(t, err, "may be in the log")
			require.Equal(t, map[string]int{"0": 1, "1": 1}, values(t, brokers, "orders"))
		})
	}
}

// Attempts for another partition do not excuse a message that is refused.
func TestProduceEach_RefusedBesideAttempts_K35(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders", "other"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), append(messages("orders", 0, 1), messages("other", 0, 1)...)))
	cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "other", Err: kerr.NotEnoughReplicas, Count: 1},
		produceFault(kerr.MessageTooLarge, -1),
	)
	errs := p.ProduceEach(t.Context(), append(messages("other", 1, 2), messages("orders", 1, 2)...))
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], idem.ErrTooLarge)
}

func TestResends(t *testing.T) {
	at, other := partition{"orders", 1}, partition{"orders", 2}
	r := &resends{}
	before := r.now()
	r.lookedUp(at)
	require.False(t, r.since(before, at), "the leader is looked up for the first batch too")
	r.paused()
	require.True(t, r.since(before, at))
	require.False(t, r.since(before, other))
	require.False(t, r.since(r.now(), at))
}

// TestProduceEach_TimeTooOld_K35: a broker takes no time before 1970, and sarama cannot write it. The
// message is to blame, and the messages that would share its request are not.
func TestProduceEach_TimeTooOld_K35(t *testing.T) {
	_, brokers := fakeCluster(t, 1, []string{"orders", "other"})
	p := openProducer(t, brokers)
	msgs := append(messages("orders", 0, 3), messages("other", 0, 3)...)
	msgs[1].Time = time.UnixMilli(-1)
	for i, err := range p.ProduceEach(t.Context(), msgs) {
		if i == 1 {
			require.ErrorIs(t, err, idem.ErrRefused)
		} else {
			require.NoError(t, err)
		}
	}
	require.ErrorIs(t, p.ProduceInOrder(t.Context(), msgs[1:2])[0], idem.ErrRefused)
	msgs[1].Time = time.UnixMilli(0)
	noErrors(t, p.ProduceEach(t.Context(), msgs[1:2]))
}

// TestProduceEach_DeniedAfterNoAnswer_K35: after an attempt without an answer the brokers no longer
// describe the topic. The attempt is in the log, so no error says that it is not.
func TestProduceEach_DeniedAfterNoAnswer_K35(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 1)))
	var denied atomic.Bool
	cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.RequestTimedOut, Count: -1, When: func(kmsg.Request) bool {
			denied.Store(true)
			return true
		}},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "orders", Err: kerr.TopicAuthorizationFailed, Count: -1, When: func(kmsg.Request) bool {
			return denied.Load()
		}},
	)
	err := p.ProduceEach(t.Context(), messages("orders", 1, 2))[0]
	require.Error(t, err)
	require.NotErrorIs(t, err, idem.ErrNoTopic)
	require.ErrorContains(t, err, "may be in the log")
	require.ErrorIs(t, p.ProduceEach(t.Context(), messages("orders", 2, 3))[0], idem.ErrNoTopic)
	denied.Store(false)
	require.Equal(t, map[string]int{"0": 1, "1": 1}, values(t, brokers, "orders"))
}
