package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/setupwait"
)

// UpkeepConfig describes the loop that an [Upkeep] serves.
type UpkeepConfig struct {
	// Group is the consumer group. Defaults to Config.Group of the processor, or to its scope.
	Group string
	// Topics are the source topics of the loop, without the retry topics of the group. Required.
	Topics []string
	// NoOffsets reports whether the group has committed no offset on Topics. Start then refuses a
	// scope that the store does not know, if the store knows the topics under another one.
	// Otherwise all events of a renamed group would be new. Start waits and asks again after an
	// error. Default: the group is taken for one with offsets, so Start does not notice a new name.
	NoOffsets func(ctx context.Context) (bool, error)
	// NewScope lets a group without offsets start although the store knows the topics under another
	// scope.
	NewScope bool
	// AcceptNewIdentity lets the identity functions of handlers differ from those on record, and
	// records them. Events of the backlog are then new.
	AcceptNewIdentity bool
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// ErrorText makes the text of errors in logs. Defaults to [idem.ErrorText].
	ErrorText func(error) string
}

// Upkeep gives a loop of one's own the tasks of a runner beside fetching and committing. Upkeep
// checks the stores and registers the scope at the start, and records the progress of idle
// partitions, so that stores forget. Create an Upkeep with [NewUpkeep]. One goroutine uses an
// Upkeep.
//
// The loop still calls [idem.Processor.Assigned] for each new partition, and commits the offsets of
// settled messages.
type Upkeep struct {
	cfg    UpkeepConfig
	proc   *idem.Processor
	stores *StoreStart
	next   time.Time // of the report on idle partitions
	failed bool      // the last report failed
}

// idleInterval is the time between two reports on idle partitions.
const idleInterval = time.Minute

// NewUpkeep returns the upkeep of a loop that calls proc. The error names a store that loses all
// records with the process, unless that was declared as wanted (memstore.Volatile).
func NewUpkeep(proc *idem.Processor, cfg UpkeepConfig) (*Upkeep, error) {
	if proc == nil {
		return nil, errors.New("processor is nil")
	}
	if len(cfg.Topics) == 0 {
		return nil, errors.New("UpkeepConfig.Topics is empty: name the source topics of the loop")
	}
	if err := CheckVolatile(proc.Stores()); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.ErrorText == nil {
		cfg.ErrorText = idem.ErrorText
	}
	return &Upkeep{
		cfg: cfg, proc: proc,
		stores: &StoreStart{proc: proc, log: cfg.Logger, text: cfg.ErrorText},
	}, nil
}

// Start checks the stores and registers the scope. Call Start before the loop subscribes. Start
// waits for stores that are down, without a limit, until ctx ends. The log has a line at the first
// error, one in each minute of the wait, and one at its end.
//
// The error names a store that has unsafe settings, or that is not set up. It matches
// [dedup.ErrIdentityChanged] or [dedup.ErrOtherScope] if the store refuses the registration.
func (u *Upkeep) Start(ctx context.Context) error {
	if err := u.stores.Check(ctx); err != nil {
		return err
	}
	if !u.stores.Registers() {
		return nil
	}
	none, err := u.noOffsets(ctx)
	if err != nil {
		return err
	}
	return u.stores.Register(ctx, dedup.Registration{
		Group: u.cfg.Group, Topics: u.cfg.Topics, NoOffsets: none,
		NewScope: u.cfg.NewScope, AcceptNewIdentity: u.cfg.AcceptNewIdentity,
	})
}

func (u *Upkeep) noOffsets(ctx context.Context) (bool, error) {
	if u.cfg.NoOffsets == nil {
		return false, nil
	}
	var back Backoff
	away := setupwait.Problem{
		First: "cannot read the committed offsets, will go on trying",
		Still: "still cannot read the committed offsets, will go on trying",
	}
	for {
		none, err := u.cfg.NoOffsets(ctx)
		if err == nil {
			if back.Tries > 0 {
				u.cfg.Logger.Info("committed offsets can be read again")
			}
			return none, nil
		}
		if ctx.Err() != nil {
			return false, fmt.Errorf("committed offsets: %w", context.Cause(ctx))
		}
		away.Log(ctx, u.cfg.Logger, u.cfg.ErrorText(err))
		if err := back.Wait(ctx); err != nil {
			return false, err
		}
	}
}

// Idle records the progress of partitions that are read to their ends, at most once a minute. Call
// Idle in each turn of the loop. When a report is due, Idle calls read. read returns the next
// offset of each partition that the loop has read to the end and that has no unsettled messages,
// retry topics included. Idle sets CaughtUp. Idle also warns in the log if another server answers
// for a store than before ([dedup.Watcher]).
//
// Idle waits at most 3 seconds for the stores that it records progress in, and as long for those
// that it watches. A failure to record is logged, once until a report succeeds; it only delays
// deletions in the store.
func (u *Upkeep) Idle(ctx context.Context, read func() []dedup.Progress) {
	now := time.Now()
	if now.Before(u.next) {
		return
	}
	u.next = now.Add(idleInterval)
	u.stores.look(ctx, progressWait)
	if !recordsProgress(u.proc.Stores()) {
		return
	}
	idle := read()
	if len(idle) == 0 {
		return
	}
	for i := range idle {
		idle[i].CaughtUp = true
	}
	ctx, cancel := context.WithTimeout(ctx, progressWait)
	defer cancel()
	err := u.proc.RecordProgress(ctx, idle)
	switch {
	case err != nil && !u.failed:
		u.cfg.Logger.Warn(progressFails, "error", u.cfg.ErrorText(err))
	case err == nil && u.failed:
		u.cfg.Logger.Info(progressAgain)
	}
	u.failed = err != nil
}
