package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The limits of one shared call of Store.Complete. A larger completion has a call of its own.
const (
	completeBatch = 256
	completeBytes = 1 << 20 // of results and reasons; a server limits the size of a statement
)

// joiner collects the completions of concurrent callers. While one call is under way, the next one
// fills, so the size follows the load. A single caller does not wait.
type joiner struct {
	senders
	queue []*joined // each belongs to a caller that waits, so callers bound it
}

// joined is the completion of one caller.
type joined struct {
	ctx    context.Context //nolint:containedctx // its values travel with the shared call
	done   Completion
	answer chan joinedAnswer // buffered, so that the sender never waits for a caller that left
}

// joinedAnswer is how a shared call ended for one caller.
type joinedAnswer struct {
	err   error
	alone bool // the call failed, perhaps because of another caller's completion
}

// size returns the bytes that count for completeBytes.
func (j *joined) size() int { return len(j.done.Result.Data) + len(j.done.Dead) }

// Complete ends one claim as [Store.Complete] does. Concurrent callers share calls to the store, of
// at most 256 completions with different keys each, and of at most 1 MiB of results and reasons. A
// larger completion has a call of its own. The claim need not be kept; if it is, the renewal ends
// with the completion.
//
// After an error that may have its cause in the completion of another caller, each caller completes
// again alone, once.
//
// An error that matches [ErrClaimLost] means that this claim was not held any longer. With any
// other error the outcome is unknown, and the claim is still kept: repeat the call. The renewer
// repeats the completion too, if the store no longer holds a claim that is still kept.
//
// If ctx ends first, that error is returned at once, and the completion may still arrive. A shared
// call does not end with the context of one caller: the time limit is a lease.
func (k *LeaseRenewer) Complete(ctx context.Context, done Completion) error {
	// Checked here, so that an invalid completion does not fail the calls of others.
	err := errors.Join(ctx.Err(), done.Key.Validate(), positive(done.Retention))
	if err != nil {
		return fmt.Errorf("complete %q: %w", done.Key, err)
	}
	j := &joined{ctx: ctx, done: done, answer: make(chan joinedAnswer, 1)}
	if !k.enqueue(j) {
		return k.completeAlone(ctx, j)
	}
	select {
	case a := <-j.answer:
		if a.alone && ctx.Err() == nil {
			k.mu.Lock()
			k.begins(j)
			k.mu.Unlock()
			return k.completeAlone(ctx, j)
		}
		return a.err
	case <-ctx.Done():
	}
	// If j is in the queue, j is removed unsent. If j is in a call, the sender notes the answer. A
	// move from the queue to a call takes the lock.
	k.joiner.mu.Lock()
	i := slices.Index(k.joiner.queue, j)
	if i >= 0 {
		k.joiner.queue = slices.Delete(k.joiner.queue, i, i+1)
	}
	k.joiner.mu.Unlock()
	if i >= 0 {
		k.unsent(done)
	}
	return fmt.Errorf("complete %q: outcome unknown: %w", done.Key, ctx.Err())
}

// enqueue gives j to a sender and starts one if no sender is free to come. It refuses after Close,
// which waits for no further sender.
func (k *LeaseRenewer) enqueue(j *joined) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begins(j)
	if k.closed {
		return false
	}
	k.joiner.mu.Lock()
	defer k.joiner.mu.Unlock()
	k.joiner.queue = append(k.joiner.queue, j)
	k.startSender()
	return true
}

// begins notes that a completion is queued or under way, under k.mu, until settle or unsent.
func (k *LeaseRenewer) begins(j *joined) {
	if e := k.kept[keptID{j.done.Key, j.done.Token}]; e != nil {
		e.completing++
	}
}

// startSender starts a sender if the queue needs one. After Close no sender starts, since Close
// waits for no further sender. Both locks are held.
func (k *LeaseRenewer) startSender() {
	if !k.closed && len(k.joiner.queue) > 0 && k.joiner.free() {
		k.joiner.running++
		k.group.Go(k.sendAll)
	}
}

