package kafkalog

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
)

const (
	fetchBytes   = 1 << 20 // of one answer; a broker sends at least one batch, however large
	fetchMost    = 1 << 30
	fetchWait    = 250 * time.Millisecond
	fetchTries   = 8 // without an answer, in a row
	fetchVersion = 10
)

// spanReader is where the reading of a span is.
type spanReader struct {
	Span
	client sarama.Client
	at     int64 // next
	bytes  int32
}

// Read calls yield with the records of a span that belong to committed transactions, or to none, in order, until it returns
// false; more is false then. It ends before the span does at a transaction that is still open. An error of yield is returned as
// it is. The end of ctx ends it between two answers of the broker, with the cause of ctx. A message is the caller's to keep.
func Read(ctx context.Context, client sarama.Client, s Span, yield func(*idem.Message) (bool, error)) (more bool, err error) {
	r := &spanReader{Span: s, client: client, at: s.Begin, bytes: fetchBytes}
	idle := 0
	for r.at < r.End {
		block, err := r.fetch(ctx)
		if err != nil {
			return false, fmt.Errorf("read %s/%d at offset %d: %w", r.Topic, r.Partition, r.at, err)
		}
		if block == nil {
			continue
		}
		at := r.at
		if more, err := r.read(block, yield); err != nil || !more {
			return more, err
		}
		switch {
		case r.at > at:
			idle = 0
		case r.at >= block.LastStableOffset:
			return true, nil
		default:
			// Nothing is there: a batch whose records were compacted away, of which sarama does not say how long it is.
			if idle++; idle > 1 {
				r.at++
				idle = 0
			}
		}
	}
	return true, nil
}

// fetch asks once, and again after an error that may pass. It returns nil if there is nothing to be read after all.
func (r *spanReader) fetch(ctx context.Context) (*sarama.FetchResponseBlock, error) {
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		block, err := r.fetchOnce()
		switch {
		case err == nil && block.Partial:
			if r.bytes >= fetchMost {
				return nil, errors.New("a batch is larger than 1 GiB")
			}
			r.bytes *= 2
			continue
		case err == nil:
			return block, nil
		case errors.Is(err, sarama.ErrOffsetOutOfRange):
			return nil, r.skipDeleted()
		case try == fetchTries, errors.Is(err, sarama.ErrTopicAuthorizationFailed):
			return nil, err
		}
		if err := wait(ctx, time.Duration(try)*100*time.Millisecond); err != nil {
			return nil, err
		}
		_ = r.client.RefreshMetadata(r.Topic) // the leader may be another one; if not, the next try says what is wrong
	}
}

func (r *spanReader) fetchOnce() (*sarama.FetchResponseBlock, error) {
	broker, err := r.client.Leader(r.Topic, r.Partition)
	if err != nil {
		return nil, err
	}
	req := &sarama.FetchRequest{
		Version: fetchVersion, MaxWaitTime: int32(fetchWait / time.Millisecond), MinBytes: 1, MaxBytes: r.bytes,
		Isolation: sarama.ReadCommitted, SessionEpoch: -1,
	}
	req.AddBlock(r.Topic, r.Partition, r.at, r.bytes, -1)
	res, err := broker.Fetch(req)
	if err != nil {
		_ = broker.Close() // opened again by the next who asks for the leader
		return nil, err
	}
	block := res.GetBlock(r.Topic, r.Partition)
	switch {
	case block == nil:
		return nil, sarama.ErrIncompleteResponse
	case block.Err != sarama.ErrNoError:
		return nil, block.Err
	}
	return block, nil
}

// skipDeleted goes on behind what was deleted while it was being read.
func (r *spanReader) skipDeleted() error {
	begin, err := r.client.GetOffset(r.Topic, r.Partition, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	if begin <= r.at {
		return fmt.Errorf("offset %d: %w", r.at, sarama.ErrOffsetOutOfRange)
	}
	r.at = begin
	return nil
}

// read takes the records out of an answer.
func (r *spanReader) read(block *sarama.FetchResponseBlock, yield func(*idem.Message) (bool, error)) (more bool, err error) {
	aborted := block.AbortedTransactions
	slices.SortFunc(aborted, func(a, b *sarama.AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	rejected := make(map[int64]bool)
	for _, set := range block.RecordsSet {
		b := set.RecordBatch
		if b == nil {
			return false, errors.New("messages of a format older than Kafka 0.11 are not read")
		}
		for len(aborted) > 0 && aborted[0].FirstOffset <= b.LastOffset() {
			rejected[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		switch {
		case b.Control:
			if isAbort(b) {
				delete(rejected, b.ProducerID)
			}
		case b.IsTransactional && rejected[b.ProducerID]:
		default:
			if more, err := r.readBatch(b, yield); err != nil || !more {
				return more, err
			}
		}
		r.at = max(r.at, b.LastOffset()+1)
	}
	return true, nil
}

// isAbort reports whether a control batch ends a transaction that was given up: its key is a version and a type.
func isAbort(b *sarama.RecordBatch) bool {
	return len(b.Records) > 0 && len(b.Records[0].Key) >= 4 && binary.BigEndian.Uint16(b.Records[0].Key[2:]) == 0
}

func (r *spanReader) readBatch(b *sarama.RecordBatch, yield func(*idem.Message) (bool, error)) (more bool, err error) {
	for _, rec := range b.Records {
		offset := b.FirstOffset + rec.OffsetDelta
		if offset < r.at || offset >= r.End {
			continue
		}
		at := b.FirstTimestamp.Add(rec.TimestampDelta)
		if b.LogAppendTime {
			at = b.MaxTimestamp
		}
		more, err := yield(consumer.FromSarama(&sarama.ConsumerMessage{
			Topic: r.Topic, Partition: r.Partition, Offset: offset, Key: rec.Key, Value: rec.Value, Headers: rec.Headers, Timestamp: at,
		}))
		if err != nil || !more {
			return more, err
		}
		r.at = offset + 1
	}
	return true, nil
}

// wait sleeps for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
