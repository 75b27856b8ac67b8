package runner

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// commitTime bounds one [CommitTurn.Commit] with its tries.
	commitTime = 4 * time.Second
	// commitPause is the pause between two tries.
	commitPause = 250 * time.Millisecond
	// directPatience is how long a direct commit waits for the commit under way before it ends that.
	// An answer usually comes earlier, and a request that is cut may still reach the coordinator.
	directPatience = 500 * time.Millisecond
)

// CommitTurn lets one commit of a [Session] be in flight at a time, so that no older offset follows
// a newer one. Direct commits go first, see [DirectCommitter]. Use a CommitTurn for a client whose
// commits are requests with a context. Create a CommitTurn with [NewCommitTurn]. Safe for
// concurrent use.
type CommitTurn struct {
	held chan struct{} // has room for the commit in flight

	mu      sync.Mutex
	end     context.CancelCauseFunc // of the commit in flight; nil: no direct commit may end it
	directs int                     // direct commits in flight or waiting
	none    chan struct{}           // closed when directs falls to zero
}

// NewCommitTurn returns a turn that is free.
func NewCommitTurn() *CommitTurn { return &CommitTurn{held: make(chan struct{}, 1)} }

// errDirectFirst is the cause of the end of a commit that a direct commit does not wait for.
var errDirectFirst = errors.New("a direct commit goes first")

// Commit makes the commit of [Session].Commit. It calls try, and again while passes reports that an
// error of try passes. After a direct commit that did not wait, Commit calls try again too, so a
// mark that the direct commit lacked is committed. Each try must read the marks anew. Commit
// returns the last error, and lasts 4 s with all waits if try ends with its context.
func (t *CommitTurn) Commit(try func(context.Context) error, passes func(error) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), commitTime)
	defer cancel()
	for {
		err := t.Beside(ctx, try)
		if errors.Is(err, errDirectFirst) {
			continue
		}
		if err == nil || !passes(err) || Pause(ctx, commitPause) != nil {
			return err
		}
	}
}

// Beside makes one commit that gives way to direct commits. It waits for the turn until ctx ends,
// and returns the error of commit, or the cause of ctx. A direct commit that does not wait ends the
// context of commit, and Beside then returns an error without that of commit.
func (t *CommitTurn) Beside(ctx context.Context, commit func(context.Context) error) error {
	ctx, err := t.begin(ctx)
	if err != nil {
		return err
	}
	defer t.leave()
	err = commit(ctx)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errDirectFirst) {
		return cause
	}
	return err
}

// Directly makes one direct commit. It ends the commit in flight after 500 ms, waits for the turn
// until ctx ends, and returns the error of commit, or the cause of ctx. No other commit begins
// meanwhile, except a direct one.
func (t *CommitTurn) Directly(ctx context.Context, commit func() error) error {
	t.goFirst()
	defer t.directDone()
	impatient := time.AfterFunc(directPatience, t.endCommit)
	err := t.take(ctx)
	impatient.Stop()
	if err != nil {
		return err
	}
	defer t.leave()
	return commit()
}

// begin takes the turn when no direct commit is left. The context of the commit has to end with
// [CommitTurn.leave].
func (t *CommitTurn) begin(ctx context.Context) (context.Context, error) {
	for {
		if err := t.take(ctx); err != nil {
			return nil, err
		}
		t.mu.Lock()
		none := t.none
		if t.directs == 0 {
			own, end := context.WithCancelCause(ctx)
			t.end = end
			t.mu.Unlock()
			return own, nil
		}
		t.mu.Unlock()
		t.leave()
		select {
		case <-none:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take waits for the turn until ctx ends.
func (t *CommitTurn) take(ctx context.Context) error {
	select {
	case t.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave gives the turn back.
func (t *CommitTurn) leave() {
	t.mu.Lock()
	if t.end != nil {
		t.end(nil)
		t.end = nil
	}
	t.mu.Unlock()
	<-t.held
}

// goFirst counts a direct commit in.
func (t *CommitTurn) goFirst() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.directs == 0 {
		t.none = make(chan struct{})
	}
	t.directs++
}

// directDone counts a direct commit out.
func (t *CommitTurn) directDone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.directs--; t.directs == 0 {
		close(t.none)
	}
}

// endCommit ends the commit in flight, unless that is a direct one.
func (t *CommitTurn) endCommit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end != nil {
		t.end(errDirectFirst)
	}
}
