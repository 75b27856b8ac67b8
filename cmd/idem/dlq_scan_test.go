package main

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
)

// A span is read to its end, whatever stands there: marks of transactions, records of those that were given up, records
// larger than an answer; and no further than it reached when it was looked at (rule 34).
func TestReadSpanKnowsTheEnd(t *testing.T) {
	w := newLetterWorld(t)
	ctx := t.Context()
	plainly := func(values ...string) {
		for _, v := range values {
			require.NoError(t, w.producer.Produce(ctx, &idem.Message{Topic: "orders.g.dlq", Key: []byte("k"), Value: []byte(v), Time: time.Now()}))
		}
	}
	admin, err := sarama.NewClusterAdminFromClient(w.client)
	require.NoError(t, err)
	most := "5000000"
	require.NoError(t, admin.AlterConfig(sarama.TopicResource, "orders.g.dlq", map[string]*string{"max.message.bytes": &most}, false))
	large := string(bytes.Repeat([]byte("x"), 3<<20))
	plainly("a", large, "b")
	client, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("orders.g.dlq"))
	require.NoError(t, err)
	defer client.Close()
	for i, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(ctx, &kgo.Record{Key: []byte("k"), Value: fmt.Append(nil, "tx", i)}).FirstErr())
		require.NoError(t, client.EndTransaction(ctx, how))
	}

	var got []string
	for _, m := range w.letters() {
		got = append(got, string(m.Value[:min(len(m.Value), 5)]))
	}
	require.Equal(t, []string{"a", "xxxxx", "b", "tx0", "tx2"}, got)

	// What is written behind the end is not read; what is deleted before the reader comes is not missed.
	spans, err := spansOf(w.client, "orders.g.dlq")
	require.NoError(t, err)
	plainly("later")
	var id int32
	for _, s := range spans {
		if s.end > 0 {
			id = s.partition
		}
	}
	require.NoError(t, admin.DeleteRecords("orders.g.dlq", map[int32]int64{id: 2}))
	got = nil
	scanned, err := scanSpans(ctx, w.client, spans, func(l *foundLetter) (bool, error) {
		got = append(got, string(l.record.Value))
		return true, nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"b", "tx0", "tx2"}, got)
	require.Equal(t, 3, scanned)
}

// A transaction that is open is not waited for.
func TestReadSpanStopsAtAnOpenTransaction(t *testing.T) {
	w := newLetterWorld(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("orders.g.dlq"))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.BeginTransaction())
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Value: []byte("open")}).FirstErr())
	require.Empty(t, w.letters())
	require.NoError(t, client.EndTransaction(t.Context(), kgo.TryCommit))
	require.Len(t, w.letters(), 1)
}

// scanLetters stops when it is told to, and passes on what its caller says.
func TestScanLetters(t *testing.T) {
	w := newLetterWorld(t)
	w.fail(w.events("e", 5)...)
	s := w.open()
	n := 0
	scanned, err := s.app.scanLetters(t.Context(), []string{"orders.g.dlq"}, letterFilter{types: []string{"paid"}}, func(l *foundLetter) (bool, error) {
		require.Equal(t, "orders", l.letter.Message.Topic)
		n++
		return n < 3, nil
	})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, 3, scanned)
	_, err = s.app.scanLetters(t.Context(), []string{"orders.g.dlq"}, letterFilter{}, func(*foundLetter) (bool, error) { return true, errBroken })
	require.ErrorIs(t, err, errBroken)
	_, err = s.app.scanLetters(t.Context(), []string{"nowhere"}, letterFilter{}, nil)
	require.True(t, errors.Is(err, sarama.ErrUnknownTopicOrPartition), "%v", err)
}
