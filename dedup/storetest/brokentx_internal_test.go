package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// Each case refutes the store with an operation that forgets the records of transactions.
func TestBrokenTxOperatorsFail(t *testing.T) {
	for _, c := range []struct {
		name  string
		store func(*twoWays) dedup.TxStore[*[]string]
		cases []string
	}{
		{"Inspect does not set Tx", func(s *twoWays) dedup.TxStore[*[]string] {
			return &hidesTx{s}
		}, []string{
			"tx: inspect tells the record of a transaction",
			"tx: inspect and forget find the records of both ways",
		}},
		{"Forget removes claims only", func(s *twoWays) dedup.TxStore[*[]string] {
			return &forgetsClaims{s}
		}, []string{
			"tx: forget, in every state, copies are Fresh again",
			"tx: inspect and forget find the records of both ways",
		}},
		{"Discard ends claims only", func(s *twoWays) dedup.TxStore[*[]string] {
			return &discardsClaims{s}
		}, []string{
			"tx: discard, in every state, copies are Dead",
			"tx: discard, a handled event is refused",
		}},
		{"Import makes claims only", func(s *twoWays) dedup.TxStore[*[]string] {
			return &importsClaims{s}
		}, []string{"tx: import is Done from then on"}},
		{"Import replaces known events", func(s *twoWays) dedup.TxStore[*[]string] {
			return &importReplaces{s}
		}, []string{"tx: import leaves known events as they are"}},
	} {
		for _, name := range c.cases {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				failure := txVerdictOf(t, name, c.store)
				require.NotEmpty(t, failure, "no case refutes the store")
				t.Log(failure)
				sound := func(s *twoWays) dedup.TxStore[*[]string] { return s }
				require.Empty(t, txVerdictOf(t, name, sound), "a sound store passes")
			})
		}
	}
}

// txVerdictOf runs one case against a store and returns its failure, or "".
func txVerdictOf(t *testing.T, name string,
	of func(*twoWays) dedup.TxStore[*[]string]) (failure string) {
	all := txOperatorTests[*[]string]()
	i := slices.IndexFunc(all, func(c txTest[*[]string]) bool { return c.name == name })
	require.GreaterOrEqual(t, i, 0, "no case %q", name)
	synctest.Test(t, func(t *testing.T) {
		store := &twoWays{Store: memstore.New(), txs: memstore.New()}
		h := TxHarness[*[]string]{
			Exec: func(_ context.Context, tx *[]string, effect string) error {
				*tx = append(*tx, effect)
				return nil
			},
			Count: func(_ testing.TB, _ dedup.TxStore[*[]string], effect string) (n int) {
				for _, e := range store.effects {
					if e == effect {
						n++
					}
				}
				return n
			},
		}
		r, ended := &recorder{TB: t}, make(chan struct{})
		go func() {
			defer close(ended)
			all[i].run(&txKit[*[]string]{TB: r, h: h, s: of(store), ctx: t.Context()})
		}()
		<-ended
		require.False(t, r.skipped, "%q was skipped", name)
		failure = r.failure
	})
	return failure
}

// twoWays keeps the records of transactions in a store of their own. Its transactions are the lists
// of their effects. Only one call may be under way.
type twoWays struct {
	*memstore.Store
	txs     *memstore.Store
	effects []string
}

func (s *twoWays) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request,
	answers []dedup.Answer, fn func(*[]string) ([]dedup.Completion, error)) error {
	t, held := dedup.NewToken(), make(map[dedup.Key]dedup.Completion)
	if err := s.txs.Claim(ctx, t, limit, reqs, answers); err != nil {
		return err
	}
	for i, r := range reqs {
		if answers[i].Verdict.Held() {
			held[r.Key] = completion(r.Held(t, answers[i]))
		}
	}
	if len(held) == 0 {
		return nil
	}
	var effects []string
	ends, err := fn(&effects)
	if err != nil {
		return err
	}
	for _, end := range ends {
		end.Token = t
		held[end.Key] = end
	}
	s.effects = append(s.effects, effects...)
	for _, end := range held {
		err = errors.Join(err, s.txs.Complete(ctx, []dedup.Completion{end}))
	}
	return err
}

func (s *twoWays) Inspect(ctx context.Context, keys ...dedup.Key) (all []dedup.Record, err error) {
	for _, key := range keys {
		claims, _ := s.Store.Inspect(ctx, key)
		txs, _ := s.txs.Inspect(ctx, key)
		for i := range txs {
			txs[i].Tx = true
		}
		all = append(append(all, claims...), txs...)
	}
	return all, nil
}

func (s *twoWays) Forget(ctx context.Context, key dedup.Key) error {
	claims, txs := s.Store.Forget(ctx, key), s.txs.Forget(ctx, key)
	if claims == nil || txs == nil {
		return nil
	}
	return claims
}

func (s *twoWays) Discard(ctx context.Context, key dedup.Key, retention time.Duration,
	why string) error {
	claims, _ := s.Store.Inspect(ctx, key)
	txs, _ := s.txs.Inspect(ctx, key)
	if len(txs) > 0 && len(claims) == 0 {
		return s.txs.Discard(ctx, key, retention, why)
	}
	return errors.Join(s.Store.Discard(ctx, key, retention, why),
		s.txs.Discard(ctx, key, retention, why))
}

func (s *twoWays) Reopen(ctx context.Context, key dedup.Key) (dedup.Position, error) {
	return s.txs.Reopen(ctx, key)
}

func (s *twoWays) Import(ctx context.Context, events []dedup.Imported) (added int, err error) {
	for _, e := range events {
		of := s.Store
		if e.Tx {
			of = s.txs
		}
		n, err := of.Import(ctx, []dedup.Imported{e})
		if err != nil {
			return added, err
		}
		added += n
	}
	return added, nil
}

type hidesTx struct{ *twoWays }

func (s *hidesTx) Inspect(ctx context.Context, keys ...dedup.Key) ([]dedup.Record, error) {
	all, err := s.twoWays.Inspect(ctx, keys...)
	for i := range all {
		all[i].Tx = false
	}
	return all, err
}

type forgetsClaims struct{ *twoWays }

func (s *forgetsClaims) Forget(ctx context.Context, key dedup.Key) error {
	return s.Store.Forget(ctx, key)
}

type discardsClaims struct{ *twoWays }

func (s *discardsClaims) Discard(ctx context.Context, key dedup.Key, retention time.Duration,
	why string) error {
	return s.Store.Discard(ctx, key, retention, why)
}

type importsClaims struct{ *twoWays }

func (s *importsClaims) Import(ctx context.Context, events []dedup.Imported) (int, error) {
	return s.Store.Import(ctx, events)
}

type importReplaces struct{ *twoWays }

func (s *importReplaces) Import(ctx context.Context, events []dedup.Imported) (int, error) {
	known := 0
	for _, e := range events {
		if s.txs.Forget(ctx, e.Key) == nil {
			known++
		}
	}
	added, err := s.twoWays.Import(ctx, events)
	return added - known, err
}
