package runner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// newClaim is a claim without a committed offset.
type newClaim struct{ *fakeClaim }

func (c *newClaim) InitialOffset() int64 { return OffsetOldest }

// TestProgress_NoCommittedOffset_K19: a partition began without a committed offset, and a record was
// handled. A store gets the position after a broker has confirmed an offset of the group, not after
// a commit that may have failed. A question without an answer ends with its time, and the next
// round asks again. A partition that began at a committed offset needs no question.
func TestProgress_NoCommittedOffset_K19(t *testing.T) {
	type answer struct {
		offset int64 // negative: none
		err    error
		hangs  bool
	}
	none, found := answer{offset: -1}, answer{offset: 1}
	for name, c := range map[string]struct {
		begins  bool // at a committed offset
		answers []answer
		next    []int64 // of each round
		asked   int
	}{
		"confirmed":             {false, []answer{found}, []int64{1, 1}, 1},
		"no offset yet":         {false, []answer{none, none, found}, []int64{0, 0, 1, 1}, 3},
		"errors":                {false, []answer{{err: errTest, offset: 1}, found}, []int64{0, 1}, 2},
		"no answer":             {false, []answer{{hangs: true}, found}, []int64{0, 1}, 2},
		"a committed offset":    {true, []answer{none}, []int64{1}, 0},
		"the client cannot ask": {false, nil, []int64{1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, Config{}, func(context.Context, *idem.Message) error { return nil })
				asked := 0
				if c.answers != nil {
					g.Hooks.Committed = func(
						ctx context.Context, partitions map[string][]int32,
					) (map[TopicPartition]int64, error) {
						require.Equal(t, map[string][]int32{"t": {0}}, partitions)
						a := c.answers[asked]
						asked++
						if a.hangs {
							<-ctx.Done()
							return nil, context.Cause(ctx)
						}
						if a.offset < 0 {
							return nil, a.err
						}
						return map[TopicPartition]int64{at("t", 0): a.offset}, a.err
					}
				}
				ctx, end := context.WithCancelCause(t.Context())
				s := g.Begin(newFakeSession(ctx), map[string][]int32{"t": {0}})
				claim := &fakeClaim{at("t", 0), ctx, make(chan int64, 1)}
				ended := make(chan error, 1)
				claim.records <- 0
				var begun Claim = &newClaim{claim}
				if c.begins {
					begun = claim
				}
				go func() { ended <- Consume(s, begun, claim.feed(), 1) }()
				time.Sleep(2 * time.Second) // for the first commit
				var next []int64
				for range c.next {
					began := time.Now()
					next = append(next, s.progress()[0].Next)
					require.LessOrEqual(t, time.Since(began), EndsWait)
				}
				require.Equal(t, c.next, next)
				require.Equal(t, c.asked, asked)
				end(idem.ErrStopping)
				close(claim.records)
				require.NoError(t, <-ended)
				g.End(s, context.Cause(ctx))
				require.NoError(t, g.Close())
			})
		})
	}
}
