package kgoidem

import (
	"context"
	"slices"
	"sync"

	"github.com/idem-go/idem/dedup"
)

// recalling is a store that keeps the last progress of each partition.
type recalling struct {
	dedup.Store
	mu       sync.Mutex
	progress map[partition]dedup.Progress
}

func newRecalling() *recalling {
	return &recalling{Store: forever(), progress: make(map[partition]dedup.Progress)}
}

// RecordProgress implements dedup.ProgressRecorder.
func (s *recalling) RecordProgress(_ context.Context, _ string, progress []dedup.Progress) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range progress {
		s.progress[partition{Topic: p.Topic, Partition: p.Partition}] = p
	}
	return nil
}

// Progress implements dedup.ProgressRecorder.
func (s *recalling) Progress(_ context.Context, _ string, topics ...string) (all []dedup.Progress, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.progress {
		if slices.Contains(topics, p.Topic) {
			all = append(all, p)
		}
	}
	return all, nil
}

func (s *recalling) of(topic string, id int32) dedup.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress[partition{Topic: topic, Partition: id}]
}
