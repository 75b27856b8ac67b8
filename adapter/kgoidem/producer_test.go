package kgoidem

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
)

var (
	_ outbox.Producer     = (*Producer)(nil)
	_ outbox.TopicChecker = (*Producer)(nil)
)

// The relay of an outbox looks for its topics at the start.
func TestProducer_CheckTopics(t *testing.T) {
	brokers, topic, _ := onFake(t, 1)
	p, err := NewProducer(clientOf(t, brokers))
	require.NoError(t, err)
	require.NoError(t, p.CheckTopics(t.Context(), []string{topic}))
	err = p.CheckTopics(t.Context(), []string{topic, "missing"})
	require.ErrorIs(t, err, idem.ErrNoTopic)
	require.ErrorContains(t, err, "--create --topic missing")
	require.ErrorContains(t, err, brokers[0])
}

// TestNewProducer_K35 refuses clients that could lose or double records.
func TestNewProducer_K35(t *testing.T) {
	brokers := []string{testenv.FreeAddr(t)}
	for want, opt := range map[string]kgo.Opt{
		"AllISRAcks":      kgo.RequiredAcks(kgo.LeaderAck()),
		"idempotent":      kgo.DisableIdempotentWrite(),
		"AutoTopic":       kgo.AllowAutoTopicCreation(),
		"TransactionalID": kgo.TransactionalID("x"),
		"RecordDelivery":  kgo.RecordDeliveryTimeout(time.Hour),
	} {
		opts := []kgo.Opt{opt}
		if want == "AllISRAcks" {
			opts = append(opts, kgo.DisableIdempotentWrite())
		}
		_, err := NewProducer(clientOf(t, brokers, opts...))
		require.ErrorContains(t, err, want)
	}
	_, err := NewProducer(nil)
	require.Error(t, err)
	_, err = NewProducer(clientOf(t, brokers))
	require.NoError(t, err)
}

// TestProducer_Errors: each message has the error that is about it.
func TestProducer_Errors(t *testing.T) {
	for name, world := range map[string]func(*testing.T, int32) ([]string, string, Config){
		"kfake": onFake, "kafka": onKafka,
	} {
		t.Run(name, func(t *testing.T) {
			brokers, topic, _ := world(t, 3)
			if name == "kafka" {
				_, err := kadm.NewClient(clientOf(t, brokers)).AlterTopicConfigs(t.Context(),
					[]kadm.AlterConfig{{Name: "max.message.bytes", Value: kadm.StringPtr("100000")}}, topic)
				require.NoError(t, err)
			}
			p, err := NewProducer(clientOf(t, brokers, append(producing(), kgo.UnknownTopicRetries(0))...))
			require.NoError(t, err)
			var msgs []*idem.Message
			for i := range 20 {
				msgs = append(msgs, &idem.Message{
					Topic: topic, Key: fmt.Append(nil, i), Value: []byte("x"), Time: time.Now(),
					Headers: []idem.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}},
				})
			}
			const big, lost = 7, 11
			if name == "kafka" { // kfake has no bound
				msgs[big].Value = make([]byte, 200_000)
				_, _ = rand.Read(msgs[big].Value) // never fails
			}
			msgs[lost].Topic = topic + "-missing"
			errs := p.ProduceEach(t.Context(), msgs)
			require.Len(t, errs, len(msgs))
			good := 0
			for i, err := range errs {
				switch {
				case i == lost:
					require.ErrorIs(t, err, idem.ErrNoTopic)
				case i == big && name == "kafka":
					require.ErrorIs(t, err, idem.ErrTooLarge)
				default:
					require.NoError(t, err, i)
					good++
				}
			}
			require.Len(t, readAll(t, brokers, topic, good), good)
			require.NoError(t, p.Produce(t.Context(), msgs[0]))
			require.ErrorIs(t, p.Produce(t.Context(), msgs[0], msgs[lost]), idem.ErrNoTopic)
			require.NoError(t, p.Produce(t.Context()))
		})
	}
}

