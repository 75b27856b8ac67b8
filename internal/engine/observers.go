package engine

import "github.com/idem-go/idem/observe"

// observers are the hooks of a processor, sorted once.
type observers struct {
	handled    []observe.HandledObserver
	duplicate  []observe.DuplicateObserver
	deadLetter []observe.DeadLetterObserver
	retry      []observe.RetryObserver
	skipped    []observe.SkippedObserver
	claim      []observe.ClaimObserver
	store      []observe.StoreObserver
	stall      []observe.StallObserver
	claimGroup []observe.ClaimGroupObserver
	call       []observe.CallObserver
	storeCall  []observe.StoreCallObserver
	settled    []observe.SettledObserver
	lost       []observe.LostObserver
	conflict   []observe.ConflictObserver
}

func pick[O any](list []O, o observe.Observer) []O {
	if hook, ok := o.(O); ok {
		return append(list, hook)
	}
	return list
}

// add sorts o in and reports whether it implements anything.
func (s *observers) add(o observe.Observer) bool {
	before := s.count()
	s.handled = pick(s.handled, o)
	s.duplicate = pick(s.duplicate, o)
	s.deadLetter = pick(s.deadLetter, o)
	s.retry = pick(s.retry, o)
	s.skipped = pick(s.skipped, o)
	s.claim = pick(s.claim, o)
	s.store = pick(s.store, o)
	s.stall = pick(s.stall, o)
	s.claimGroup = pick(s.claimGroup, o)
	s.call = pick(s.call, o)
	s.storeCall = pick(s.storeCall, o)
	s.settled = pick(s.settled, o)
	s.lost = pick(s.lost, o)
	s.conflict = pick(s.conflict, o)
	return s.count() > before
}

func (s *observers) count() int {
	return len(
		s.handled,
	) + len(
		s.duplicate,
	) + len(
		s.deadLetter,
	) + len(
		s.retry,
	) + len(
		s.skipped,
	) + len(
		s.claim,
	) +
		len(
			s.store,
		) + len(
		s.stall,
	) + len(
		s.claimGroup,
	) + len(
		s.call,
	) + len(
		s.storeCall,
	) + len(
		s.settled,
	) + len(
		s.lost,
	) + len(
		s.conflict,
	)
}
