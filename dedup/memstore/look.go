package memstore

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/dedup"
)

// Look implements [dedup.Looker]. The answers of one call are of one time. Look forgets as many
// expired records as Claim does.
func (s *Store) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return fmt.Errorf("memstore: look: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "look")
	if err != nil {
		return err
	}
	s.sweep(now, sweeps(len(reqs))) // TooOld depends on the forgotten records
	for i := range reqs {
		switch r := s.lookUp(reqs[i].Key, now); {
		case r != nil:
			answers[i], _ = r.Refuse(&reqs[i], now)
		case s.tooOld(&reqs[i]):
			answers[i].Verdict = dedup.TooOld
		}
	}
	return nil
}
