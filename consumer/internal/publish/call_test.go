package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/sendbudget"
	"github.com/idem-go/idem/internal/testenv"
)

// TestProduceEach_OwnResult_O08: of calls at the same time, each message has the result of its own
// record.
func TestProduceEach_OwnResult_O08(t *testing.T) {
	cluster, brokers := fakeCluster(t, 4, []string{"orders"})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{1, 3}, Count: -1})
	p := openProducer(t, brokers)
	const calls, size = 8, 100
	var errs [calls][]error
	var group sync.WaitGroup
	for c := range calls {
		group.Go(func() { errs[c] = p.ProduceEach(t.Context(), messages("orders", c*size, (c+1)*size)) })
	}
	group.Wait()
	there, failed := values(t, brokers, "orders"), 0
	for c := range errs {
		require.Len(t, errs[c], size)
		for i, err := range errs[c] {
			n := fmt.Sprint(c*size + i)
			if err != nil {
				failed++
				require.False(t, isAny(err, idem.ErrTooLarge, idem.ErrRefused, idem.ErrNoTopic), "%v", err)
			}
			require.Equal(t, err == nil, there[n] == 1, "message %s: %v", n, err)
		}
	}
	require.InDelta(t, calls*size/2, failed, calls*size/8)
	require.Empty(t, p.ProduceEach(t.Context(), nil))
}

// TestProduceEach_WhoIsToBlame_O10: error codes distinguish faults of a message from faults of the
// brokers. A fault of a message harms no other message.
func TestProduceEach_WhoIsToBlame_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders", "small", "strict", "denied", "hidden", "broken"})
	limit := "2000"
	admin := testenv.KafkaAdmin(t, brokers)
	require.NoError(t, admin.AlterConfig(sarama.TopicResource, "small", map[string]*string{"max.message.bytes": &limit}, false))
	produced := []kmsg.Key{kmsg.Produce}
	cluster.Fault(
		kfake.Fault{Keys: produced, Topic: "denied", Err: kerr.TopicAuthorizationFailed, Count: -1},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "hidden", Err: kerr.TopicAuthorizationFailed, Count: -1},
		kfake.Fault{Keys: produced, Topic: "broken", Err: kerr.CoordinatorLoadInProgress, Count: -1},
		kfake.Fault{Keys: produced, Topic: "strict", Err: kerr.InvalidRecord, Count: -1, When: func(r kmsg.Request) bool {
			for _, topic := range r.(*kmsg.ProduceRequest).Topics {
				for _, part := range topic.Partitions {
					if bytes.Contains(part.Records, []byte("poison")) {
						return true
					}
				}
			}
			return false
		}},
	)
	p := openProducer(t, brokers)
	fits, much := strings.Repeat("x", 700), strings.Repeat("x", 2500)
	for round := range 2 { // topics are known the second time
		errs, msgs := []error{}, []*idem.Message{}
		want := func(err error, topic, value string) {
			errs = append(errs, err)
			msgs = append(msgs, &idem.Message{Topic: topic, Value: []byte(value)})
		}
		broker := errors.New("the broker is to blame")
		for i := range 8 { // together they are too large
			want(nil, "small", fmt.Sprint(fits, i))
		}
		want(idem.ErrTooLarge, "small", much)
		want(idem.ErrTooLarge, "orders", strings.Repeat("x", 65<<20))
		for i := range 20 {
			want(nil, "strict", fmt.Sprint("good ", i))
			if i%9 == 5 {
				want(idem.ErrRefused, "strict", fmt.Sprint("poison ", i))
			}
		}
		want(idem.ErrNoTopic, "missing", "1")
		want(idem.ErrNoTopic, "no topic's name", "2")
		want(idem.ErrNoTopic, "", "3")
		want(idem.ErrNoTopic, "denied", "4")
		want(idem.ErrNoTopic, "hidden", "5")
		want(broker, "broken", "6")
		want(nil, "orders", "7")
		for i, err := range p.ProduceEach(t.Context(), msgs) {
			at := fmt.Sprintf("round %d, message %d to %q: %v", round, i, msgs[i].Topic, err)
			require.Equal(t, errs[i] == nil, err == nil, at)
			for _, class := range []error{idem.ErrTooLarge, idem.ErrRefused, idem.ErrNoTopic} {
				require.Equal(t, errors.Is(errs[i], class), isAny(err, class), at)
			}
		}
	}
	for topic, n := range map[string]int{"small": 16, "strict": 40, "orders": 2} {
		require.Len(t, readAll(t, brokers, topic, n), n)
	}
	for v := range values(t, brokers, "strict") {
		require.NotContains(t, v, "poison")
	}
}

