package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// measure counts the results after the demonstration.
func (d *demo) measure(p plan, s *summary) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	letters, err := d.deadLetters(ctx)
	if err != nil {
		return fmt.Errorf("read the dead-letter topic: %w", err)
	}
	// A record that is redelivered after a kill may have two dead letters. Both count as one.
	given, values, origins := make(map[event]bool), make(map[string]bool), make(map[string]bool)
	for _, r := range letters {
		origins[header(r, deadletter.HeaderPartition)+"/"+header(r, deadletter.HeaderOffset)] = true
		values[string(r.Value)] = true
		given[event{header(r, deadletter.HeaderEventType), header(r, deadletter.HeaderEventID)}] = true
	}
	s.deadLettered = len(origins)
	for _, e := range p.events {
		taken, known := d.provider.taken[e] > 0, d.earlier.done[e]
		switch {
		case taken && known:
			s.repeats++
		case !taken && !known && !given[e]:
			s.lost++
		}
	}
	for _, v := range p.poison {
		if !values[v] && !d.earlier.dead[v] {
			s.lost++
		}
	}
	s.sent = len(d.provider.taken)
	s.repeats += d.provider.sends - s.sent
	s.mixups = d.provider.mixups
	s.deliveries, s.duplicates = int(d.counts.deliveries.Load()), int(d.counts.duplicates.Load())
	return nil
}

// deadLetters reads the dead-letter topic from beginning to end. A missing topic has no records.
func (d *demo) deadLetters(ctx context.Context) ([]*kgo.Record, error) {
	topic := deadletter.Topic(d.group)(d.topic)
	ends, err := d.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	switch err := ends.Error(); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return nil, nil
	case err != nil:
		return nil, err
	}
	want, from := int64(0), make(map[int32]kgo.Offset)
	for _, p := range ends[topic] {
		if p.Offset > 0 {
			want += p.Offset
			from[p.Partition] = kgo.NewOffset().At(0)
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(d.addrs...),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var letters []*kgo.Record
	for int64(len(letters)) < want {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		letters = append(letters, fetches.Records()...)
	}
	return letters, nil
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
