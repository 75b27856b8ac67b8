package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// recorder is a store that keeps the progress it is told.
type recorder struct {
	*spy
	mu    sync.Mutex
	all   []recorded
	fail  error
	hang  time.Duration
	check func(dedup.Progress)
}

type recorded struct {
	after time.Duration
	dedup.Progress
}

func (r *recorder) RecordProgress(ctx context.Context, _ string, progress []dedup.Progress) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hang > 0 {
		select {
		case <-time.After(r.hang):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if r.fail != nil {
		return r.fail
	}
	for _, p := range progress {
		if r.check != nil {
			r.check(p)
		}
		r.all = append(r.all, recorded{after: time.Since(bubbleBegan), Progress: p})
	}
	return nil
}

// bubbleBegan is when each bubble of synctest begins.
var bubbleBegan = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (r *recorder) Progress(_ context.Context, _ string, topics ...string) (known []dedup.Progress, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.all {
		if slices.Contains(topics, p.Topic) {
			known = append(known, p.Progress)
		}
	}
	return known, nil
}

// lines are the records, one a line.
func (r *recorder) lines() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.all {
		at := "-"
		if !p.Time.IsZero() {
			at = p.Time.Sub(bubbleBegan).String()
		}
		all = append(all, fmt.Sprintf("%s %s/%d %d at %s", p.after, p.Topic, p.Partition, p.Next, at))
	}
	return all
}

// inRecorderBubble has a store that wants to know progress.
func inRecorderBubble(t *testing.T, f func(t *testing.T, b *bench, r *recorder)) {
	t.Helper()
	inBubble(t, func(t *testing.T, b *bench) {
		r := &recorder{spy: b.store}
		b.cfg.Store = r
		f(t, b, r)
	})
}

// at is a message of partition 1. Its broker time is so many seconds into the test.
func at(offset int64) *idem.Message {
	return dated(fmt.Sprint(offset), fmt.Sprintf("e%d", offset), offset, bubbleBegan.Add(time.Duration(offset)*time.Second))
}

func batchOf(offsets ...int64) (msgs []*idem.Message) {
	for _, o := range offsets {
		msgs = append(msgs, at(o))
	}
	return msgs
}

// rule 8: a loop of one's own records where a partition begins, then how far it is settled, each 10
// s at most and when it is closed.
func TestOwnProgress_Rule8(t *testing.T) {
	inRecorderBubble(t, func(t *testing.T, b *bench, r *recorder) {
		b.on(succeed)
		p := b.start()
		for i := range int64(25) {
			n, err := p.HandleBatch(t.Context(), batchOf(100+2*i, 101+2*i))
			require.NoError(t, err)
			require.Equal(t, 2, n)
			time.Sleep(time.Second)
		}
		require.Equal(t, []string{"0s orders/1 100 at -", "10s orders/1 122 at 2m1s", "20s orders/1 142 at 2m21s"}, r.lines())
		require.NoError(t, p.Close())
		require.Equal(t, "25s orders/1 150 at 2m29s", r.lines()[3])
		require.Len(t, r.lines(), 4)
	})
}

// Rule 8: a message that was passed and is not settled holds the progress of its partition back,
// until the message has come again.
func TestOwnProgress_UnsettledHoldsItBack(t *testing.T) {
	for name, c := range map[string]struct {
		between [][]int64 // calls while the first message fails
		after   [][]int64 // and then
		want    int64
	}{
		"the rest comes again":                      {nil, [][]int64{{12, 13, 14}}, 15},
		"one by one":                                {nil, [][]int64{{12}, {13}, {14}}, 15},
		"the log has gaps":                          {nil, [][]int64{{12}, {13, 14, 900}}, 901},
		"others are given in spite of it":           {[][]int64{{15, 16}, {17}}, nil, 12},
		"and then it comes, but not what was there": {[][]int64{{15, 16}, {17}}, [][]int64{{12}}, 12},
		"and then all of it comes":                  {[][]int64{{15, 16}, {17}}, [][]int64{{12}, {13, 14}}, 18},
		"it comes out of order":                     {[][]int64{{15, 16}, {17}}, [][]int64{{14}, {12}, {13}}, 18},
	} {
		t.Run(name, func(t *testing.T) {
			inRecorderBubble(t, func(t *testing.T, b *bench, r *recorder) {
				broken := true
				b.cfg.Producer = nil // so that what fails is not settled
				b.on(func(_ context.Context, e idem.Event[payload]) error {
					if e.ID == "e12" && broken {
						return idem.Permanent(errBoom)
					}
					return nil
				})
				p := b.start()
				n, err := p.HandleBatch(t.Context(), batchOf(10, 11, 12, 13, 14))
				require.Error(t, err)
				require.Equal(t, 2, n)
				give := func(all [][]int64) {
					for _, offsets := range all {
						n, err := p.HandleBatch(t.Context(), batchOf(offsets...))
						require.NoError(t, err)
						require.Len(t, offsets, n)
					}
				}
				give(c.between)
				broken = false
				give(c.after)
				require.NoError(t, p.Close())
				last := r.all[len(r.all)-1]
				if c.want == 12 {
					require.LessOrEqual(t, last.Next, int64(14), "%v", r.lines())
					require.True(t, last.Time.Before(at(12).Time) || c.after != nil, "%v", r.lines())
				} else {
					require.Equal(t, c.want, last.Next, "%v", r.lines())
					require.Equal(t, at(c.want-1).Time, last.Time)
				}
			})
		})
	}
}

