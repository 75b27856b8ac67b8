package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// joiner collects the completions of concurrent callers. While one call is under way the next one fills, so that their
// size follows the load by itself: one caller alone waits for nobody.
type joiner struct {
	mu      sync.Mutex
	queue   []*joined // each belongs to a caller that waits, so callers bound it
	sending bool      // a sender runs; changed under mu only
}

// joined is the completion of one caller.
type joined struct {
	ctx    context.Context //nolint:containedctx // its values travel with the call it becomes part of
	done   Completion
	answer chan error // has room for the answer, so that the sender never waits for a caller that left
}

// Complete ends one claim as [Store.Complete] does. Concurrent callers share calls to the store, of at most 256
// completions with different keys each. The claim need not be kept; if it is, its renewal ends with the completion.
//
// An error that matches [ErrClaimLost] says that this claim was not held any longer. With any other error the outcome
// is unknown, and the claim is kept on: repeat it. If ctx ends first, its error is returned at once; the completion may
// still arrive. A call that many share does not end because one of them lost patience: it has the time of a lease.
func (k *LeaseRenewer) Complete(ctx context.Context, done Completion) error {
	if err := errors.Join(ctx.Err(), done.Key.Validate(), positive(done.Retention)); err != nil {
		return fmt.Errorf("complete %q: %w", done.Key, err) // alone: a mistake must not fail the calls of others
	}
	j := &joined{ctx: ctx, done: done, answer: make(chan error, 1)}
	if !k.enqueue(j) {
		return k.alone(ctx, j)
	}
	select {
	case err := <-j.answer:
		return err
	case <-ctx.Done():
	}
	// It is in one of two places, and moves from the first to the second under the lock: in the queue, from where it
	// goes unsent, or in a call, whose answer the sender writes down for the LeaseRenewer and drops for us.
	k.join.mu.Lock()
	i := slices.Index(k.join.queue, j)
	if i >= 0 {
		k.join.queue = slices.Delete(k.join.queue, i, i+1)
	}
	k.join.mu.Unlock()
	if i >= 0 {
		k.settle(done, ctx.Err())
	}
	return fmt.Errorf("complete %q: outcome unknown: %w", done.Key, ctx.Err())
}

// enqueue hands j to a sender and starts one if there is none. It refuses after Close, when nobody would wait for one.
func (k *LeaseRenewer) enqueue(j *joined) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.kept[keptID{j.done.Key, j.done.Token}]; e != nil {
		e.completing++
	}
	if k.closed {
		return false
	}
	k.join.mu.Lock()
	defer k.join.mu.Unlock()
	k.join.queue = append(k.join.queue, j)
	if !k.join.sending {
		k.join.sending = true
		k.group.Go(k.sendAll) // under mu, before closed: Close waits for it
	}
	return true
}

// alone completes without a sender.
func (k *LeaseRenewer) alone(ctx context.Context, j *joined) error {
	err := k.store.Complete(ctx, []Completion{j.done})
	k.settle(j.done, err)
	return err
}

// sendAll is the sender. It ends when the queue is empty, which it sees under the lock in which others add to it.
func (k *LeaseRenewer) sendAll() {
	for {
		batch := k.join.next()
		if batch == nil {
			return
		}
		k.send(batch)
	}
}

// next takes the completions of one call off the queue, or ends the sender. A second completion of one key must not be
// in the same call: it stays for the next.
func (j *joiner) next() []*joined {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) == 0 {
		j.sending = false
		return nil
	}
	if len(j.queue) == 1 { // the common case of one caller
		batch := []*joined{j.queue[0]}
		j.queue = slices.Delete(j.queue, 0, 1)
		return batch
	}
	var batch []*joined
	keys := make(map[Key]bool, min(len(j.queue), completeBatch))
	j.queue = slices.DeleteFunc(j.queue, func(w *joined) bool {
		if len(batch) == completeBatch || keys[w.done.Key] {
			return false
		}
		keys[w.done.Key] = true
		batch = append(batch, w)
		return true
	})
	slices.SortFunc(batch, func(a, b *joined) int { return a.done.Key.Compare(b.done.Key) }) // P-04
	return batch
}

// send makes one call and tells each caller his part of the answer.
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
		for _, w := range batch {
			k.settle(w.done, err)
			w.answer <- err
		}
		return
	}
	for i, w := range batch {
		var mine error
		if slices.Contains(lost.Claims, i) {
			mine = fmt.Errorf("complete %q: %w", w.done.Key, Lost([]int{0}))
		}
		k.settle(w.done, mine)
		w.answer <- mine
	}
}

// settle writes down how a completion ended. After success there is nothing to keep: without this a renewal that is
// under way would find the record done, and tell a holder who is through that he lost his claim.
func (k *LeaseRenewer) settle(done Completion, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := keptID{done.Key, done.Token}
	e := k.kept[id]
	if e == nil {
		return
	}
	e.completing = max(0, e.completing-1)
	switch {
	case err == nil:
		delete(k.kept, id)
	case errors.Is(err, ErrClaimLost):
		delete(k.kept, id)
		e.cancel(ErrClaimLost)
	}
}

func positive(retention time.Duration) error {
	if retention <= 0 {
		return errors.New("retention must be positive")
	}
	return nil
}
