package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// looker is a producer that looks for topics.
type looker struct {
	*producer
	look func(topics []string) error
}

func (l looker) CheckTopics(_ context.Context, topics []string) error { return l.look(topics) }

// A topic that is missing at the start ends Run within seconds, before a row is published. A topic that
// is created meanwhile is found. Brokers that are away do not end Run.
func TestRelay_Topics(t *testing.T) {
	missing := fmt.Errorf("%w: orders: kafka-topics --create", idem.ErrNoTopic)
	away := errors.New("no broker")
	for name, c := range map[string]struct {
		until time.Duration // the look fails
		err   error
		ends  time.Duration // after it Run has an error
		wait  time.Duration // SetupWait
		looks int
	}{
		"all there":       {looks: 1},
		"missing":         {until: time.Hour, err: missing, ends: 3 * time.Second, looks: 6},
		"created in time": {until: 2 * time.Second, err: missing, looks: 5},
		"created later":   {until: 20 * time.Second, err: missing, wait: idem.Forever, looks: 10},
		"too late":        {until: time.Hour, err: missing, wait: 20 * time.Second, ends: 20 * time.Second, looks: 10},
		"brokers away":    {until: time.Hour, err: away, looks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.table.add("orders", "a", "1")
				began, looks := time.Now(), 0
				p := looker{newProducer(b.broker, nil), func(topics []string) error {
					require.Equal(t, []string{"orders"}, topics)
					looks++
					if time.Since(began) < c.until {
						return c.err
					}
					return nil
				}}
				r, err := outbox.NewRelay(outbox.RelayConfig{Store: b.table, Producer: p, Topics: []string{"orders"}, SetupWait: c.wait,
					Logger: slog.New(slog.NewTextHandler(b.log, nil))})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err = r.Run(ctx)
				require.Equal(t, c.looks, looks)
				if c.wait > 0 {
					require.Equal(t, 1, b.log.count("topics or rights are missing"), "said once")
				}
				if c.ends > 0 {
					require.ErrorIs(t, err, idem.ErrNoTopic)
					require.ErrorContains(t, err, "kafka-topics --create")
					require.Equal(t, c.ends, time.Since(began))
					require.Zero(t, b.table.count(sent))
					return
				}
				require.NoError(t, err)
				require.Equal(t, 1, b.table.count(sent))
			})
		})
	}
	_, err := outbox.NewRelay(outbox.RelayConfig{Store: newTable(newBroker()), Producer: newProducer(newBroker(), nil), Topics: []string{"orders", ""}})
	require.ErrorContains(t, err, "Topics has an empty name")
	require.ErrorContains(t, err, "does not implement TopicChecker")
}

// A relay that waits for topics is not ready, and names the topics. After the end of this wait, the
// relay names no topics.
func TestRelay_TopicsReady(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		missing := fmt.Errorf("%w: orders: kafka-topics --create", idem.ErrNoTopic)
		began := time.Now()
		r := b.start(func(cfg *outbox.RelayConfig, _ *faults) {
			cfg.Topics, cfg.SetupWait = []string{"orders"}, idem.Forever
			cfg.Producer = looker{cfg.Producer.(*producer), func([]string) error {
				switch waited := time.Since(began); {
				case waited == 0:
					time.Sleep(5 * time.Second) // a slow answer
					return missing
				case waited < 5*time.Minute:
					return missing
				}
				return nil
			}}
		})
		time.Sleep(4 * time.Second)
		require.EqualError(t, r.Ready(), "outbox: the relay waits for its topics: no answer")
		for range 4 {
			time.Sleep(time.Minute)
			require.EqualError(t, r.Ready(), "outbox: the relay waits for its topics: "+missing.Error())
			require.ErrorIs(t, r.Ready(), idem.ErrNoTopic)
		}
		time.Sleep(2 * time.Minute)
		require.NoError(t, r.Ready())
		require.Equal(t, 1, b.log.count(`"topics or rights are missing, waiting for them" error=`), b.log)
		require.Equal(t, 4, b.log.count(`"topics or rights are still missing, waiting for them" for=`), b.log)
		require.Equal(t, 5, b.log.count("kafka-topics --create"), b.log)
		require.Equal(t, 1, b.log.count(`"topics and rights are there" after=5m`), b.log)
	})
}