// rule 8: more unsettled messages than are remembered one by one hold the progress back as well,
// until all of them have come again.
func TestOwnProgress_ManyUnsettled(t *testing.T) {
	inRecorderBubble(t, func(t *testing.T, b *bench, r *recorder) {
		broken := true
		b.cfg.Producer = nil // so that what fails is not settled
		b.on(func(context.Context, idem.Event[payload]) error {
			if broken {
				return idem.Permanent(errBoom)
			}
			return nil
		})
		p := b.start()
		var many []*idem.Message
		for i := range int64(5000) {
			many = append(many, at(i))
		}
		n, err := p.HandleBatch(t.Context(), many)
		require.Error(t, err)
		require.Zero(t, n)
		broken = false
		for _, part := range [][]*idem.Message{many[:4100], batchOf(9000)} {
			_, err = p.HandleBatch(t.Context(), part)
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		_, err = p.HandleBatch(t.Context(), batchOf(9001))
		require.NoError(t, err)
		require.Equal(t, int64(0), r.all[len(r.all)-1].Next, "%v", r.lines())
		_, err = p.HandleBatch(t.Context(), many)
		require.NoError(t, err)
		_, err = p.HandleBatch(t.Context(), batchOf(9000, 9001, 9002))
		require.NoError(t, err)
		require.NoError(t, p.Close())
		require.Equal(t, int64(9003), r.all[len(r.all)-1].Next, "%v", r.lines())
	})
}

// Rule 8: the store has the offset of a loop that was set back, without a time until the loop has
// settled a record with one again. The store deletes no record meanwhile.
func TestOwnProgress_SetBack(t *testing.T) {
	inRecorderBubble(t, func(t *testing.T, b *bench, r *recorder) {
		b.on(succeed)
		p := b.start()
		for _, offsets := range [][]int64{{10, 11}, {12, 13}, {5, 6}} {
			_, err := p.HandleBatch(t.Context(), batchOf(offsets...))
			require.NoError(t, err)
			time.Sleep(11 * time.Second)
		}
		require.NoError(t, p.Close())
		require.Equal(t, []string{
			"0s orders/1 10 at -", "11s orders/1 14 at 13s", "22s orders/1 7 at 6s",
		}, r.lines())
	})
	inRecorderBubble(t, func(t *testing.T, b *bench, r *recorder) {
		b.cfg.Producer = nil // so that what fails is not settled
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "e5" {
				return idem.Permanent(errBoom)
			}
			return nil
		})
		p := b.start()
		for _, offsets := range [][]int64{{10, 11}, {12, 13}, {5, 6}} {
			_, _ = p.HandleBatch(t.Context(), batchOf(offsets...))
			time.Sleep(11 * time.Second)
		}
		require.NoError(t, p.Close())
		require.Contains(t, r.lines()[2], "orders/1 5 at -")
	})
}

