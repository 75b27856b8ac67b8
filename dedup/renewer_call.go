package dedup

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	renewBatch  = 512 // claims in one call of Store.Renew
	renewPieces = 8   // calls of Store.Renew for a batch that failed
)

// renewal is one call of Renew.
type renewal struct {
	batch []*kept
	sent  time.Time
	err   error
}

// pieces cuts a batch into batches of calls beside each other, in the same order. One call has all
// claims without a failure. The suspects are spread over at most renewPieces other calls: four tries
// in a lease find one claim that always fails among renewBatch. No claim waits for a later try: if
// the whole store was down, the first try after that renews all leases.
func pieces(batch []*kept) [][]*kept {
	var sound, suspects []*kept
	for _, e := range batch {
		if e.suspect {
			suspects = append(suspects, e)
		} else {
			sound = append(sound, e)
		}
	}
	var calls [][]*kept
	if len(sound) > 0 {
		calls = append(calls, sound)
	}
	size := (len(suspects) + renewPieces - 1) / renewPieces
	return slices.AppendSeq(calls, slices.Chunk(suspects, max(1, size)))
}

// renew calls the store. renew gives up early enough for three more attempts within the lease.
func (k *LeaseRenewer) renew(ctx context.Context, batch []*kept) renewal {
	claims := make([]Claim, len(batch))
	for i, e := range batch { // claim never changes: no lock
		claims[i] = e.claim
	}
	ctx, cancel := context.WithTimeout(ctx, k.lease/6)
	defer cancel()
	sent := time.Now()
	return renewal{batch: batch, sent: sent, err: k.store.Renew(ctx, k.lease, claims)}
}

// result is the result of a renewal for one claim.
type result uint8

const (
	resultRenewed result = iota
	resultFailed
	resultLost
)

// results returns the result of a call of Renew for each of its n claims. An error that names no
// claims, or claims that the call did not have, is a failure of all: no lease is trusted then.
func results(n int, err error) []result {
	all := make([]result, n)
	var part *PartError
	var lost *LostError
	switch {
	case err == nil:
	case errors.As(err, &part):
		if len(part.Failed) == 0 || !within(n, part.Failed) || !within(n, part.Lost) {
			return slices.Repeat([]result{resultFailed}, n)
		}
		for _, i := range part.Lost {
			all[i] = resultLost
		}
		for _, i := range part.Failed {
			all[i] = resultFailed
		}
	case errors.As(err, &lost) && within(n, lost.Claims):
		for _, i := range lost.Claims {
			all[i] = resultLost
		}
	default:
		return slices.Repeat([]result{resultFailed}, n)
	}
	return all
}

// within reports whether all indices are from 0 to n-1.
func within(n int, indices []int) bool {
	return !slices.ContainsFunc(indices, func(i int) bool { return i < 0 || i >= n })
}

// reaction is the step that follows the renewal of one claim.
type reaction uint8

const (
	reactRenewed  reaction = iota // the lease begins anew
	reactRetry                    // renew again, soon
	reactComplete                 // complete again, and renew again soon
	reactLose
)

// react decides the step after a renewal of e with this result. A claim may look lost because its
// completion arrived. Then the answer to the completion decides.
func (e *kept) react(r result) reaction {
	switch {
	case r == resultRenewed:
		return reactRenewed
	case r == resultFailed, e.completing > 0:
		return reactRetry
	case e.unanswered != nil:
		return reactComplete
	}
	return reactLose
}

// note applies the result of a call of Renew. A claim that was stopped, completed or lost meanwhile
// is no longer in kept and is skipped. ctx ends with the renewer.
func (k *LeaseRenewer) note(ctx context.Context, r renewal) {
	all := results(len(r.batch), r.err)
	k.mu.Lock()
	defer k.mu.Unlock()
	retryAt := r.sent.Add(k.lease / 12) // at once, if the call took that long
	for i, e := range r.batch {
		id := keptID{e.claim.Key, e.claim.Token}
		if k.kept[id] != e {
			continue
		}
		failed := all[i] == resultFailed
		e.suspect = failed
		if !failed {
			e.denied = all[i] == resultLost
		}
		switch e.react(all[i]) {
		case reactRenewed:
			e.since, e.retryAt = r.sent, time.Time{}
		case reactRetry:
			e.retryAt = retryAt
		case reactComplete:
			e.retryAt = retryAt
			done := *e.unanswered
			k.group.Go(func() { k.completeAgain(ctx, done) })
		case reactLose:
			delete(k.kept, id)
			e.lose()
		}
	}
}

// completeAgain repeats a completion whose answer was lost. settle notes the new answer; without
// one, a later renewal repeats the completion again.
func (k *LeaseRenewer) completeAgain(ctx context.Context, done Completion) {
	ctx, cancel := context.WithTimeout(ctx, k.lease)
	defer cancel()
	_ = k.Complete(ctx, done)
}
