package idem_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// plainTx is a transaction without [dedup.TxChecker], like *sql.Tx.
type plainTx struct{ tx *groupTx }

// plainStore lends transactions that do not tell their state. The store finds the end after the
// handlers, as sqlstore does.
type plainStore struct{ *groupStore }

func (s plainStore) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request,
	answers []dedup.Answer, fn func(plainTx) ([]dedup.Completion, error),
) error {
	return s.groupStore.ClaimTx(ctx, limit, reqs, answers,
		func(tx *groupTx) ([]dedup.Completion, error) {
			done, err := fn(plainTx{tx})
			if tx.state == nil {
				return done, err
			}
			s.effects = append(s.effects, tx.effects...) // without a transaction
			ended := &dedup.TxEndedError{}
			if failed, ok := errors.AsType[*dedup.GroupError](err); ok {
				ended.Unrun = failed.Unrun
			}
			return nil, ended
		})
}

// Rule 12: a handler ends the transaction with COMMIT as SQL, and the store finds that after the
// group only. If a later event of the group fails, neither that event nor those behind it may
// count as handled.
func TestBatchTx_EndedUnseenAndThenFailed_Rule12(t *testing.T) {
	for name, ends := range map[string]string{"an earlier event ends it": "e001", "the failing event ends it": "e000"} {
		t.Run(name, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
				b.cfg.Store = plainStore{s}
				failures := 0
				fails := map[string]string{"e001": "e002", "e000": "e000"}[ends]
				idem.OnTx(b.router, "paid", func(_ context.Context, tx plainTx, e idem.Event[payload]) error {
					if e.ID == fails && ends != fails && failures == 0 {
						failures++
						return errBoom
					}
					tx.tx.effects = append(tx.tx.effects, e.ID)
					if e.ID == ends && len(tx.tx.reqs) > 1 {
						tx.tx.commit()
						if ends == fails {
							return errBoom
						}
					}
					return nil
				})
				p := b.start()
				settled, err := p.HandleBatch(t.Context(), series(5))
				require.NoError(t, err)
				require.Equal(t, 5, settled)
				s.allOnce(t, 5)
				require.Contains(t, b.log.String(), "handler ended the transaction")
				s.sizes = nil
				_, err = p.HandleBatch(t.Context(), series(7)[5:])
				require.NoError(t, err)
				require.Equal(t, []int{1, 1}, s.sizes, "the handler shares no transaction again")
			})
		})
	}
}

// Rule 12: only handlers that ran can have ended the transaction. The others go on to share one.
func TestBatchTx_EndedUnseenByOneOfThree_Rule12(t *testing.T) {
	for name, c := range map[string]struct {
		fails string
		off   []string
	}{
		"the first one ends it, the second one fails": {"second", []string{"first", "second"}},
		"the first one ends it and fails":             {"first", []string{"first"}},
	} {
		t.Run(name, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
				b.cfg.Store = plainStore{s}
				fail := times(1, errBoom)
				types := []string{"first", "second", "third"}
				for _, typ := range types {
					idem.OnTx(b.router, typ, func(_ context.Context, tx plainTx, _ idem.Event[payload]) error {
						if typ == "first" && len(tx.tx.reqs) > 1 {
							tx.tx.commit()
						}
						if typ == c.fails {
							return fail()
						}
						return nil
					})
				}
				p := b.start()
				of := func(first int, types ...string) (messages []*idem.Message) {
					for i, typ := range types {
						n := first + i
						messages = append(messages, keyed(typ, fmt.Sprintf("e%03d", n), fmt.Sprintf("k%d", n), int64(n)))
					}
					return messages
				}
				_, err := p.HandleBatch(t.Context(), of(0, types...))
				require.NoError(t, err)
				for i, typ := range types {
					s.sizes = nil
					_, err = p.HandleBatch(t.Context(), of(3+2*i, typ, typ))
					require.NoError(t, err)
					want := []int{2}
					if slices.Contains(c.off, typ) {
						want = []int{1, 1}
					}
					require.Equal(t, want, s.sizes, typ)
				}
			})
		})
	}
}
