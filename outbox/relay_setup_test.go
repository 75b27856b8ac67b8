package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// Tables that are missing at the start end Run within seconds, with the command. Tables that are
// created meanwhile are found. If tables are dropped later, Run waits, and repeats the warning once
// a minute.
func TestRelay_NotSetUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		missing := fmt.Errorf("store: %w", &dedup.SetupError{Problem: "tables are missing", Fix: "run `idem migrate up --outbox`"})
		var setupWait time.Duration
		run := func(from, until, end time.Duration) (time.Duration, error) { // missing from, until
			began := time.Now()
			producer := newProducer(b.broker, nil)
			store := &faults{Store: b.table, held: producer.held, before: func(context.Context, string) error {
				if d := time.Since(began); d >= from && d < until {
					return missing
				}
				return nil
			}}
			r, err := outbox.NewRelay(outbox.RelayConfig{Store: store, Producer: producer, SetupWait: setupWait, Logger: slog.New(slog.NewTextHandler(b.log, nil))})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), end)
			defer cancel()
			err = r.Run(ctx)
			return time.Since(began), err
		}
		took, err := run(0, math.MaxInt64, time.Hour)
		var setup *dedup.SetupError
		require.ErrorAs(t, err, &setup)
		require.ErrorContains(t, err, "tables are missing: run `idem migrate up --outbox`")
		require.Equal(t, 3*time.Second, took)
		require.Equal(t, 1, b.log.count("run `idem migrate up --outbox`"), "Run returns it: %s", b.log)

		b.table.add("t", "a", "1")
		_, err = run(0, 2*time.Second, time.Minute)
		require.NoError(t, err)
		require.Equal(t, 1, b.table.count(sent))

		b.table.add("t", "a", "2")
		before := b.log.count("run `idem migrate up --outbox`")
		took, err = run(time.Minute, 6*time.Minute+30*time.Second, 10*time.Minute)
		require.NoError(t, err)
		require.GreaterOrEqual(t, took, 10*time.Minute)
		require.Equal(t, 6, b.log.count("run `idem migrate up --outbox`")-before)
		require.Equal(t, 2, b.table.count(sent))

		b.table.add("t", "a", "3")
		setupWait = time.Hour
		_, err = run(0, 40*time.Minute, 50*time.Minute)
		require.NoError(t, err)
		require.Equal(t, 3, b.table.count(sent))
		took, err = run(0, math.MaxInt64, 2*time.Hour)
		require.ErrorAs(t, err, &setup)
		require.Equal(t, time.Hour, took)
	})
}

// A relay that waits for tables is not ready, and the error of Ready names the missing tables once.
func TestRelay_NotSetUpReady(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		missing := &dedup.SetupError{Problem: "tables are missing", Fix: "run `idem migrate up --outbox`"}
		began := time.Now()
		r := b.start(func(cfg *outbox.RelayConfig, store *faults) {
			cfg.SetupWait = 10 * time.Minute
			store.before = func(context.Context, string) error {
				if time.Since(began) < 5*time.Minute {
					return missing
				}
				return nil
			}
		})
		for range 24 {
			time.Sleep(10 * time.Second)
			require.Equal(t, 1, strings.Count(r.Ready().Error(), missing.Error()), "%v", r.Ready())
		}
		time.Sleep(2 * time.Minute)
		require.NoError(t, r.Ready())
	})
}
