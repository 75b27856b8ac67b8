package lane

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// noting is a processor that receives the progress of a partition.
type noting struct {
	fake
	mu    sync.Mutex
	notes []dedup.Progress
}

func (n *noting) NoteProgress(_ context.Context, p dedup.Progress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notes = append(n.notes, p)
}

// Rule 8: a lane reports where its partition begins before the first delivery is handled. Then it
// reports the watermark, with the time of the last message below it, and no offset beyond.
func TestPartition_NotesProgress_Rule8(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, lanes := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			n := &noting{}
			settled := make(map[int64]bool)
			n.fake = func(_ context.Context, m *idem.Message) error {
				n.mu.Lock()
				require.NotEmpty(t, n.notes, "no report before the first delivery was handled")
				n.mu.Unlock()
				time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
				n.mu.Lock()
				defer n.mu.Unlock()
				settled[m.Offset] = true
				return nil
			}
			p := start(n, "t", 3, Config{Lanes: lanes, Queue: 32, Batch: 5})
			for i := range int64(200) {
				m := message(10 + 3*i)
				m.Key, m.Time = []byte{byte(i % 7)}, began.Add(time.Duration(i)*time.Second)
				if i%50 == 49 {
					m.Time = time.Time{}
				}
				require.NoError(t, p.Push(t.Context(), m))
				n.mu.Lock()
				for _, note := range n.notes {
					for at := int64(10); at < note.Next; at += 3 {
						require.True(t, settled[at], "%d is not settled, and the progress is %d",
							at, note.Next)
					}
				}
				n.mu.Unlock()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.NoError(t, closeLane(t, p, nil))
			require.Equal(t, dedup.Progress{Topic: "t", Partition: 3, Next: 10}, n.notes[0])
			for _, note := range n.notes[1:] {
				at := began.Add(time.Duration((note.Next-11)/3) * time.Second)
				if (note.Next-11)/3%50 == 49 {
					at = time.Time{}
				}
				require.Equal(t, at, note.Time, "%v", note)
			}
			next, _ := p.Watermark()
			require.Equal(t, next, n.notes[len(n.notes)-1].Next)
		})
	}
}

// A runner that records progress itself gets no reports.
func TestPartition_OwnProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &noting{fake: func(context.Context, *idem.Message) error { return nil }}
		p := start(n, "t", 3, Config{OwnProgress: true})
		require.NoError(t, p.Push(t.Context(), message(1)))
		synctest.Wait()
		require.NoError(t, closeLane(t, p, nil))
		require.Empty(t, n.notes)
	})
}
