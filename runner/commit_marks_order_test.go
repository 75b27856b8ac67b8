package runner

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seenMarks is a session that commits directly while a mark is on its way to it.
type seenMarks struct {
	*fakeSession
	meanwhile func()
	confirms  sync.WaitGroup
	unseen    map[TopicPartition]int64 // committed directly before the session had the mark
}

func (s *seenMarks) Mark(p TopicPartition, next int64) {
	s.confirms.Go(s.meanwhile)
	_ = Pause(s.ctx, 50*time.Millisecond) // a direct commit of the mark comes now, if it may
	s.fakeSession.Mark(p, next)
}

func (s *seenMarks) CommitDirectly(
	_ context.Context, offsets map[TopicPartition]int64,
) (map[TopicPartition]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, next := range offsets {
		if s.marks[p] != next {
			s.unseen[p] = next
		}
	}
	return map[TopicPartition]error{}, nil
}

// TestMarks_Unseen_K03: a direct commit has no mark that the client has not. The client's next
// commit would be an older one, although the newer offset counts as confirmed.
func TestMarks_Unseen_K03(t *testing.T) {
	p := TopicPartition{"orders", 0}
	s := &seenMarks{
		fakeSession: newFakeSession(t.Context()), unseen: make(map[TopicPartition]int64),
	}
	m := newMarks(&Group{}, s)
	m.observe = (&commitHealth{}).observe
	s.meanwhile = func() { _ = m.commitDirectly(t.Context(), p, 2) }
	m.set(p, 2)
	s.confirms.Wait()
	require.Empty(t, s.unseen)
}
