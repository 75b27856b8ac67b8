package runner

import (
	"context"
	"errors"
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
	"github.com/idem-go/idem/internal/setupwait"
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

// Rule 50: a runner watches its stores until it ends, and logs each finding. An outage is no
// finding.
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

// emptyStore has no tables before a time.
type emptyStore struct {
	dedup.Store
	comes time.Time
	looks int
}

func (s *emptyStore) Check(context.Context) ([]string, error) {
	s.looks++
	if time.Now().Before(s.comes) {
		return nil, fmt.Errorf("check: %w", &dedup.SetupError{Problem: "no tables", Fix: "idem migrate up"})
	}
	return nil, nil
}

func (s *emptyStore) Ping(context.Context) error { return nil }

// SetupWait: a start waits for missing tables, and logs the command that creates them at once.
func TestStoreStart_SetupWait(t *testing.T) {
	for name, c := range map[string]struct {
		wait, comes, took time.Duration
		fails             bool
		lines             int // that have the command
	}{
		"no limit":       {wait: idem.Forever, comes: time.Hour, took: time.Hour + 3*time.Second, lines: 60},
		"too late":       {wait: time.Minute, comes: time.Hour, took: time.Minute, fails: true, lines: 1},
		"of its default": {comes: time.Hour, took: setupwait.Default, fails: true, lines: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, log := time.Now(), new(strings.Builder)
				store := &emptyStore{Store: memstore.New(memstore.Volatile()), comes: began.Add(c.comes)}
				cfg := good()
				cfg.SetupWait, cfg.Logger = c.wait, slog.New(slog.NewTextHandler(log, nil))
				err := NewStoreStart(cfg.WithDefaults(), processorOn(t, store)).Check(t.Context())
				require.Equal(t, c.took, time.Since(began))
				require.LessOrEqual(t, store.looks, 10+int(c.took/(5*time.Second)))
				require.Equal(t, c.lines, strings.Count(log.String(), "idem migrate up"), log)
				var setup *dedup.SetupError
				require.Equal(t, c.fails, errors.As(err, &setup), "%v", err)
				if !c.fails {
					require.NoError(t, err)
				}
			})
		})
	}
}

// awayStore gives no answer before a time.
type awayStore struct {
	dedup.Store
	comes           time.Time
	checks, answers bool // Check fails, Register fails
}

func (s *awayStore) answer(fails bool) error {
	if fails && time.Now().Before(s.comes) {
		return fmt.Errorf("dial: %w", dedup.ErrUnavailable)
	}
	return nil
}

func (s *awayStore) Check(context.Context) ([]string, error) { return nil, s.answer(s.checks) }

func (s *awayStore) Ping(context.Context) error { return nil }

func (s *awayStore) Register(context.Context, dedup.Registration) error { return s.answer(s.answers) }

// A start that waits for a store, or for the committed offsets, logs the error at once and then
// once a minute. At the end of the wait it logs another line.
func TestUpkeep_StartSaysWhatItWaitsFor(t *testing.T) {
	for name, c := range map[string]struct {
		store               awayStore
		offsets             bool
		first, again, after string
	}{
		"check": {
			store: awayStore{checks: true},
			first: `msg="store unavailable at start, waiting for it" store=*runner.awayStore error=`,
			again: `msg="store still unavailable at start, waiting for it" store=*runner.awayStore for=`,
			after: `msg="store available again" store=*runner.awayStore`,
		},
		"registration": {
			store: awayStore{answers: true},
			first: `msg="store unavailable at start, waiting for it" error=`,
			again: `msg="store still unavailable at start, waiting for it" for=`,
			after: `msg="store available again"`,
		},
		"offsets": {
			offsets: true,
			first:   `msg="cannot read the committed offsets, will go on trying" error=`,
			again:   `msg="still cannot read the committed offsets, will go on trying" for=`,
			after:   `msg="committed offsets can be read again"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, store := new(strings.Builder), c.store
				store.Store = memstore.New(memstore.Volatile())
				// A pause is at most 10 s, so that the fifth repetition comes within 350 s, the
				// sixth after 360 s.
				store.comes = time.Now().Add(355 * time.Second)
				u, err := NewUpkeep(processorOn(t, &store), UpkeepConfig{
					Topics: []string{"things"}, Logger: slog.New(slog.NewTextHandler(log, nil)),
					NoOffsets: func(context.Context) (bool, error) { return true, store.answer(c.offsets) },
				})
				require.NoError(t, err)
				require.NoError(t, u.Start(t.Context()))
				require.Equal(t, 1, strings.Count(log.String(), c.first), "%s", log)
				require.Equal(t, 5, strings.Count(log.String(), c.again), log)
				require.Equal(t, 6, strings.Count(log.String(), "unavailable"+`"`+"\n"), "lines with the error: %s", log)
				require.Equal(t, 1, strings.Count(log.String(), c.after), log)
				require.Equal(t, 7, strings.Count(log.String(), "\n"), log)
			})
		})
	}
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
