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
	// fetchBytes is the size of one answer; a broker sends at least one batch, however large.
	fetchBytes = 1 << 20
	fetchMost  = 1 << 30
	fetchWait  = 250 * time.Millisecond
	// fetchTries is the number of failed requests in a row.
	fetchTries   = 8
	fetchVersion = 10
)

// spanReader reads one span.
type spanReader struct {
	Span
	client sarama.Client
	at     int64 // next offset
	bytes  int32
	strict bool // deleted records are an error
}

// DeletedError means that records of a span were deleted before they were read.
type DeletedError struct {
	Topic     string
	Partition int32
	From, To  int64 // the deleted offsets, before To
}

// Error names the offsets.
func (e *DeletedError) Error() string {
	return fmt.Sprintf("records of %s/%d were deleted: offsets %d to %d", e.Topic, e.Partition,
		e.From, e.To-1)
}

// ReadFrom calls yield with the records of a span, in order, and returns the next offset to read.
// After nil that is the end of the span, or the first offset of a transaction that is still open.
// After an error of yield it is the offset of the record that yield refused.
//
// The error is a [*DeletedError] if records of the span were deleted: continue at To. Any other
// error is that of yield, the cause of ctx, or an error of the brokers after some tries.
func ReadFrom(
	ctx context.Context, client sarama.Client, s Span, yield func(*idem.Message) error,
) (next int64, err error) {
	r := &spanReader{Span: s, client: client, at: s.Begin, bytes: fetchBytes, strict: true}
	_, err = r.readSpan(ctx, func(m *idem.Message) (bool, error) {
		err := yield(m)
		return err == nil, err
	})
	if err == nil && r.at > r.End {
		return r.End, nil
	}
	return r.at, err
}

// Read calls yield with the records of a span, in order, until yield returns false; more is then
// false. Records of uncommitted transactions are left out, and Read ends early at a transaction
// that is still open. An error of yield is returned as it is. If ctx ends, Read returns the cause
// of ctx after the current request. The caller may keep the messages.
func Read(
	ctx context.Context, client sarama.Client, s Span, yield func(*idem.Message) (bool, error),
) (more bool, err error) {
	r := &spanReader{Span: s, client: client, at: s.Begin, bytes: fetchBytes}
	return r.readSpan(ctx, yield)
}

func (r *spanReader) readSpan(
	ctx context.Context, yield func(*idem.Message) (bool, error),
) (more bool, err error) {
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
			// An empty batch: its records were compacted away. sarama does not report its length.
			if idle++; idle > 1 {
				r.at++
				idle = 0
			}
		}
	}
	return true, nil
}

// fetch sends a request, and repeats it after a temporary error. It returns nil if the records were
// deleted meanwhile.
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
		// the leader may have changed; if not, the next try returns the error
		_ = r.client.RefreshMetadata(r.Topic)
	}
}

func (r *spanReader) fetchOnce() (*sarama.FetchResponseBlock, error) {
	broker, err := r.client.Leader(r.Topic, r.Partition)
	if err != nil {
		return nil, err
	}
	req := &sarama.FetchRequest{
		Version: fetchVersion, MaxWaitTime: int32(fetchWait / time.Millisecond), MinBytes: 1,
		MaxBytes:  r.bytes,
		Isolation: sarama.ReadCommitted, SessionEpoch: -1,
	}
	req.AddBlock(r.Topic, r.Partition, r.at, r.bytes, -1)
	res, err := broker.Fetch(req)
	if err != nil {
		_ = broker.Close() // reopened by the next Leader call
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

// skipDeleted continues after records that were deleted during the read.
func (r *spanReader) skipDeleted() error {
	begin, err := r.client.GetOffset(r.Topic, r.Partition, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	if begin <= r.at {
		return fmt.Errorf("offset %d: %w", r.at, sarama.ErrOffsetOutOfRange)
	}
	if r.strict {
		return &DeletedError{r.Topic, r.Partition, r.at, min(begin, r.End)}
	}
	r.at = begin
	return nil
}

// read passes the records of an answer to yield.
func (r *spanReader) read(
	block *sarama.FetchResponseBlock, yield func(*idem.Message) (bool, error),
) (more bool, err error) {
	aborted := block.AbortedTransactions
	slices.SortFunc(aborted, func(a, b *sarama.AbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
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

// isAbort reports whether a control batch aborts a transaction. The key of its record has a version
// and a type.
func isAbort(b *sarama.RecordBatch) bool {
	return len(b.Records) > 0 && len(b.Records[0].Key) >= 4 &&
		binary.BigEndian.Uint16(b.Records[0].Key[2:]) == 0
}

func (r *spanReader) readBatch(
	b *sarama.RecordBatch, yield func(*idem.Message) (bool, error),
) (more bool, err error) {
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
			Topic: r.Topic, Partition: r.Partition, Offset: offset, Key: rec.Key, Value: rec.Value,
			Headers: rec.Headers, Timestamp: at,
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
