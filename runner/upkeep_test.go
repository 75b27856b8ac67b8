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
)

var (
	_ dedup.Checker          = (*fakeStore)(nil)
	_ dedup.Registrar        = (*fakeStore)(nil)
	_ dedup.ProgressRecorder = (*fakeStore)(nil)
)

// fakeStore is a store that answers as told, and keeps the calls of an Upkeep.
type fakeStore struct {
	dedup.Store
	checks     []error // answers, the last one for ever
	registered []dedup.Registration
	refuse     error // the answer to registrations and to progress
	progress   []dedup.Progress
}

func (l *fakeStore) Check(context.Context) ([]string, error) {
	if len(l.checks) == 0 {
		return nil, nil
	}
	err := l.checks[0]
	if len(l.checks) > 1 {
		l.checks = l.checks[1:]
	}
	return nil, err
}

func (l *fakeStore) Ping(context.Context) error { return nil }

func (l *fakeStore) Register(_ context.Context, r dedup.Registration) error {
	l.registered = append(l.registered, r)
	return l.refuse
}

func (l *fakeStore) RecordProgress(_ context.Context, _ string, progress []dedup.Progress) error {
	if l.refuse == nil {
		l.progress = append(l.progress, progress...)
	}
	return l.refuse
}

func (l *fakeStore) Progress(context.Context, string, ...string) ([]dedup.Progress, error) {
	return nil, nil
}

// newUpkeep returns the upkeep of a loop in group g, and its log.
func newUpkeep(t *testing.T, l *fakeStore, cfg UpkeepConfig) (*Upkeep, *strings.Builder) {
	t.Helper()
	l.Store = memstore.New(memstore.Volatile())
	log := new(strings.Builder)
	cfg.Logger, cfg.Topics = slog.New(slog.NewTextHandler(log, nil)), []string{"things"}
	u, err := NewUpkeep(processorOn(t, l), cfg)
	require.NoError(t, err)
	return u, log
}

func processorOn(t *testing.T, store dedup.Store) *idem.Processor {
	t.Helper()
	r := idem.NewRouter(idem.Type(idem.Fixed("thing")), idem.ID(idem.FromHeader("event-id")))
	idem.On(r, "thing", func(context.Context, idem.Event[struct{}]) error { return nil })
	proc, err := idem.NewProcessor(r, idem.Config{
		Store: store, Scope: "s", Group: "g", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proc.Close()) })
	return proc
}

func TestNewUpkeep_Refuses(t *testing.T) {
	good := processorOn(t, memstore.New(memstore.Volatile()))
	_, err := NewUpkeep(nil, UpkeepConfig{Topics: []string{"things"}})
	require.ErrorContains(t, err, "processor is nil")
	_, err = NewUpkeep(good, UpkeepConfig{})
	require.ErrorContains(t, err, "Topics is empty")
	_, err = NewUpkeep(processorOn(t, memstore.New()), UpkeepConfig{Topics: []string{"things"}})
	require.ErrorContains(t, err, "memstore", "rule 31: a store that forgets with the process")
}

// Rules 7 and 14: the scope and the identity functions are compared with those on record, after the
// store is there and safe.
func TestUpkeep_Start(t *testing.T) {
	down := fmt.Errorf("%w: test", dedup.ErrUnavailable)
	unsafe := errors.New("evicts records")
	broken := errors.New("no broker")
	for name, c := range map[string]struct {
		fake fakeStore
		cfg  UpkeepConfig
		none []error // the answers of NoOffsets: errors, then true
		want dedup.Registration
		err  error
		log  string
	}{
		"registers":          {want: dedup.Registration{}},
		"declared":           {cfg: UpkeepConfig{NewScope: true, AcceptNewIdentity: true}, want: dedup.Registration{NewScope: true, AcceptNewIdentity: true}},
		"another group":      {cfg: UpkeepConfig{Group: "h"}, want: dedup.Registration{Group: "h"}},
		"no offsets":         {none: []error{}, want: dedup.Registration{NoOffsets: true}},
		"brokers away":       {none: []error{broken, broken}, want: dedup.Registration{NoOffsets: true}, log: "cannot read the committed offsets"},
		"store down":         {fake: fakeStore{checks: []error{down, down, nil}}, log: "store available again"},
		"unsafe store":       {fake: fakeStore{checks: []error{unsafe}}, err: unsafe},
		"identity changed":   {fake: fakeStore{refuse: dedup.ErrIdentityChanged}, err: dedup.ErrIdentityChanged},
		"under other scopes": {fake: fakeStore{refuse: dedup.ErrOtherScope}, err: dedup.ErrOtherScope},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := c.fake
				if c.none != nil {
					c.cfg.NoOffsets = func(context.Context) (bool, error) {
						if len(c.none) == 0 {
							return true, nil
						}
						err := c.none[0]
						c.none = c.none[1:]
						return false, err
					}
				}
				u, log := newUpkeep(t, &l, c.cfg)
				err := u.Start(t.Context())
				require.Contains(t, log.String(), c.log)
				if c.err != nil {
					require.ErrorIs(t, err, c.err)
					return
				}
				require.NoError(t, err)
				require.Len(t, l.registered, 1)
				got := l.registered[0]
				require.Equal(t, []string{"things"}, got.Topics)
				require.Equal(t, "s", got.Scope)
				require.Contains(t, got.Descriptors, "thing")
				if c.want.Group == "" {
					c.want.Group = "g"
				}
				got.Topics, got.Scope, got.Descriptors = nil, "", nil
				require.Equal(t, c.want, got)
			})
		})
	}
}

// A start that waits ends with its context.
func TestUpkeep_StartEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, l := range map[string]*fakeStore{
			"store":   {checks: []error{dedup.ErrUnavailable}},
			"offsets": {},
		} {
			u, _ := newUpkeep(t, l, UpkeepConfig{
				NoOffsets: func(context.Context) (bool, error) { return false, errors.New("no broker") },
			})
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errTest)
			require.ErrorIs(t, u.Start(ctx), errTest, name)
			require.Empty(t, l.registered)
			cancel()
		}
	})
}

// Rule 8: a partition that is read to its end must not hold up the deletion of expired rows.
func TestUpkeep_Idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(fakeStore)
		u, log := newUpkeep(t, l, UpkeepConfig{})
		asked := 0
		turn := func() {
			u.Idle(t.Context(), func() []dedup.Progress {
				asked++
				return []dedup.Progress{{Topic: "things", Partition: 3, Next: 7}}
			})
		}
		for range 61 { // a minute
			turn()
			time.Sleep(time.Second)
		}
		require.Equal(t, 2, asked, "at the begin, and a minute later")
		require.Equal(t, []dedup.Progress{
			{Topic: "things", Partition: 3, Next: 7, CaughtUp: true},
			{Topic: "things", Partition: 3, Next: 7, CaughtUp: true},
		}, l.progress)

		l.refuse = fmt.Errorf("%w: test", dedup.ErrUnavailable)
		for range 180 {
			turn()
			time.Sleep(time.Second)
		}
		require.Equal(t, 1, strings.Count(log.String(), progressFails), log)
		l.refuse = nil
		time.Sleep(idleInterval)
		turn()
		require.Contains(t, log.String(), progressAgain)
		require.Len(t, l.progress, 3)
	})
}
