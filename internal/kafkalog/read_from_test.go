package kafkalog

import (
	"errors"
	"fmt"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
)

// ReadFrom returns where it stopped: at the end of the span, which may be the marker of a
// transaction, at a refused record, at an open transaction, and at deleted records.
func TestReadFrom(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.TransactionalID("tx"),
		kgo.DefaultProduceTopic("log"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer client.Close()
	write := func(n int, how kgo.TransactionEndTry) {
		require.NoError(t, client.BeginTransaction())
		for i := range n {
			require.NoError(t,
				client.ProduceSync(ctx, &kgo.Record{Value: fmt.Append(nil, i)}).FirstErr())
		}
		require.NoError(t, client.EndTransaction(ctx, how))
	}
	write(2, kgo.TryCommit) // 0, 1, marker 2
	write(1, kgo.TryAbort)  // 3, marker 4
	stable, err := Stable(w.client, "log", 0)
	require.NoError(t, err)
	require.EqualValues(t, 5, stable)
	var got []int64
	read := func(begin, end int64, yield func(*idem.Message) error) (int64, error) {
		got = nil
		return ReadFrom(ctx, w.client, Span{Topic: "log", Begin: begin, End: end},
			func(m *idem.Message) error {
				if yield != nil {
					if err := yield(m); err != nil {
						return err
					}
				}
				got = append(got, m.Offset)
				return nil
			})
	}
	for _, end := range []int64{5, 4, 3} { // a marker, an aborted record, a marker
		next, err := read(0, end, nil)
		require.NoError(t, err)
		require.Equal(t, end, next)
		require.Equal(t, []int64{0, 1}, got)
	}
	full := errors.New("full")
	next, err := read(0, 5, func(m *idem.Message) error {
		if m.Offset == 1 {
			return full
		}
		return nil
	})
	require.ErrorIs(t, err, full)
	require.EqualValues(t, 1, next)

	require.NoError(t, client.BeginTransaction())
	require.NoError(t, client.ProduceSync(ctx, &kgo.Record{Value: []byte("open")}).FirstErr())
	stable, err = Stable(w.client, "log", 0)
	require.NoError(t, err)
	require.EqualValues(t, 5, stable)
	next, err = read(0, 6, nil)
	require.NoError(t, err)
	require.EqualValues(t, 5, next)
	require.NoError(t, client.EndTransaction(ctx, kgo.TryCommit))
	next, err = read(0, 6, nil)
	require.NoError(t, err)
	require.EqualValues(t, 6, next)

	admin, err := sarama.NewClusterAdminFromClient(w.client)
	require.NoError(t, err)
	require.NoError(t, admin.DeleteRecords("log", map[int32]int64{0: 2}))
	next, err = read(1, 6, nil)
	var deleted *DeletedError
	require.ErrorAs(t, err, &deleted)
	require.Equal(t, DeletedError{Topic: "log", From: 1, To: 2}, *deleted)
	require.EqualValues(t, 1, next)
	require.ErrorContains(t, err, "offsets 1 to 1")
	require.Empty(t, got)

	_, err = Stable(w.client, "missing", 0)
	require.Error(t, err)
}
