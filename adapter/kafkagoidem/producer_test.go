package kafkagoidem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
)

// TestProducer_SilentLeader: calls whose time is over leave no queue behind. The broker gets few
// records when it answers again, and the next call is not held up.
func TestProducer_SilentLeader(t *testing.T) {
	t.Parallel()
	p, release, brokers := onSilentLeader(t)
	callInVain(t, p)
	release()
	require.NoError(t, p.Produce(t.Context(), aLetter()))
	ends, err := kadm.NewClient(clientOf(t, brokers)).ListEndOffsets(t.Context(), "orders.dlq")
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	end, ok := ends.Lookup("orders.dlq", 0)
	require.True(t, ok)
	// The first call, the last one, and one more if the machine stalls for 10 s meanwhile.
	require.LessOrEqual(t, end.Offset, int64(3))
	require.NoError(t, p.Close())
}

// TestProducer_CloseUnderSilence_K38: Close waits for the one request in flight, and for no other.
func TestProducer_CloseUnderSilence_K38(t *testing.T) {
	t.Parallel()
	p, _, _ := onSilentLeader(t)
	callInVain(t, p)
	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(produceWait + 5*time.Second):
		t.Fatal("Close waits for more than one request")
	}
	require.ErrorIs(t, p.Produce(t.Context(), aLetter()), io.ErrClosedPipe)
	require.NoError(t, p.Close())
}

// TestProducer_Records: each record is the message, is in the partition that the Java client
// chooses, and keeps its order there. A topic that is missing costs the other messages nothing.
func TestProducer_Records(t *testing.T) {
	brokers := fakeBrokers(t, 5, "a", "b")
	p, err := NewProducer(Config{Brokers: brokers})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	at := time.UnixMilli(1_700_000_000_000)
	msgs := []*idem.Message{
		{Topic: "absent", Key: []byte("k")},
		{Topic: "b", Key: []byte{}, Value: []byte("x"), Time: at},
		{Topic: "b", Key: []byte("k"), Time: at},
	}
	for i := range 40 {
		r := record("a", i%20)
		msgs = append(msgs, &idem.Message{Topic: r.Topic, Key: r.Key, Value: fmt.Append(nil, i), Time: at,
			Headers: []idem.Header{{Key: "event-id", Value: fmt.Append(nil, i)}, {Key: "empty"}}})
	}
	errs := p.ProduceEach(t.Context(), msgs)
	require.ErrorIs(t, errs[0], idem.ErrNoTopic)
	require.NoError(t, errors.Join(errs[1:]...))

	cl := clientOf(t, brokers, kgo.ConsumeTopics("a", "b"))
	java := kgo.StickyKeyPartitioner(nil)
	got := make(map[string][]*kgo.Record)
	for n := 0; n < len(msgs)-1; {
		fetched := cl.PollFetches(t.Context())
		require.NoError(t, fetched.Err())
		fetched.EachRecord(func(r *kgo.Record) {
			require.EqualValues(t, java.ForTopic(r.Topic).Partition(r, 5), r.Partition)
			require.Equal(t, at, r.Timestamp)
			got[r.Topic+string(r.Key)] = append(got[r.Topic+string(r.Key)], r)
			n++
		})
	}
	require.NotNil(t, got["b"][0].Key)
	require.Nil(t, got["bk"][0].Value)
	for i := range 20 {
		key := fmt.Sprint("akey-", i)
		require.Len(t, got[key], 2)
		for turn, r := range got[key] {
			want := fmt.Append(nil, i+20*turn)
			require.Equal(t, want, r.Value)
			require.Equal(t, []kgo.RecordHeader{{Key: "event-id", Value: want}, {Key: "empty"}}, r.Headers)
		}
	}
}

// TestProducer_Classes: the broker's error about a record has its class. The other records of the
// call are acknowledged.
func TestProducer_Classes(t *testing.T) {
	for code, want := range map[*kerr.Error]error{
		kerr.MessageTooLarge: idem.ErrTooLarge, kerr.InvalidTimestamp: idem.ErrRefused,
		kerr.TopicAuthorizationFailed: idem.ErrNoTopic, kerr.NotEnoughReplicas: kafka.NotEnoughReplicas,
	} {
		cluster, cfg := onCluster(t)
		cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			produce, ok := req.(*kmsg.ProduceRequest)
			if !ok || !bytes.Contains(produce.Topics[0].Partitions[0].Records, []byte("poison")) {
				return nil, nil, false
			}
			resp, _ := produce.ResponseKind().(*kmsg.ProduceResponse)
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic = produce.Topics[0].Topic
			part := kmsg.NewProduceResponseTopicPartition()
			part.ErrorCode = code.Code
			topic.Partitions = append(topic.Partitions, part)
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		})
		p, err := NewProducer(cfg)
		require.NoError(t, err)
		var msgs []*idem.Message
		for _, value := range []string{"good", "poison", "good"} {
			msgs = append(msgs, &idem.Message{Topic: "orders", Value: []byte(value)})
		}
		errs := p.ProduceEach(t.Context(), msgs)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], want)
		require.NoError(t, errs[2])
		require.NoError(t, p.Close())
	}
}

// onSilentLeader returns a producer for brokers that hold every record back until release.
func onSilentLeader(t *testing.T) (p *Producer, release func(), brokers []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders.dlq"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	held := make(chan struct{})
	release = sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		cluster.SleepControl(func() { <-held })
		return nil, nil, false
	})
	p, err = NewProducer(Config{Brokers: cluster.ListenAddrs()})
	require.NoError(t, err)
	return p, release, cluster.ListenAddrs()
}

// callInVain makes three calls in each of eight goroutines, which all run out of time.
func callInVain(t *testing.T, p *Producer) {
	t.Helper()
	var calls sync.WaitGroup
	var failed atomic.Int32
	for range 8 {
		calls.Go(func() {
			for range 3 {
				ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
				if p.Produce(ctx, aLetter()) != nil {
					failed.Add(1)
				}
				cancel()
			}
		})
	}
	calls.Wait()
	require.EqualValues(t, 24, failed.Load())
}

func aLetter() *idem.Message {
	return &idem.Message{Topic: "orders.dlq", Key: []byte("k"), Value: []byte("{}")}
}
