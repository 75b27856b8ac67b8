package kafkagoidem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/runner"
)

const (
	fetchBytes = 512 << 10 // of one answer
	fetchWait  = 500 * time.Millisecond
	fetchTime  = 30 * time.Second // bounds a request
)

// answer has the records of one partition that a leader has sent.
type answer struct {
	messages []*idem.Message // visible ones, from the asked offset on
	next     int64           // the offset behind the last record of any kind
	visible  int64           // the offset behind the last visible one; 0: none
}

// fetch asks the leader of a partition for the records from an offset on.
//
// The request is made by hand. The results of [kafka.Client.Fetch] and [kafka.Reader] lack the list
// of aborted transactions, so these two cannot read committed records only (K-30).
func (o offsets) fetch(ctx context.Context, p partition, from int64) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	got, err := o.cl.Transport.RoundTrip(ctx, o.addr, &fetch.Request{
		ReplicaID: -1, MaxWaitTime: int32(fetchWait / time.Millisecond), MinBytes: 1,
		MaxBytes: fetchBytes, IsolationLevel: onlyCommitted, SessionEpoch: -1,
		Topics: []fetch.RequestTopic{{Topic: p.Topic, Partitions: []fetch.RequestPartition{{
			Partition: p.Partition, CurrentLeaderEpoch: -1, FetchOffset: from, LogStartOffset: -1,
			PartitionMaxBytes: fetchBytes,
		}}}},
	})
	if err != nil {
		return answer{}, fmt.Errorf("fetch %s: %w", p, err)
	}
	response, ok := got.(*fetch.Response)
	if !ok {
		return answer{}, runner.ErrNoAnswer
	}
	if err := errorOf(response.ErrorCode); err != nil {
		return answer{}, fmt.Errorf("fetch %s: %w", p, err)
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return answer{}, runner.ErrNoAnswer
	}
	one := response.Topics[0].Partitions[0]
	if err := errorOf(one.ErrorCode); err != nil {
		return answer{}, fmt.Errorf("fetch %s: %w", p, err)
	}
	found, err := read(p, from, one)
	if err != nil {
		return answer{}, fmt.Errorf("fetch %s: %w", p, err)
	}
	return found, nil
}

// read takes the records of an answer, without those before the asked offset.
func read(p partition, from int64, one fetch.ResponsePartition) (answer, error) {
	found := answer{next: from}
	stream, ok := one.RecordSet.Records.(*protocol.RecordStream)
	if !ok {
		if one.RecordSet.Records != nil {
			return found, fmt.Errorf("records of type %T", one.RecordSet.Records)
		}
		return found, nil
	}
	aborted := newAborted(one.AbortedTransactions)
	for _, batch := range stream.Records {
		if err := found.batch(p, batch, aborted); err != nil {
			return found, err
		}
	}
	if found.next == from && len(stream.Records) > 0 {
		// Compaction has removed the rest of the batch. kafka-go does not pass on where the batch
		// ends, and the same offset would bring the same answer.
		found.next++
	}
	return found, nil
}

// logAppendTime marks a batch whose records have the time at which a broker appended them. kafka-go
// drops that time, and returns the times that the producer has set.
const logAppendTime = protocol.Attributes(1 << 3)

// batch takes the records of one batch.
func (a *answer) batch(p partition, batch protocol.RecordReader, aborted *aborted) error {
	control, isControl := batch.(*protocol.ControlBatch)
	data, isData := batch.(*protocol.RecordBatch)
	timed := !isData || data.Attributes&logAppendTime == 0
	for {
		r, err := batch.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		key, value, err := bytesOf(r)
		if err != nil {
			return err
		}
		hidden := isControl
		switch {
		case isControl:
			aborted.end(control.ProducerID, r.Offset)
		case isData && data.Attributes.Transactional():
			hidden = aborted.has(data.ProducerID, r.Offset)
		}
		if r.Offset < a.next {
			continue
		}
		if a.next = r.Offset + 1; !hidden {
			a.visible = a.next
			m := messageOf(p, r, key, value)
			if !timed {
				m.Time = time.Time{}
			}
			a.messages = append(a.messages, m)
		}
	}
}

// bytesOf copies key and value, and frees the buffers of kafka-go.
func bytesOf(r *protocol.Record) (key, value []byte, err error) {
	if key, err = bytesAndClose(r.Key); err == nil {
		value, err = bytesAndClose(r.Value)
	}
	return key, value, err
}

// bytesAndClose keeps nil and empty distinct.
func bytesAndClose(b protocol.Bytes) (all []byte, err error) {
	if b == nil {
		return nil, nil
	}
	all, err = protocol.ReadAll(b)
	if all == nil {
		all = []byte{}
	}
	return all, errors.Join(err, b.Close())
}

func messageOf(p partition, r *protocol.Record, key, value []byte) *idem.Message {
	m := &idem.Message{
		Topic: p.Topic, Partition: p.Partition, Offset: r.Offset, Key: key, Value: value, Time: r.Time,
	}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, idem.Header{Key: h.Key, Value: h.Value})
	}
	return m
}

// aborted knows the aborted transactions of an answer.
type aborted struct {
	left []fetch.ResponseTransaction // by first offset
	now  map[int64]bool              // producers with an aborted transaction that has begun
}

func newAborted(list []fetch.ResponseTransaction) *aborted {
	left := slices.SortedFunc(slices.Values(list), func(a, b fetch.ResponseTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	return &aborted{left: left, now: make(map[int64]bool)}
}

// has reports whether a transactional record of a producer is aborted. Records come in order.
func (a *aborted) has(producer, offset int64) bool {
	for len(a.left) > 0 && a.left[0].FirstOffset <= offset {
		a.now[a.left[0].ProducerID] = true
		a.left = a.left[1:]
	}
	return a.now[producer]
}

// end notes a marker, which ends the producer's transaction.
func (a *aborted) end(producer, offset int64) {
	a.has(producer, offset)
	delete(a.now, producer)
}