// Rule 8: an assigned partition without messages holds the store back, unless the store knows the
// partition already. Runners that record progress themselves are left alone.
func TestOwnProgress_Assigned(t *testing.T) {
	inRecorderBubble(t, func(t *testing.T, b *bench, r *recorder) {
		b.on(succeed)
		require.NoError(t, r.RecordProgress(t.Context(), "g", []dedup.Progress{{Topic: "orders", Partition: 3, Next: 77}}))
		runner := b.start()
		runner.Assigned("orders", 2)
		require.NoError(t, runner.Settle(t.Context(), batchOf(9), func(int) {}))
		require.NoError(t, runner.Close())
		require.Len(t, r.lines(), 1, "it calls RecordProgress itself")

		p := b.start()
		for i := range int32(3) {
			p.Assigned("orders", i+1)
		}
		_, err := p.HandleBatch(t.Context(), batchOf(10))
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"0s orders/3 77 at -", "0s orders/2 0 at -", "0s orders/1 10 at -"}, r.lines())
		require.NoError(t, p.Close())
		require.Equal(t, "0s orders/1 11 at 10s", r.lines()[3])
	})
}

// Rule 8: unsettled messages of an earlier assignment do not hold the progress of the next one
// back.
func TestOwnProgress_AssignedAgain(t *testing.T) {
	inRecorderBubble(t, func(t *testing.T, b *bench, r *recorder) {
		b.cfg.Producer = nil // so that what fails is not settled
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "e11" {
				return idem.Permanent(errBoom)
			}
			return nil
		})
		p := b.start()
		_, err := p.HandleBatch(t.Context(), batchOf(10, 11, 12))
		require.Error(t, err)
		p.Assigned("orders", 1) // another member had it, and handled e11
		_, err = p.HandleBatch(t.Context(), batchOf(20, 21))
		require.NoError(t, err)
		require.NoError(t, p.Close())
		require.Equal(t, int64(22), r.all[len(r.all)-1].Next, "%v", r.lines())
	})
}

// A store that cannot be told is told of once, delays a call by a second at most, and is told
// later.
func TestOwnProgress_StoreThatFails(t *testing.T) {
	inRecorderBubble(t, func(t *testing.T, b *bench, r *recorder) {
		b.on(succeed)
		p := b.start()
		r.fail = errors.New("read only")
		for i := range int64(40) {
			if i == 20 {
				r.fail, r.hang = nil, time.Hour
			}
			began := time.Now()
			_, err := p.HandleBatch(t.Context(), batchOf(i))
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(began), 2*time.Second)
			time.Sleep(time.Second)
		}
		require.Empty(t, r.lines())
		require.Equal(t, 1, countOf(b, "progress cannot be recorded"))
		r.hang = 0
		require.NoError(t, p.Close())
		require.Equal(t, int64(40), r.all[0].Next)
		require.Equal(t, 1, countOf(b, "progress is recorded again"))
	})
}

func countOf(b *bench, text string) int {
	return strings.Count(b.log.String(), text)
}

// rule 8: with many calls at once something older than the newest settled message is open at any
// moment. Progress goes on nevertheless.
func TestOwnProgress_AlwaysBusy(t *testing.T) {
	inRecorderBubble(t, func(t *testing.T, b *bench, r *recorder) {
		const slow = "slow"
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			time.Sleep(time.Second / 4)
			if string(e.Message.Key) == slow {
				time.Sleep(4*time.Second - time.Second/4)
			}
			return nil
		})
		p := b.start()
		var mu sync.Mutex
		var next int64
		handle := func(key string, until time.Time) {
			for time.Now().Before(until) {
				mu.Lock()
				next++
				m := at(next)
				mu.Unlock()
				m.Key = []byte(key)
				require.NoError(t, p.Handle(t.Context(), m))
			}
		}
		until := time.Now().Add(time.Minute)
		var all sync.WaitGroup
		for i, key := range []string{slow, slow, "quick"} {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 2 * time.Second)
				handle(key, until)
			})
		}
		all.Wait()
		require.GreaterOrEqual(t, len(r.lines()), 6)
		for i, said := range r.all[2:] {
			require.False(t, said.Time.IsZero(), "%v", r.lines())
			require.Greater(t, said.Next, r.all[i+1].Next, "%v", r.lines())
		}
	})
}

// Rule 8 at random: several goroutines pass messages of two partitions in order and out of order.
// Some fail for a while and come again, others only at the end. No progress with a time is recorded
// beyond a message that was passed and is not settled.
func TestOwnProgress_Random(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(40) {
		if !t.Run(fmt.Sprintf("seed-%d", seed+i), func(t *testing.T) { ownProgressWalk(t, seed+i) }) {
			return
		}
	}
}