// TestProduceEach_OldEpoch_K35: a message that is refused for an old epoch of the producer may be in
// the log by an earlier attempt. The message is not sent again, and is not to blame.
func TestProduceEach_OldEpoch_K35(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	produced := []kmsg.Key{kmsg.Produce}
	cluster.Fault(kfake.Fault{Keys: produced, Topic: "orders", Err: kerr.InvalidProducerEpoch, Count: 1})
	p := openProducer(t, brokers)
	err := p.ProduceEach(t.Context(), messages("orders", 0, 1))[0]
	require.ErrorIs(t, err, sarama.ErrInvalidProducerEpoch)
	require.False(t, isAny(err, idem.ErrRefused, idem.ErrTooLarge, idem.ErrNoTopic), "%v", err)
	require.Empty(t, values(t, brokers, "orders"))
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 1)))
}

// TestProduceEach_PartitionUnknownForAMoment_O10: a partition that a broker does not know is not a
// topic that is missing.
func TestProduceEach_PartitionUnknownForAMoment_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownTopicOrPartition, Count: -1})
	p := openProducer(t, brokers)
	for _, err := range p.ProduceEach(t.Context(), messages("orders", 0, 20)) {
		require.ErrorIs(t, err, sarama.ErrUnknownTopicOrPartition)
		require.NotErrorIs(t, err, idem.ErrNoTopic)
	}
}

// TestProduceEach_TopicGoes_O10: after the deletion of a topic, only its own messages get the
// error. When the topic is back, its messages are sent again.
func TestProduceEach_TopicGoes_O10(t *testing.T) {
	_, brokers := fakeCluster(t, 3, []string{"orders", "stock"})
	admin := testenv.KafkaAdmin(t, brokers)
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), append(messages("orders", 0, 10), messages("stock", 0, 10)...)))
	require.NoError(t, admin.DeleteTopic("stock"))
	for round := range 2 {
		began := time.Now()
		for i, err := range p.ProduceEach(t.Context(), append(messages("orders", 10, 110), messages("stock", 10, 110)...)) {
			if i < 100 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, idem.ErrNoTopic)
			}
		}
		t.Logf("round %d took %s", round, time.Since(began))
	}
	require.NoError(t, admin.CreateTopic("stock", &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false))
	require.Eventually(t, func() bool { // sarama does not ask for some seconds after several failures
		for _, err := range p.ProduceEach(t.Context(), messages("stock", 10, 20)) {
			require.NotErrorIs(t, err, idem.ErrNoTopic)
			if err != nil {
				return false
			}
		}
		return true
	}, soon, poll)
}

// TestProduceEach_MissingTopicHoldsUpNobody_O10: while brokers are asked for a topic that does not
// exist, other messages arrive, also those of the same call.
func TestProduceEach_MissingTopicHoldsUpNobody_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 3, []string{"orders"})
	var asked atomic.Bool
	cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range r.(*kmsg.MetadataRequest).Topics {
			if *topic.Topic == "missing" {
				asked.Store(true)
			}
		}
		return nil, nil, false
	})
	p := openProducer(t, brokers, func(sc *sarama.Config) {
		sc.Metadata.Retry.Max = 10_000 // the test ends before the question does
	})
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 1)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan []error, 1)
	go func() {
		ended <- p.ProduceEach(ctx, append(messages("orders", 1, 11), messages("missing", 0, 1000)...))
	}()
	require.Eventually(t, asked.Load, soon, poll)
	for i := range 50 {
		noErrors(t, p.ProduceEach(t.Context(), messages("orders", 11+20*i, 31+20*i)))
	}
	require.Eventually(t, func() bool { return len(values(t, brokers, "orders")) == 1011 }, soon, poll)
	require.Empty(t, ended, "the brokers are still asked")
	cancel()
	errs := <-ended
	noErrors(t, errs[:10])
	for _, err := range errs[10:] {
		require.ErrorIs(t, err, errNotSent)
		require.False(t, isAny(err, idem.ErrTooLarge, idem.ErrRefused, idem.ErrNoTopic), "%v", err)
	}
}

