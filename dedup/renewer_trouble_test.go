package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/faketime"
	"github.com/stretchr/testify/require"
)

// partlyDown is a store that cannot renew one of its keys.
type partlyDown struct {
	dedup.Store
	key   string
	fault func(context.Context) error
}

func (p partlyDown) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	if slices.ContainsFunc(claims, func(c dedup.Claim) bool { return c.Key.ID == p.key }) {
		return p.fault(ctx)
	}
	return p.Store.Renew(ctx, lease, claims)
}

// a key in a part of the store that is down, or whose record cannot be read, loses its own
// claim and no other.
func TestLeaseRenewerLosesOnlyTheClaimThatCannotBeRenewed(t *testing.T) {
	for name, fault := range map[string]func(context.Context) error{"refused": refuse, "hangs": hang} {
		for _, n := range []int{2, 10, 200, 512} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					defer faketime.Bound(t.Name())()
					bad := fmt.Sprintf("%03d", n/2)
					s := &probe{Store: partlyDown{memstore.New(), bad, fault}}
					k := dedup.NewLeaseRenewer(s, lease)
					defer k.Close()
					r := &rig{T: t, s: s, k: k}
					var held []context.Context
					for i := range n {
						_, ctx, stop := r.claim(fmt.Sprintf("%03d", i))
						defer stop()
						held = append(held, ctx)
					}
					time.Sleep(2*lease + time.Millisecond) // count from between two renewals, not from one
					isLost(t, held[n/2])
					for i, ctx := range slices.Delete(held, n/2, n/2+1) {
						require.NoError(t, ctx.Err(), i)
					}
					before := s.renews.Load()
					time.Sleep(2 * lease)
					require.LessOrEqual(t, s.renews.Load()-before, int64(2*2*3), "two calls for each third of a lease")
					require.Nil(t, s.wrong.Load(), "a call that no store has to serve")
				})
			})
		}
	}
}

// shardDown is a store of several servers, of which one is down. It has the keys with this ending.
type shardDown struct {
	dedup.Store
	ending string
}

func (d shardDown) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	var part dedup.PartError
	var up []dedup.Claim
	var at []int // the index of up[j] is at[j]
	for i, c := range claims {
		if strings.HasSuffix(c.Key.ID, d.ending) {
			part.Failed = append(part.Failed, i)
		} else {
			up, at = append(up, c), append(at, i)
		}
	}
	err := d.Store.Renew(ctx, lease, up)
	if len(part.Failed) == 0 {
		return err
	}
	var lost *dedup.LostError
	if errors.As(err, &lost) {
		for _, j := range lost.Claims {
			part.Lost = append(part.Lost, at[j])
		}
	}
	part.Err = dedup.ErrUnavailable
	return fmt.Errorf("shards: %w", &part)
}

// many keys of a part of the store that is down lose their own claims, and no others. A claim
// of another worker is found at once.
func TestLeaseRenewerKeepsTheClaimsOfOtherServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer faketime.Bound(t.Name())()
		s := &probe{Store: shardDown{memstore.New(), "7"}}
		k := dedup.NewLeaseRenewer(s, lease)
		defer k.Close()
		r := &rig{T: t, s: s, k: k}
		var held []context.Context
		for i := range 300 {
			_, ctx, stop := r.claim(fmt.Sprintf("%03d", i))
			defer stop()
			held = append(held, ctx)
		}
		gone, lost, stop := r.claim("gone")
		defer stop()
		require.NoError(t, s.Release(t.Context(), []dedup.Release{{Claim: gone, Retention: time.Hour}}))
		time.Sleep(lease/3 + time.Millisecond)
		isLost(t, lost)
		time.Sleep(3 * lease)
		for i, ctx := range held {
			if i%10 == 7 {
				isLost(t, ctx)
			} else {
				require.NoError(t, ctx.Err(), i)
			}
		}
		require.Nil(t, s.wrong.Load(), "a call that no store has to serve")
	})
}

// an outage of the whole store makes few calls, and the first calls after it renew all.
func TestLeaseRenewerBoundsTheCallsOfAnOutage(t *testing.T) {
	for name, fault := range map[string]func(context.Context) error{"refused": refuse, "hangs": hang} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var held []context.Context
				for i := range 500 {
					_, ctx, stop := r.claim(fmt.Sprintf("%03d", i))
					defer stop()
					held = append(held, ctx)
				}
				r.s.renewing(fault)
				time.Sleep(lease * 8 / 10)
				calls := r.s.renews.Load()
				require.LessOrEqual(r, calls, int64(1+5*8), "eight calls for each twelfth of the lease")
				require.LessOrEqual(r, r.s.most.Load(), int64(8), "calls at the same time")
				r.s.renewing(nil)
				time.Sleep(lease * 2 / 10)
				require.LessOrEqual(r, r.s.renews.Load()-calls, int64(8), "all are renewed at once")
				for i, ctx := range held {
					require.NoError(r, ctx.Err(), i)
				}
			})
		})
	}
}
