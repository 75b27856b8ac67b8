package acls

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/replay"
)

// windowReplayer replays all records of the topic in the scope of the group, which has no right on
// the group.
func (w *world) windowReplayer(t *testing.T) {
	const user = "window-replayer"
	cfg := w.config(user)
	cfg.Group, cfg.Topics, cfg.Store, cfg.Logger = group, []string{topic}, w.store, slog.New(slog.DiscardHandler)
	router := idem.NewRouter()
	idem.On(router, "payment", func(context.Context, idem.Event[struct{}]) error { return nil })
	open := func() *replay.Replay {
		t.Helper()
		r, err := replay.New(cfg, router, replay.Config{
			Window: replay.Between(time.Time{}, time.Time{}), Scope: replay.SameScope(),
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		return r
	}
	r := open()
	plan, err := r.Plan(t.Context())
	require.NoError(t, err)
	result, err := r.Run(t.Context(), plan, nil)
	require.NoError(t, err)
	require.True(t, result.Complete)
	require.Positive(t, result.Counts.Duplicates)

	w.without(user, "Read topic "+topic, func() {
		_, err := open().Plan(t.Context())
		require.ErrorIs(t, err, sarama.ErrTopicAuthorizationFailed)
	})
	w.without(user, "Write topic "+deadLetters, func() {
		_, err := open().Run(t.Context(), plan, nil)
		require.ErrorIs(t, err, sarama.ErrTopicAuthorizationFailed)
	})
}