func ownProgressWalk(t *testing.T, seed uint64) {
	inRecorderBubble(t, func(t *testing.T, b *bench, r *recorder) {
		const events, workers = 300, 5
		var mu sync.Mutex
		source := rand.New(rand.NewPCG(seed, 0))
		draw := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return source.IntN(n)
		}
		var given, settled [2]map[int64]bool
		for i := range given {
			given[i], settled[i] = make(map[int64]bool), make(map[int64]bool)
		}
		r.check = func(p dedup.Progress) {
			mu.Lock()
			defer mu.Unlock()
			for offset := range given[p.Partition] {
				if offset < p.Next && !p.Time.IsZero() && !settled[p.Partition][offset] {
					t.Errorf("seed %d: progress of %d says %d, and %d is not settled", seed, p.Partition, p.Next, offset)
				}
			}
		}
		b.cfg.Producer = nil // so that what fails is not settled
		healed := false
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			mu.Lock()
			given[e.Message.Partition][e.Message.Offset] = true
			mu.Unlock()
			time.Sleep(time.Duration(draw(3000)) * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if source.IntN(15) == 0 && !healed {
				return idem.Permanent(errBoom)
			}
			settled[e.Message.Partition][e.Message.Offset] = true
			return nil
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit})) // a healed event must run
		p := b.start()
		var next int64
		var last [2]int64
		take := func() (msgs []*idem.Message) {
			mu.Lock()
			defer mu.Unlock()
			for range 1 + source.IntN(4) {
				if next++; next <= events {
					m := at(next)
					m.Partition = int32(source.IntN(2))
					last[m.Partition] = m.Offset
					msgs = append(msgs, m)
				}
			}
			return msgs
		}
		var all sync.WaitGroup
		var dropped []*idem.Message
		for range workers {
			all.Go(func() {
				for msgs := take(); len(msgs) > 0; {
					n, _ := p.HandleBatch(t.Context(), msgs)
					msgs = msgs[n:]
					mu.Lock()
					for _, m := range msgs {
						given[m.Partition][m.Offset] = true
					}
					if len(msgs) > 0 && source.IntN(4) == 0 { // they come at the end
						dropped, msgs = append(dropped, msgs...), nil
					}
					mu.Unlock()
					if len(msgs) == 0 {
						msgs = take()
					}
				}
			})
		}
		all.Wait()
		mu.Lock()
		healed = true
		mu.Unlock()
		for len(dropped) > 0 {
			n, err := p.HandleBatch(t.Context(), dropped)
			require.NoError(t, err)
			dropped = dropped[n:]
		}
		for i := range int32(2) { // the last messages
			m := at(events + 1 + int64(i))
			m.Partition = i
			require.NoError(t, p.Handle(t.Context(), m))
			last[i] = m.Offset
		}
		require.NoError(t, p.Close())
		final := make(map[int32]int64)
		for _, said := range r.all {
			final[said.Partition] = said.Next
		}
		require.Equal(t, map[int32]int64{0: last[0] + 1, 1: last[1] + 1}, final, "seed %d: %v", seed, r.lines())
	})
}

// Rule 8: the loop is set back while progress is being written. Afterwards the record has the
// offset that the loop was set back to.
func TestOwnProgress_SetBackWhileItIsWritten_Rule8(t *testing.T) {
	inRecorderBubble(t, func(t *testing.T, b *bench, r *recorder) {
		b.cfg.Producer = nil // so that what fails is not settled
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "e11" {
				return idem.Permanent(errBoom)
			}
			return nil
		})
		p := b.start()
		_, err := p.HandleBatch(t.Context(), batchOf(10))
		require.NoError(t, err)
		time.Sleep(11 * time.Second)
		r.check = func(said dedup.Progress) {
			if r.check = nil; said.Next == 14 {
				_, err := p.HandleBatch(t.Context(), batchOf(11))
				require.ErrorIs(t, err, idem.ErrNoProducer)
			}
		}
		_, err = p.HandleBatch(t.Context(), batchOf(12, 13))
		require.NoError(t, err)
		require.NoError(t, p.Close())
		lines := r.lines()
		require.Contains(t, lines[1], "orders/1 14 at 13s")
		require.NotContains(t, lines[len(lines)-1], "orders/1 14")
		require.Contains(t, lines[len(lines)-1], "at -")
	})
}
