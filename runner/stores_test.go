package runner

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// watchedStore answers with the next finding.
type watchedStore struct {
	dedup.Store
	calls    int
	findings map[int][]string // by call
	down     map[int]bool
}

func (s *watchedStore) Watch(context.Context) ([]string, error) {
	s.calls++
	if s.down[s.calls] {
		return nil, fmt.Errorf("watch: %w", dedup.ErrUnavailable)
	}
	return s.findings[s.calls], nil
}

func newWatchedStore() *watchedStore {
	return &watchedStore{
		Store:    memstore.New(memstore.Volatile()),
		findings: map[int][]string{2: {"another server answers"}, 5: {"evicts", "no file"}},
		down:     map[int]bool{4: true},
	}
}

// Rule 50: a runner watches its stores until it ends, and logs each finding. An outage is none.
func TestLife_WatchesStores_Rule50(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := newWatchedStore(), new(strings.Builder)
		cfg := good()
		cfg.Store, cfg.Logger = store, slog.New(slog.NewTextHandler(log, nil))
		r := idem.NewRouter(idem.Type(idem.Fixed("thing")), idem.ID(idem.FromHeader("event-id")))
		idem.On(r, "thing", func(context.Context, idem.Event[struct{}]) error { return nil })
		g, err := NewGroup(cfg, r, classify)
		require.NoError(t, err)
		client := &fakeClient{cluster: cluster{newFakeAdmin("t"), &fakeLog{}}}
		client.life = NewLife(LifeConfig{
			Config: cfg, Client: "fake", Classify: classify, Heartbeat: 3 * time.Second,
		}, g)
		require.NoError(t, client.run(t, client.life, 5*watchInterval+time.Second))
		require.Equal(t, 5, store.calls)
		for _, want := range []string{"store: another server answers", "store: evicts", "store: no file"} {
			require.Equal(t, 1, strings.Count(log.String(), want), log)
		}
		time.Sleep(10 * watchInterval)
		require.Equal(t, 5, store.calls, "the runner has ended")
	})
}

// Rule 50: the upkeep of a loop of one's own watches too, once a minute.
func TestUpkeep_WatchesStores_Rule50(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := newWatchedStore(), new(strings.Builder)
		u, err := NewUpkeep(processorOn(t, store), UpkeepConfig{
			Topics: []string{"things"}, Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		require.NoError(t, err)
		for range 5 * int(idleInterval/time.Second) {
			u.Idle(t.Context(), func() []dedup.Progress { return nil })
			time.Sleep(time.Second)
		}
		require.Equal(t, 5, store.calls)
		require.Equal(t, 1, strings.Count(log.String(), "store: another server answers"), log)
	})
}
