package publish

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
)

// refused returns a call with messages that were refused for the size of their batch.
func refused(p *Producer, msgs []*idem.Message) (c *call, all []int) {
	c = &call{s: &p.sender, msgs: msgs, errs: make([]error, len(msgs)), results: make(chan result, len(msgs))}
	for i := range msgs {
		c.errs[i] = sarama.ErrMessageSizeTooLarge
		all = append(all, i)
	}
	return c, all
}

// TestSendAlone_Probe_T04: a message is not condemned while a probe may share its batch. Probes of
// other partitions are no reason.
func TestSendAlone_Probe_T04(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders", "other"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), append(messages("orders", 0, 1), messages("other", 0, 1)...)))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: -1})
	probe := ToSarama(messages("orders", 1, 2)[0])
	p.away.note(probe, []int32{0}, io.EOF, nil)
	at, _, ok := p.away.decide(probe, []int32{0})
	require.True(t, ok)
	p.away.note(probe, []int32{0}, nil, nil) // an earlier batch was taken meanwhile
	require.False(t, p.away.holds(at))
	msgs := append(messages("orders", 2, 3), messages("other", 2, 3)...)
	msgs = append(msgs, &idem.Message{Topic: "orders", Value: []byte("no key")})
	c, all := refused(p, msgs)
	c.sendAlone(t.Context(), all)
	require.NotErrorIs(t, c.errs[0], idem.ErrTooLarge)
	require.ErrorIs(t, c.errs[1], idem.ErrTooLarge)
	require.NotErrorIs(t, c.errs[2], idem.ErrTooLarge, "its partition is not known")
	require.ErrorContains(t, c.errs[0], "too large")
	p.away.note(probe, []int32{0}, nil, &at)
	c, all = refused(p, msgs)
	c.sendAlone(t.Context(), all)
	for _, err := range c.errs {
		require.ErrorIs(t, err, idem.ErrTooLarge)
	}
}

// TestSendAlone_NoNewProbe_T04: while a message is sent alone, no probe begins.
func TestSendAlone_NoNewProbe_T04(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders", "away"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), append(messages("orders", 0, 1), messages("away", 0, 1)...)))
	away := messages("away", 1, 2)
	p.away.note(ToSarama(away[0]), []int32{0}, io.EOF, nil)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if err := p.ProduceEach(t.Context(), away)[0]; !errors.Is(err, errNotSent) || !errors.Is(err, errPartitionAway) {
			t.Errorf("%v", err)
		}
		return nil, nil, false
	})
	c, all := refused(p, messages("orders", 1, 2))
	c.sendAlone(t.Context(), all)
	noErrors(t, c.errs)
	noErrors(t, p.ProduceEach(t.Context(), away))
}

// TestSendAlone_ContextOver: after the end of the context no message is sent. The results of
// messages that were cut would be taken for those of others, and a message would not be alone.
func TestSendAlone_ContextOver(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 1)))
	var produced, asked atomic.Int64
	for key, count := range map[kmsg.Key]*atomic.Int64{kmsg.Produce: &produced, kmsg.Metadata: &asked} {
		cluster.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			count.Add(1)
			return nil, nil, false
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		c, all := refused(p, messages("orders", 1, 4))
		c.sendAlone(ctx, all)
		for _, err := range c.errs {
			require.Error(t, err)
			require.NotErrorIs(t, err, errNoAnswer)
		}
		for _, err := range p.ProduceEach(ctx, append(messages("orders", 1, 4), messages("elsewhere", 1, 4)...)) {
			require.ErrorIs(t, err, errNotSent)
			require.ErrorIs(t, err, context.Canceled)
		}
	}
	require.Zero(t, produced.Load())
	p.topics.running.Wait()
	require.Zero(t, asked.Load(), "the brokers are asked for no topic either")
}
