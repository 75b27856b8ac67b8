package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// The engine against a model, under failures of all kinds. Each event takes effect once or is
// dead-lettered, and events of one key keep their order.
func TestBatchTx_Random(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("IDEM_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("IDEM_SEED=%d", seed)
	rounds := 400
	if testing.Short() {
		rounds = 50
	}
	for round := range rounds {
		rnd := rand.New(rand.NewPCG(seed, uint64(round)))
		if !t.Run(strconv.Itoa(round), func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) { randomBatches(t, rnd, b, s) })
		}) {
			return
		}
	}
}

func randomBatches(t *testing.T, rnd *rand.Rand, b *bench, s *groupStore) {
	poison := func(id string) bool { return id[len(id)-1] == '7' && id[1] == '0' }
	fails := func() error {
		switch rnd.IntN(60) {
		case 0:
			return errBoom
		case 1:
			panic(errBoom)
		case 2:
			return fmt.Errorf("%w: cut", dedup.ErrUnavailable)
		}
		return nil
	}
	single := func(_ context.Context, tx *groupTx, e idem.Event[payload]) error {
		if poison(e.ID) {
			return idem.Permanent(errBoom)
		}
		if err := fails(); err != nil {
			return err
		}
		tx.effects = append(tx.effects, e.ID)
		return nil
	}
	forever := idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit, InPlace: idem.Forever})
	idem.OnTx(b.router, "A", single, forever, idem.MaxBatch(1+rnd.IntN(40)))
	idem.OnBatchTx(b.router, "B", func(ctx context.Context, tx *groupTx, events []idem.Event[payload]) error {
		failed := idem.BatchError{}
		for i, e := range events {
			if poison(e.ID) {
				failed[i] = idem.Permanent(errBoom)
			}
		}
		if len(failed) > 0 {
			return failed
		}
		if err := fails(); err != nil {
			return err
		}
		tx.effects = append(tx.effects, ids(events)...)
		return nil
	}, forever, idem.MaxBatch(1+rnd.IntN(40)))
	hook := func(every int, errs ...error) func(int) error {
		return func(n int) error {
			if rnd.IntN(every) == 0 {
				return errs[rnd.IntN(len(errs))]
			}
			return nil
		}
	}
	lost := fmt.Errorf("%w: %w", dedup.ErrUnknownCommit, dedup.ErrUnavailable)
	s.before = func(n int) error {
		if n > 1 {
			return hook(10, dedup.ErrContended, dedup.ErrUnavailable)(n)
		}
		return hook(10, dedup.ErrUnavailable)(n)
	}
	s.commit, s.after = hook(20, lost), hook(20, lost)

	keys := 1 + rnd.IntN(12)
	var msgs []*idem.Message
	order := map[string][]string{} // by key, first appearances
	for i := range 20 + rnd.IntN(120) {
		n := rnd.IntN(60)
		id, key, typ := fmt.Sprintf("e%03d", n), fmt.Sprintf("k%d", n%keys), []string{"A", "B"}[n%2]
		msgs = append(msgs, keyed(typ, id, key, int64(i)))
		if !slices.Contains(order[key], id) && !poison(id) {
			order[key] = append(order[key], id)
		}
	}
	p := b.start()
	for from := 0; from < len(msgs); {
		to := min(len(msgs), from+1+rnd.IntN(50))
		ctx, stop := context.WithCancel(t.Context())
		if rnd.IntN(3) == 0 {
			time.AfterFunc(time.Duration(rnd.IntN(2000))*time.Millisecond, stop)
		}
		settled, err := p.HandleBatch(ctx, msgs[from:to])
		stop()
		require.True(t, err == nil || errors.Is(err, idem.ErrStopping), err)
		if rnd.IntN(4) == 0 { // a crash before the offsets were committed
			settled = rnd.IntN(settled + 1)
		}
		from += settled
	}
	got := map[string][]string{}
	for _, id := range s.effects {
		n, _ := strconv.Atoi(id[1:])
		key := fmt.Sprintf("k%d", n%keys)
		got[key] = append(got[key], id)
	}
	for key, want := range order {
		require.Equal(t, want, got[key], key)
	}
}
