package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// lasting is a store that keeps for how long it is asked to keep things.
type lasting struct {
	*spy
	leases, retentions map[time.Duration]int
}

func (s *lasting) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, a []dedup.Answer) error {
	s.leases[lease]++
	for _, r := range reqs {
		s.retentions[r.Retention]++
	}
	return s.spy.Claim(ctx, t, lease, reqs, a)
}

func (s *lasting) Renew(ctx context.Context, lease time.Duration, c []dedup.Claim) error {
	s.leases[lease]++
	return s.spy.Renew(ctx, lease, c)
}

func (s *lasting) Complete(ctx context.Context, done []dedup.Completion) error {
	for _, c := range done {
		s.retentions[c.Retention]++
	}
	return s.spy.Complete(ctx, done)
}

func (s *lasting) Release(ctx context.Context, back []dedup.Release) error {
	for _, r := range back {
		s.retentions[r.Retention]++
	}
	return s.spy.Release(ctx, back)
}

// Rule 8: a store is asked for the same lease and the same retention for each age of an event and
// each end.
func TestRetention_IsNotCountedFromTheEvent_Rule8(t *testing.T) {
	for name, age := range map[string]time.Duration{"old": 1000 * time.Hour, "new": 0, "ahead": -1000 * time.Hour} {
		for _, way := range []string{"on", "batch"} {
			t.Run(name+"/"+way, func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					s := &lasting{spy: b.store, leases: map[time.Duration]int{}, retentions: map[time.Duration]int{}}
					b.cfg.Store = s
					opts := []idem.Option{idem.Retention(time.Hour), idem.WhenTooOld(idem.RunTooOld), idem.RetryTopics(time.Second),
						idem.Retry(idem.RetryPolicy{MaxAttempts: 2})}
					handle := func(e idem.Event[payload]) error {
						switch e.ID {
						case "e001":
							return idem.Permanent(errBoom)
						case "e002":
							return errBoom
						}
						time.Sleep(b.cfg.Lease / 2) // it is renewed
						return nil
					}
					if way == "on" {
						b.on(func(_ context.Context, e idem.Event[payload]) error { return handle(e) }, opts...)
					} else {
						b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
							named := idem.BatchError{}
							for i, e := range events {
								named[i] = handle(e)
							}
							return named
						}, opts...)
					}
					p := b.start()
					msgs := series(5)
					for _, m := range msgs {
						m.Time = time.Now().Add(-age)
					}
					settle := func(msgs ...*idem.Message) {
						t.Helper()
						n, err := p.HandleBatch(t.Context(), msgs)
						require.NoError(t, err)
						require.Equal(t, len(msgs), n)
					}
					settle(msgs...)
					require.Len(t, b.sent.deadLetters(), 2, "a dead letter and a delayed copy")
					time.Sleep(time.Minute)
					ran := b.count("complete: done")
					settle(msgs...)
					require.Equal(t, ran, b.count("complete: done"), "they are remembered")
					time.Sleep(time.Hour)
					settle(msgs[0])
					require.Equal(t, ran+1, b.count("complete: done"), "and forgotten")
					require.Len(t, s.leases, 1)
					require.Positive(t, s.leases[b.cfg.Lease])
					require.Len(t, s.retentions, 1)
					require.Positive(t, s.retentions[time.Hour])
				})
			})
		}
	}
}