// TestProducer_RefusedInBatch: a refusal of a batch is not held against the other messages of it.
func TestProducer_RefusedInBatch(t *testing.T) {
	for code, want := range map[int16]error{
		kerr.MessageTooLarge.Code: idem.ErrTooLarge, kerr.InvalidTimestamp.Code: idem.ErrRefused,
	} {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
		require.NoError(t, err)
		t.Cleanup(cluster.Close)
		refuse := func(req kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			produce, ok := req.(*kmsg.ProduceRequest)
			if !ok || !bytes.Contains(produce.Topics[0].Partitions[0].Records, []byte("poison")) {
				return nil, nil, false
			}
			resp, ok := produce.ResponseKind().(*kmsg.ProduceResponse)
			if !ok {
				return nil, errTest, true
			}
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = produce.Topics[0].Topic, produce.Topics[0].TopicID
			part := kmsg.NewProduceResponseTopicPartition()
			part.ErrorCode = code
			topic.Partitions = append(topic.Partitions, part)
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		}
		cluster.ControlKey(int16(kmsg.Produce), refuse)
		p, err := NewProducer(clientOf(t, cluster.ListenAddrs(), append(producing(),
			kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(20*time.Millisecond))...))
		require.NoError(t, err)
		var msgs []*idem.Message
		for i := range 5 {
			msgs = append(msgs, &idem.Message{Topic: "t", Value: fmt.Append(nil, "value-", i)})
		}
		msgs[3].Value = []byte("poison")
		for i, err := range p.ProduceEach(t.Context(), msgs) {
			if i == 3 {
				require.ErrorIs(t, err, want)
			} else {
				require.NoError(t, err, i)
			}
		}
		require.Len(t, readAll(t, cluster.ListenAddrs(), "t", 4), 4)
		require.Zero(t, p.budget.Used())
	}
}

// TestProducer_OldMessage: a message with the time of an old event is sent. Dead letters are such
// messages.
func TestProducer_OldMessage(t *testing.T) {
	for name, world := range map[string]func(*testing.T, int32) ([]string, string, Config){
		"kfake": onFake, "kafka": onKafka,
	} {
		t.Run(name, func(t *testing.T) {
			brokers, topic, _ := world(t, 1)
			p, err := NewProducer(clientOf(t, brokers, producing()...))
			require.NoError(t, err)
			for i := range 3 { // franz-go learns the partitions with the first one
				old := &idem.Message{Topic: topic, Value: []byte("x"), Time: time.Now().Add(-time.Hour)}
				require.NoError(t, p.Produce(t.Context(), old), i)
			}
		})
	}
}

// TestProducer_Down: a call ends with its context, and the error has no class.
func TestProducer_Down(t *testing.T) {
	p, err := NewProducer(clientOf(t, []string{testenv.FreeAddr(t)}, producing()...))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errTest)
	defer cancel()
	err = p.Produce(ctx, &idem.Message{Topic: "t", Value: []byte("x")})
	require.Error(t, err)
	for _, class := range []error{idem.ErrTooLarge, idem.ErrRefused, idem.ErrNoTopic} {
		require.NotErrorIs(t, err, class)
	}
}

// TestMessage_Roundtrip: no part of a message is changed, and nil stays nil.
func TestMessage_Roundtrip(t *testing.T) {
	brokers, topic, _ := onFake(t, 1)
	p, err := NewProducer(clientOf(t, brokers))
	require.NoError(t, err)
	at := time.UnixMilli(1_700_000_000_123)
	want := []*idem.Message{
		{Topic: topic, Key: nil, Value: nil, Time: at},
		{Topic: topic, Key: []byte{}, Value: []byte{}, Time: at, Offset: 1},
		{Topic: topic, Key: []byte("k"), Value: []byte(strings.Repeat("v", 5000)), Time: at, Offset: 2, Headers: []idem.Header{
			{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte{}}, {Key: "", Value: nil},
		}},
	}
	for _, m := range want {
		require.NoError(t, p.Produce(t.Context(), m))
	}
	var c converter
	for i, r := range readAll(t, brokers, topic, 3) {
		for _, got := range []*idem.Message{FromRecord(r), c.message(r)} {
			require.True(t, want[i].Time.Equal(got.Time))
			got.Time = want[i].Time
			require.Equal(t, want[i], got)
		}
	}
}
