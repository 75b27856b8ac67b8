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

// note applies the result of a call of Renew. A claim that was stopped, completed or lost meanwhile
// is no longer in kept and is skipped. A claim that is being completed may look lost because the
// completion arrived first: the completion decides, and the next renewal asks again.
func (k *LeaseRenewer) note(r renewal) {
	var lost *LostError
	failed := r.err != nil && !errors.As(r.err, &lost)
	k.mu.Lock()
	defer k.mu.Unlock()
	retryAt := r.sent.Add(k.lease / 12) // at once, if the call took that long
	for i, e := range r.batch {
		id := keptID{e.claim.Key, e.claim.Token}
		if k.kept[id] != e {
			continue
		}
		gone := lost != nil && slices.Contains(lost.Claims, i)
		e.suspect = failed
		switch {
		case failed, gone && e.completing > 0:
			e.retryAt = retryAt
		case gone:
			delete(k.kept, id)
			e.lose()
		default:
			e.since, e.retryAt = r.sent, time.Time{}
		}
	}
}
