package publish

import (
	"io"
	"strconv"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestLeaderRequest_Answer: a batch that the response does not name has no answer.
func TestLeaderRequest_Answer(t *testing.T) {
	batches := []*orderedBatch{{at: partition{"orders", 0}}, {at: partition{"orders", 1}}, {at: partition{"orders", 2}}}
	for name, c := range map[string]struct {
		response *sarama.ProduceResponse
		err      error
		want     []error
	}{
		"blocks": {
			response: &sarama.ProduceResponse{Blocks: map[string]map[int32]*sarama.ProduceResponseBlock{
				"orders": {0: {}, 2: {Err: sarama.ErrNotEnoughReplicas}},
			}},
			want: []error{nil, errNoAnswer, sarama.ErrNotEnoughReplicas},
		},
		"no connection": {err: io.EOF, want: []error{io.EOF, io.EOF, io.EOF}},
	} {
		t.Run(name, func(t *testing.T) {
			answers := make(chan batchAnswer, len(batches))
			(&leaderRequest{batches: batches, answers: answers}).answer(c.response, c.err)
			for i, want := range c.want {
				a := <-answers
				require.Same(t, batches[i], a.batch)
				require.Equal(t, want, a.err)
				require.False(t, a.unsent)
			}
		})
	}
}

// TestOnePartition: after a message of a key with another partition, no message of the key is sent,
// also not to the first partition. It would be in the log before the one that is not sent.
func TestOnePartition(t *testing.T) {
	keys := map[messageKey]partition{}
	for i, want := range []bool{true, true, false, false} {
		m := ToSarama(keyed("orders", "a", i, 1)[0])
		require.Equal(t, want, onePartition(keys, m, partition{"orders", []int32{0, 0, 1, 0}[i]}), "message %d", i)
		m = ToSarama(keyed("orders", "b"+strconv.Itoa(i), 0, 1)[0])
		require.True(t, onePartition(keys, m, partition{"orders", int32(i)}))
		require.True(t, onePartition(keys, &sarama.ProducerMessage{Topic: "orders"}, partition{"orders", int32(i)}))
	}
	require.True(t, onePartition(keys, ToSarama(keyed("other", "a", 0, 1)[0]), partition{"other", 1}))
}

// A batch that may have been appended is not halved. Its first half would have the number of the
// whole, and the broker would take the half for a copy.
func TestProduceInOrder_NoHalvesAfterNoAnswer_K35(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 0, 1)))
	sent := watchBatches(t, cluster)
	timedOut := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 1}
	tooLarge := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: 1}
	cluster.Fault(timedOut, tooLarge)
	for _, err := range p.ProduceInOrder(t.Context(), keyed("orders", "a", 1, 4)) {
		require.ErrorIs(t, err, sarama.ErrMessageSizeTooLarge)
	}
	numbers := sent.numbers()
	require.Len(t, numbers, 2)
	require.Equal(t, numbers[0], numbers[1])
	require.EqualValues(t, 4, numbers[0][0])
	require.True(t, p.inOrder.id.ended[partition{"orders", 0}])
}
