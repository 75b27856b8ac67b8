package canary

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// refusing refuses all messages, and quotes them in its errors.
type refusing struct{ calls atomic.Int64 }

// ProduceEach implements [outbox.Producer].
func (r *refusing) ProduceEach(_ context.Context, msgs []*idem.Message) []error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		errs[i] = r.refuse(m)
	}
	return errs
}

func (r *refusing) refuse(m *idem.Message) error {
	_, quoting := strconv.Atoi(string(m.Value))
	switch r.calls.Add(1) % 3 {
	case 0:
		return fmt.Errorf("%w: %w", idem.ErrRefused, &pgconn.PgError{Severity: "ERROR", Code: "22P02", Message: fmt.Sprintf("invalid input: %q", m.Value)})
	case 1:
		return fmt.Errorf("%w: %w", idem.ErrRefused, quoting)
	default:
		return errors.Join(idem.ErrTooLarge, quoting)
	}
}

// relay returns a relay that is observed by the instruments.
func (h *house) relay(store outbox.Store, producer outbox.Producer) *outbox.Relay {
	var observers []outbox.Observer
	for _, i := range h.instruments {
		observers = append(observers, i.outbox...)
	}
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Store: store, Producer: producer, Logger: h.log, Observers: observers, Interval: 10 * time.Millisecond, MaxAttempts: 1,
	})
	require.NoError(h.t, err)
	return relay
}

// Rows of the outbox that cannot be published. By contract their lines have the Kafka key, which
// names the aggregate that stands.
func TestOutbox_G04(t *testing.T) {
	h := newHouse(t)
	pool, _ := h.store(t)
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	h.watch("why rows are parked", func() string { return dump(h.t, pool, "SELECT coalesce(error, '') FROM idem_outbox") })
	box := pgoutbox.New(pool)
	entries := make([]outbox.Entry, 12)
	for i := range entries {
		entries[i] = outbox.Entry{
			Topic: "mails", Key: fmt.Sprint("order-", i), Type: "mail.sent", ID: fmt.Sprint("e", i), Payload: []byte(`{"mail":"` + secret() + `"}`),
			Headers: []idem.Header{{Key: secret(), Value: []byte(secret())}},
		}
		h.log.Info("added", "entry", entries[i])
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return box.Add(t.Context(), tx, entries...) }))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.relay(box, &refusing{}).Run(ctx) }()
	require.Eventually(t, func() bool {
		parked, err := box.Parked(t.Context(), 100)
		return err == nil && len(parked) == len(entries)
	}, 30*time.Second, 20*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.Contains(t, dump(t, pool, "SELECT coalesce(error, '') FROM idem_outbox"), "strconv.Atoi: invalid syntax")
	h.clean()
}
