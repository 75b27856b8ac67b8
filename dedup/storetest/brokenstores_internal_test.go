package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// keepsCounts counts the failures and take-overs from before a reopening too.
type keepsCounts struct {
	*memstore.Store
	mu   sync.Mutex
	kept map[dedup.Key]dedup.Record
}

func newKeepsCounts(s *memstore.Store) dedup.Store {
	return &keepsCounts{Store: s, kept: make(map[dedup.Key]dedup.Record)}
}

func (s *keepsCounts) Reopen(ctx context.Context, key dedup.Key) (dedup.Position, error) {
	found, err := s.Inspect(ctx, key)
	if err != nil {
		return dedup.Position{}, err
	}
	p, err := s.Store.Reopen(ctx, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && len(found) == 1 && found[0].State == dedup.GivenUp {
		s.kept[key] = found[0]
	}
	return p, err
}

func (s *keepsCounts) Claim(ctx context.Context, t dedup.Token, lease time.Duration,
	reqs []dedup.Request, answers []dedup.Answer) error {
	err := s.Store.Claim(ctx, t, lease, reqs, answers)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range answers {
		if kept := s.kept[reqs[i].Key]; answers[i].Verdict.Held() {
			answers[i].Failures += kept.Failures
			answers[i].Takeovers += kept.Takeovers
		}
	}
	return err
}

// watched remembers the last grant of each key, and whether a completion was served.
type watched struct {
	*memstore.Store
	mu     sync.Mutex
	held   map[dedup.Key]dedup.Claim
	served map[dedup.Claim]bool
}

func newWatched(s *memstore.Store) *watched {
	return &watched{Store: s, held: make(map[dedup.Key]dedup.Claim),
		served: make(map[dedup.Claim]bool)}
}

func (s *watched) Claim(ctx context.Context, t dedup.Token, lease time.Duration,
	reqs []dedup.Request, answers []dedup.Answer) error {
	err := s.Store.Claim(ctx, t, lease, reqs, answers)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range answers {
		if answers[i].Verdict.Held() {
			s.held[reqs[i].Key] = reqs[i].Held(t, answers[i])
		}
	}
	return err
}

// again reports whether d is the repetition of a call that succeeded, and returns the last grant.
func (s *watched) again(d dedup.Completion) (last dedup.Claim, repeated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[d.Key], s.served[d.Claim]
}

func (s *watched) Complete(ctx context.Context, done []dedup.Completion) error {
	err := s.Store.Complete(ctx, done)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range done {
		s.served[done[i].Claim] = s.served[done[i].Claim] || err == nil
	}
	return err
}

type movesAgain struct{ *watched }

func newMovesAgain(s *memstore.Store) dedup.Store { return &movesAgain{newWatched(s)} }

func (s *movesAgain) Complete(ctx context.Context, done []dedup.Completion) error {
	if last, repeated := s.again(done[0]); repeated && done[0].Retry != 0 {
		return s.Release(ctx, []dedup.Release{{Claim: last, Retention: retention}})
	}
	return s.watched.Complete(ctx, done)
}

type killsAgain struct{ *watched }

func newKillsAgain(s *memstore.Store) dedup.Store { return &killsAgain{newWatched(s)} }

func (s *killsAgain) Complete(ctx context.Context, done []dedup.Completion) error {
	if _, repeated := s.again(done[0]); repeated && done[0].Dead != "" {
		return s.Discard(ctx, done[0].Key, retention, "again")
	}
	return s.watched.Complete(ctx, done)
}

type lookRenews struct{ *watched }

func newLookRenews(s *memstore.Store) dedup.Store { return &lookRenews{newWatched(s)} }

func (s *lookRenews) Look(ctx context.Context, reqs []dedup.Request,
	answers []dedup.Answer) error {
	for i := range reqs {
		_ = s.Renew(ctx, 300*time.Millisecond, []dedup.Claim{s.held[reqs[i].Key]})
	}
	return s.watched.Look(ctx, reqs, answers)
}

type inspectRenews struct{ *watched }

func newInspectRenews(s *memstore.Store) dedup.Store { return &inspectRenews{newWatched(s)} }

func (s *inspectRenews) Inspect(ctx context.Context, keys ...dedup.Key) ([]dedup.Record, error) {
	for _, key := range keys {
		_ = s.Renew(ctx, 300*time.Millisecond, []dedup.Claim{s.held[key]})
	}
	return s.watched.Inspect(ctx, keys...)
}

// keepsExpiry forgets a record when the first claim would be forgotten.
type keepsExpiry struct {
	*memstore.Store
	expires map[dedup.Key]time.Time
}

func newKeepsExpiry(s *memstore.Store) dedup.Store {
	return &keepsExpiry{s, make(map[dedup.Key]time.Time)}
}

func (s *keepsExpiry) Claim(ctx context.Context, t dedup.Token, lease time.Duration,
	reqs []dedup.Request, answers []dedup.Answer) error {
	for i := range reqs {
		end, known := s.expires[reqs[i].Key]
		if known && end.Before(time.Now()) {
			_ = s.Discard(ctx, reqs[i].Key, 1, "forgotten")
			_ = s.Forget(ctx, reqs[i].Key)
			known = false
		}
		if !known {
			s.expires[reqs[i].Key] = time.Now().Add(lease + reqs[i].Retention)
		}
	}
	return s.Store.Claim(ctx, t, lease, reqs, answers)
}

// locksInOrder locks the keys of a call in the order of the call.
type locksInOrder struct {
	*memstore.Store
	mu                sync.Mutex
	locks             map[dedup.Key]chan struct{}
	complete, release bool
}

func (s *locksInOrder) lock(ctx context.Context, key dedup.Key) error {
	s.mu.Lock()
	lock := s.locks[key]
	if lock == nil {
		lock = make(chan struct{}, 1)
		s.locks[key] = lock
	}
	s.mu.Unlock()
	time.Sleep(time.Microsecond) // in a bubble: all others take their turn
	select {
	case lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *locksInOrder) unlock(key dedup.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	<-s.locks[key]
}

func (s *locksInOrder) Complete(ctx context.Context, done []dedup.Completion) error {
	for i := range done {
		if !s.complete {
			break
		}
		if err := s.lock(ctx, done[i].Key); err != nil {
			return err
		}
		defer s.unlock(done[i].Key)
	}
	return s.Store.Complete(ctx, done)
}

func (s *locksInOrder) Release(ctx context.Context, back []dedup.Release) error {
	for i := range back {
		if !s.release {
			break
		}
		if err := s.lock(ctx, back[i].Key); err != nil {
			return err
		}
		defer s.unlock(back[i].Key)
	}
	return s.Store.Release(ctx, back)
}

// undoesDiscard takes a late success after a discard.
type undoesDiscard struct{ *memstore.Store }

func newUndoesDiscard(s *memstore.Store) dedup.Store { return &undoesDiscard{s} }

func (s *undoesDiscard) Complete(ctx context.Context, done []dedup.Completion) error {
	err := s.Store.Complete(ctx, done)
	if !errors.Is(err, dedup.ErrClaimLost) {
		return err
	}
	_ = s.Forget(ctx, done[0].Key)
	_, err = s.Import(ctx, []dedup.Imported{{Key: done[0].Key, Retention: retention}})
	return err
}

// discardsFence makes a new record for a discarded event.
type discardsFence struct{ *memstore.Store }

func newDiscardsFence(s *memstore.Store) dedup.Store { return &discardsFence{s} }

func (s *discardsFence) Reopen(ctx context.Context, key dedup.Key) (dedup.Position, error) {
	if found, _ := s.Inspect(ctx, key); len(found) == 1 && found[0].Discarded() {
		_ = s.Forget(ctx, key)
		_ = s.Discard(ctx, key, retention, "")
	}
	return s.Store.Reopen(ctx, key)
}

// limited has a limit for results. refuses: larger ones are an error; loses: with the claim.
type limited struct {
	*memstore.Store
	refuses, loses bool
}

func newLimited(refuses, loses bool) func(*memstore.Store) dedup.Store {
	return func(s *memstore.Store) dedup.Store { return &limited{s, refuses, loses} }
}

const resultLimit = 1000

func (s *limited) MaxResult() int { return resultLimit }

func (s *limited) Complete(ctx context.Context, done []dedup.Completion) error {
	for i := range done {
		if len(done[i].Result.Data) <= resultLimit {
			continue
		}
		if s.loses {
			_ = s.Release(ctx, []dedup.Release{{Claim: done[i].Claim, Retention: retention}})
		}
		if s.refuses {
			return errors.New("result too large")
		}
	}
	return s.Store.Complete(ctx, done)
}

// plain has no ability.
type plain struct{ dedup.Store }

// forgetsPrint compares no copy after a claim without a fingerprint.
type forgetsPrint struct {
	*memstore.Store
	bare map[dedup.Key]bool
}

func newForgetsPrint(s *memstore.Store) dedup.Store {
	return &forgetsPrint{s, make(map[dedup.Key]bool)}
}

func (s *forgetsPrint) Claim(ctx context.Context, t dedup.Token, lease time.Duration,
	reqs []dedup.Request, answers []dedup.Answer) error {
	reqs = slices.Clone(reqs)
	for i := range reqs {
		s.bare[reqs[i].Key] = s.bare[reqs[i].Key] || reqs[i].Fingerprint == dedup.Fingerprint{}
		if s.bare[reqs[i].Key] {
			reqs[i].Fingerprint = dedup.Fingerprint{}
		}
	}
	return s.Store.Claim(ctx, t, lease, reqs, answers)
}

// outcomes takes an outcome that it does not know for another one.
type outcomes struct {
	*memstore.Store
	as dedup.Outcome
}

func newOutcomes(as dedup.Outcome) func(*memstore.Store) dedup.Store {
	return func(s *memstore.Store) dedup.Store { return &outcomes{s, as} }
}

func (s *outcomes) Release(ctx context.Context, back []dedup.Release) error {
	back = slices.Clone(back)
	for i := range back {
		if back[i].Outcome > dedup.Undone {
			back[i].Outcome = s.as
		}
	}
	return s.Store.Release(ctx, back)
}

// sharesResults answers with the same bytes each time.
type sharesResults struct {
	*memstore.Store
	results map[dedup.Key]dedup.Result
}

func newSharesResults(s *memstore.Store) dedup.Store {
	return &sharesResults{s, make(map[dedup.Key]dedup.Result)}
}

func (s *sharesResults) Claim(ctx context.Context, t dedup.Token, lease time.Duration,
	reqs []dedup.Request, answers []dedup.Answer) error {
	err := s.Store.Claim(ctx, t, lease, reqs, answers)
	for i := range answers {
		if answers[i].Verdict != dedup.Done {
			continue
		}
		if _, known := s.results[reqs[i].Key]; !known {
			s.results[reqs[i].Key] = answers[i].Result
		}
		answers[i].Result = s.results[reqs[i].Key]
	}
	return err
}

// doneTwice forgets an event that it has answered as done.
type doneTwice struct{ *memstore.Store }

func newDoneTwice(s *memstore.Store) dedup.Store { return &doneTwice{s} }

func (s *doneTwice) Claim(ctx context.Context, t dedup.Token, lease time.Duration,
	reqs []dedup.Request, answers []dedup.Answer) error {
	err := s.Store.Claim(ctx, t, lease, reqs, answers)
	for i := range answers {
		if answers[i].Verdict == dedup.Done {
			_ = s.Forget(ctx, reqs[i].Key)
		}
	}
	return err
}

// factual keeps no results, and records a success as done although the claim was lost (rule 29).
type factual struct {
	*memstore.Store
	mu sync.Mutex
}

func newFactual(s *memstore.Store) dedup.Store { return &factual{Store: s} }

func (s *factual) Claim(ctx context.Context, t dedup.Token, lease time.Duration,
	reqs []dedup.Request, answers []dedup.Answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Claim(ctx, t, lease, reqs, answers)
}

func (s *factual) Complete(ctx context.Context, done []dedup.Completion) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	done = slices.Clone(done)
	for i := range done {
		done[i].Result = dedup.Result{}
	}
	err := s.Store.Complete(ctx, done)
	var lost *dedup.LostError
	if !errors.As(err, &lost) {
		return err
	}
	for _, i := range lost.Claims {
		if c := done[i]; c.Dead == "" && c.Retry == 0 {
			first := c.First
			if found, _ := s.Inspect(ctx, c.Key); len(found) == 1 {
				if found[0].State == dedup.Finished {
					continue
				}
				first = found[0].First
			}
			_ = s.Discard(ctx, c.Key, retention, "")
			_ = s.Forget(ctx, c.Key)
			_, _ = s.Import(ctx, []dedup.Imported{{Key: c.Key, Origin: first,
				Retention: retention}})
		}
	}
	return err
}

// ageing has a horizon that follows the clock: the retention of the request before the present.
// The present is ten minutes after the start of the tests.
type ageing struct {
	*memstore.Store
	began time.Time
}

func newAgeing(s *memstore.Store) dedup.Store { return &ageing{s, time.Now()} }

func (s *ageing) Claim(ctx context.Context, t dedup.Token, lease time.Duration,
	reqs []dedup.Request, answers []dedup.Answer) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return err
	}
	now := today.Add(10 * time.Minute).Add(time.Since(s.began))
	old := make(map[int]bool)
	var others []dedup.Request
	for i, r := range reqs {
		found, err := s.Inspect(ctx, r.Key)
		if err != nil {
			return err
		}
		old[i] = len(found) == 0 && !r.AnyAge && r.Position == (dedup.Position{}) &&
			r.Origin.Time.UnixMilli() > 0 && r.Origin.Time.Before(now.Add(-r.Retention))
		if !old[i] {
			others = append(others, r)
		}
	}
	given := make([]dedup.Answer, len(others))
	if err := s.Store.Claim(ctx, t, lease, others, given); err != nil {
		return err
	}
	for i := range reqs {
		if old[i] {
			answers[i].Verdict = dedup.TooOld
			continue
		}
		answers[i], given = given[0], given[1:]
	}
	return nil
}

