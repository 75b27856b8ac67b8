package idem_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// doubtful is a store that does not learn how the transaction of a failed group has ended.
type doubtful struct {
	*groupStore
	down bool // the server does not answer either
}

func (d doubtful) ClaimTx(ctx context.Context, l time.Duration, r []dedup.Request,
	a []dedup.Answer, fn func(*groupTx) ([]dedup.Completion, error)) error {
	err := d.groupStore.ClaimTx(ctx, l, r, a, fn)
	if err == nil || len(r) == 1 {
		return err
	}
	err = decision.NotRuledOut(err, errBoom)
	if d.down {
		return fmt.Errorf("%w (%w)", err, dedup.ErrUnavailable)
	}
	return err
}

// Rule 12: the log names the events that may count as handled although they did not run, once for
// each transaction, whatever the engine does next.
func TestBatchTx_InDoubtIsLogged_Rule12(t *testing.T) {
	const line = "events that never ran may count as handled"
	returns := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		handler    func(context.Context) error
		down, stop bool
	}{
		"a handler that returns at its time-out": {handler: returns},
		"the same, and the store is down":        {handler: returns, down: true},
		"a stop":                                 {handler: returns, stop: true},
		"a handler that hangs": {handler: func(context.Context) error {
			time.Sleep(time.Hour)
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
				b.cfg.Store = doubtful{s, c.down}
				b.onGroup(func(ctx context.Context, tx *groupTx, e idem.Event[payload]) error {
					if e.ID == "e001" && len(tx.reqs) > 1 {
						return c.handler(ctx)
					}
					return nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.stop {
					time.AfterFunc(time.Second, cancel)
				}
				_, err := b.start().HandleBatch(ctx, series(4))
				if c.stop {
					require.ErrorIs(t, err, idem.ErrStopping)
				} else {
					require.NoError(t, err)
					s.allOnce(t, 4)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				var lines []string
				for text := range strings.Lines(b.log.String()) {
					if strings.Contains(text, `msg="`+line) {
						lines = append(lines, text)
					}
				}
				require.Len(t, lines, 1, b.log.String())
				require.Contains(t, lines[0], "level=ERROR")
				require.Contains(t, lines[0], "events=2")
				require.Contains(t, lines[0], `keys="[:g:paid:e002 :g:paid:e003]"`)
				require.Contains(t, lines[0], "a COMMIT as SQL before is not ruled out")
			})
		})
	}
}

// Rule 12: if all events of a failed transaction ran, none is in doubt.
func TestBatchTx_NoneInDoubt_Rule12(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.cfg.Store = doubtful{s, true}
		b.onGroup(func(_ context.Context, tx *groupTx, e idem.Event[payload]) error {
			if e.ID == "e003" && len(tx.reqs) > 1 {
				return errBoom
			}
			return nil
		})
		_, err := b.start().HandleBatch(t.Context(), series(4))
		require.NoError(t, err)
		s.allOnce(t, 4)
		require.NotContains(t, b.log.String(), "events that never ran may count as handled")
	})
}

// Rule 12: a handler that commits by SQL and then hangs shares no transaction again. The handlers
// before it are innocent, because the transaction was open after each of them.
func TestBatchTx_CommitThenHangBlamesOne_Rule12(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		hang := make(chan struct{})
		for _, typ := range []string{"first", "second"} {
			idem.OnTx(b.router, typ, func(_ context.Context, tx *groupTx, e idem.Event[payload]) error {
				tx.effects = append(tx.effects, e.ID)
				if typ == "second" && len(tx.reqs) > 1 {
					tx.commit()
					<-hang
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
		_, err := p.HandleBatch(t.Context(), of(0, "first", "second", "first"))
		require.NoError(t, err)
		close(hang)
		synctest.Wait()
		ended := "handler ended the transaction it was given: its events get one each from now on"
		require.Equal(t, 1, strings.Count(b.log.String(), ended))
		require.Contains(t, b.log.String(), ended+`" type=second`)
		for typ, want := range map[string][]int{"first": {2}, "second": {1, 1}} {
			s.sizes = nil
			_, err = p.HandleBatch(t.Context(), of(10+len(typ)*2, typ, typ))
			require.NoError(t, err)
			require.Equal(t, want, s.sizes, typ)
		}
	})
}