// TestProduceEach_BrokerAway_O15: brokers that are away are not the messages' fault, and hold up no
// caller longer than its context. The messages in sarama are bounded meanwhile.
func TestProduceEach_BrokerAway_O15(t *testing.T) {
	cluster, brokers := fakeCluster(t, 3, []string{"orders"})
	p := openProducer(t, brokers, func(sc *sarama.Config) { sc.Producer.Retry.Max = 40 })
	const limit = 100_000
	p.budget = sendbudget.New(limit)
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 10)))
	cluster.Close()
	msgs := messages("orders", 0, 20)
	for _, m := range msgs {
		m.Value = make([]byte, 10_000)
	}
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		errs := p.ProduceEach(ctx, msgs)
		cancel()
		require.Less(t, time.Since(began), 2*time.Second)
		for _, err := range errs {
			require.Error(t, err)
			require.False(t, isAny(err, idem.ErrTooLarge, idem.ErrRefused, idem.ErrNoTopic), "%v", err)
		}
		require.LessOrEqual(t, p.budget.Used(), limit)
	}
}

// TestProduceEach_NotAlone_T04: a message is not condemned while others may share its batch.
func TestProduceEach_NotAlone_T04(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 1)))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: -1})
	require.NoError(t, p.budget.Take(t.Context(), 1, false), "somebody's message, of a call whose context has ended")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := p.ProduceEach(ctx, messages("orders", 1, 2))[0]
	require.Error(t, err)
	require.NotErrorIs(t, err, idem.ErrTooLarge)
	p.budget.Give(1)
	require.ErrorIs(t, p.ProduceEach(t.Context(), messages("orders", 1, 2))[0], idem.ErrTooLarge)
}

// After Close no message is sent, and each message has the error errClosed.
func TestProduceEach_Closed(t *testing.T) {
	_, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 5)))
	p.Close()
	for _, err := range p.ProduceEach(t.Context(), messages("orders", 0, 5)) {
		require.ErrorIs(t, err, errClosed)
	}
	require.True(t, p.client.Closed())
	require.Len(t, values(t, brokers, "orders"), 5)
}

// TestParts: each part for sarama fits into a batch that brokers take by default, and no message is
// left out.
func TestParts(t *testing.T) {
	for _, sizes := range [][]int{{}, {10}, {2_000_000}, {400_000, 400_000, 400_000}, {10, 2_000_000, 10, 10}, {899_000, 899_000}} {
		var msgs []*idem.Message
		var all, got []int
		for i, n := range sizes {
			msgs = append(msgs, &idem.Message{Topic: "t", Value: make([]byte, n)})
			all = append(all, i)
		}
		size := func(i int) int { return sizeOf(msgs[i]) }
		for part := range partsOf(all, size) {
			sum := 0
			for _, i := range part {
				sum += size(i)
			}
			require.True(t, sum <= maxTogether || len(part) == 1, "%v: %v", sizes, part)
			got = append(got, part...)
		}
		require.Equal(t, all, got)
	}
	n := 0
	for range partsOf([]int{0, 1}, func(int) int { return 600_000 }) {
		n++
	}
	require.Equal(t, 2, n)
}

// A message that is not sent, since the context has ended, takes no bytes of the budget for long.
func TestProduceEach_BytesOfTheUnsent(t *testing.T) {
	_, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 1)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // sarama may take a message nevertheless
		c := &call{s: &p.sender, msgs: messages("orders", 1, 3), errs: make([]error, 2), results: make(chan result, 2)}
		for sent := c.send(ctx, []int{0, 1}, false); sent > 0; sent-- {
			<-c.results
		}
		require.Zero(t, p.budget.Used())
	}
}

// A producer that is closed in the middle of a call takes no more messages and begins no goroutine.
func TestProduceEach_ClosedMeanwhile(t *testing.T) {
	_, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 1)))
	p.Close()
	for range 50 { // sarama's input is closed: to choose it would panic
		require.ErrorIs(t, p.enqueue(t.Context(), messages("orders", 1, 2)[0], &origin{}), errClosed)
	}
	require.False(t, p.start(func() { t.Error("a goroutine began") }))
	p.results.Wait()
}