// stalling takes longer than several leases for the first calls of Complete, and for the first
// claims that take over.
type stalling struct {
	*memstore.Store
	calls int
	seen  map[dedup.Key]int
}

func newStalling(s *memstore.Store) dedup.Store {
	return &stalling{Store: s, seen: make(map[dedup.Key]int)}
}

func (s *stalling) Complete(ctx context.Context, done []dedup.Completion) error {
	s.calls++
	if s.calls <= 2 {
		time.Sleep(5 * 300 * time.Millisecond) // in a bubble
	}
	return s.Store.Complete(ctx, done)
}

func (s *stalling) Claim(ctx context.Context, t dedup.Token, lease time.Duration,
	reqs []dedup.Request, answers []dedup.Answer) error {
	s.seen[reqs[0].Key]++
	if len(s.seen) == 1 && s.seen[reqs[0].Key] == 2 {
		time.Sleep(5 * 300 * time.Millisecond) // in a bubble
	}
	return s.Store.Claim(ctx, t, lease, reqs, answers)
}

const cancelledBefore = "context: cancelled before the call, an error and no answer"

// parts names the same claims in the error of each renewal.
type parts struct {
	*memstore.Store
	failed, lost []int
}

func newParts(failed, lost []int) func(*memstore.Store) dedup.Store {
	return func(s *memstore.Store) dedup.Store { return &parts{s, failed, lost} }
}

func (s *parts) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	err := s.Store.Renew(ctx, lease, claims)
	if ctx.Err() == nil {
		return err
	}
	return &dedup.PartError{Failed: s.failed, Lost: s.lost, Err: err}
}
