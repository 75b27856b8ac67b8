package idem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// inLane starts a lane with a batch of messages. The end of the test stops the lane.
func (b *bench) inLane(t *testing.T, msgs ...*idem.Message) {
	t.Helper()
	var lane sync.WaitGroup
	lane.Go(func() {
		if _, err := b.p.HandleBatch(t.Context(), msgs); err != nil && !errors.Is(err, idem.ErrStopping) {
			t.Errorf("%v", err)
		}
	})
	t.Cleanup(lane.Wait)
}

// noBroker is the failure of each publication.
func noBroker(*idem.Message) error { return errBoom }

// soon handles a message of the same handler in a lane of its own.
func (b *bench) soon(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	require.NoError(t, b.p.Handle(ctx, keyed("paid", "other", "", 9)))
}

// A handler that has returned needs no place of Concurrency, although the end of its event cannot
// be published or recorded. So one such event does not stop the handler.
func TestTurns_EndOfAnEventKeepsNoPlace(t *testing.T) {
	for _, events := range []int{1, 2} {
		t.Run(fmt.Sprintf("dead letter, %d in a batch", events), func(t *testing.T) {
			inShapes(t, func(t *testing.T, b *bench, shape string) {
				b.sent.fail = noBroker
				err := idem.Permanent(errBoom)
				if strings.Contains(shape, "Batch") {
					err = idem.BatchError{0: err}
				}
				fails := 1
				if shape == "OnBatchTx" { // the call for several events is rolled back
					fails = events
				}
				fail := times(fails, err)
				shapes[shape](b, func(context.Context) error { return fail() }, idem.Concurrency(1))
				b.start()
				b.inLane(t, series(events)...)
				time.Sleep(time.Second)
				b.soon(t)
				require.Empty(t, b.sent.deadLetters())
			})
		})
		for _, shape := range []string{"On", "OnBatch"} {
			t.Run(fmt.Sprintf("completion, %d in a batch/%s", events, shape), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					b.store.completeErr = func() error { return dedup.ErrUnavailable }
					shapes[shape](b, fineRun, idem.Concurrency(1))
					b.start()
					b.inLane(t, series(events)...)
					time.Sleep(time.Second)
					before := b.count("run")
					b.inLane(t, keyed("paid", "other", "", 9))
					time.Sleep(time.Second)
					require.Equal(t, before+1, b.count("run"))
				})
			})
		}
	}
}

// An event that must not run keeps no place either, while its dead letter cannot be published.
func TestTurns_RefusedEventKeepsNoPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.sent.fail = noBroker
		b.on(succeed, idem.Concurrency(1), idem.RateLimit(1, time.Hour))
		b.start()
		bad := message("bad", 0)
		bad.Value = []byte(`{"event_id":"bad","type":"paid","amount":"x"}`)
		b.inLane(t, bad)
		time.Sleep(time.Second)
		b.soon(t)
	})
}

// Nor does a run without the store.
func TestTurns_UnprotectedRunKeepsNoPlace(t *testing.T) {
	for name, register := range map[string]func(*bench, ...idem.Option){
		"On":   func(b *bench, o ...idem.Option) { b.on(failing(1, idem.Permanent(errBoom)), o...) },
		"OnTx": func(b *bench, o ...idem.Option) { b.onTx(failingTx(1, idem.Permanent(errBoom)), o...) },
	} {
		t.Run(name, func(t *testing.T) {
			inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
				b.cfg.Store = &shadowStore{txStore: s}
				b.sent.fail = noBroker
				register(b, idem.Concurrency(1), idem.WhenNoID(idem.RunNoID))
				b.start()
				b.inLane(t, nameless(0))
				time.Sleep(time.Second)
				require.Equal(t, 1, b.count("run 1"))
				b.soon(t)
			})
		})
	}
}