// completeAlone completes without a sender.
func (k *LeaseRenewer) completeAlone(ctx context.Context, j *joined) error {
	err := k.store.Complete(ctx, []Completion{j.done})
	k.settle(j.done, err)
	return err
}

// sendAll is the sender. The sender ends when the queue is empty, under the lock under which others
// add.
func (k *LeaseRenewer) sendAll() {
	for {
		batch := k.joiner.next()
		if batch == nil {
			return
		}
		k.watched(&k.joiner.senders, func() { k.send(batch) }, k.startSender)
	}
}

// next takes the completions of one call off the queue, or ends the sender. A second completion of
// a key stays for the next call.
func (j *joiner) next() []*joined {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) == 0 {
		j.running--
		return nil
	}
	if len(j.queue) == 1 { // the common case of one caller
		batch := []*joined{j.queue[0]}
		j.queue = slices.Delete(j.queue, 0, 1)
		return batch
	}
	var batch []*joined
	size := 0
	keys := make(map[Key]bool, min(len(j.queue), completeBatch))
	j.queue = slices.DeleteFunc(j.queue, func(w *joined) bool {
		switch { // the first of the queue is always taken
		case len(batch) == completeBatch, keys[w.done.Key],
			len(batch) > 0 && size+w.size() > completeBytes:
			return false
		}
		size += w.size()
		keys[w.done.Key] = true
		batch = append(batch, w)
		return true
	})
	slices.SortFunc(batch, func(a, b *joined) int { return a.done.Key.Compare(b.done.Key) }) // P-04
	return batch
}

// send makes one call and gives each caller a part of the answer.
func (k *LeaseRenewer) send(batch []*joined) {
	done := make([]Completion, len(batch))
	for i, w := range batch {
		done[i] = w.done
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(batch[0].ctx), k.lease)
	defer cancel()
	err := k.store.Complete(ctx, done)
	var lost *LostError
	if !errors.As(err, &lost) {
		// A store that is down, or took longer than a lease, is spared the calls of each.
		alone := err != nil && len(batch) > 1 && !errors.Is(err, ErrUnavailable) &&
			ctx.Err() == nil
		for _, w := range batch {
			k.settle(w.done, err)
			w.answer <- joinedAnswer{err: err, alone: alone}
		}
		return
	}
	for i, w := range batch {
		var own error
		if slices.Contains(lost.Claims, i) {
			own = fmt.Errorf("complete %q: %w", w.done.Key, Lost([]int{0}))
		}
		k.settle(w.done, own)
		w.answer <- joinedAnswer{err: own}
	}
}

// settle notes how a sent completion ended. After success the claim is no longer kept.
// Otherwise a renewal that is under way would find the record done, and report the claim as lost.
func (k *LeaseRenewer) settle(done Completion, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.ends(done)
	if e == nil {
		return
	}
	id := keptID{done.Key, done.Token}
	switch {
	case err == nil:
		delete(k.kept, id)
	case errors.Is(err, ErrClaimLost):
		delete(k.kept, id)
		e.lose()
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded):
		last := done // done itself stays off the heap
		e.unanswered = &last
	default: // the store refused the completion: it has had no effect
	}
}

// unsent notes that a completion was removed from the queue.
func (k *LeaseRenewer) unsent(done Completion) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ends(done)
}

// ends returns the claim of a completion that is no longer queued or under way, or nil if the claim
// is not kept. LeaseRenewer.mu is held.
func (k *LeaseRenewer) ends(done Completion) *kept {
	e := k.kept[keptID{done.Key, done.Token}]
	if e != nil {
		e.completing = max(0, e.completing-1)
	}
	return e
}

func positive(retention time.Duration) error {
	if retention <= 0 {
		return errors.New("retention must be positive")
	}
	return nil
}
