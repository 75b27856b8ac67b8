package idemtest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// opener returns the store of a process.
type opener func(*process) dedup.Store

// search has the settings of a search.
type search struct {
	records       []Record
	store         func(world any) opener
	guard         dedup.GuardConfig
	only          string
	pairs         int
	seed          uint64
	accept        []string
	acceptUnknown bool
	again         repetition
}

// newSearch applies options to the defaults. The arguments are those of the call named call.
func newSearch(call string, opts []TortureOption, arguments ...argument) *search {
	s := &search{pairs: 300, seed: rand.Uint64()}
	s.again.begin(call, arguments)
	for _, o := range opts {
		o(s)
	}
	if s.store == nil {
		s.store = func(any) opener {
			all := memstore.New(memstore.Volatile())
			return func(p *process) dedup.Store { return gate{all, p} }
		}
	}
	s.again.finish(s)
	return s
}

// verdict fails the test of a broken handler.
func verdict(t *testing.T, text string, broken bool) {
	t.Helper()
	if broken {
		t.Fatal(text)
	}
	t.Log(text)
}

// look runs schedules until one breaks the work, and shrinks that one.
func look[W any](
	t *testing.T, s *search, setup func(testing.TB, *Faults) W, work func(*testing.T, W, opener) job,
	state func(W) any,
) (text string, broken bool) {
	t.Helper()
	run := func(plan schedule) (out outcomeOf) {
		synctest.Test(t, func(t *testing.T) {
			f := newFaults(plan)
			w := setup(t, f)
			out = play(f, work(t, w, s.store(w)), func() any { return state(w) })
		})
		return out
	}
	clean := run(nil)
	if clean.err != nil {
		t.Fatalf("idemtest: the run without faults failed: %v\n%s", clean.err, story(clean.trace))
	}
	if len(clean.points) == 0 {
		t.Fatal("idemtest: the run without faults reached no step: Torture needs Records, " +
			"and a handler or function of Idem must run")
	}
	if s.breaks(clean, clean) {
		return report(nil, clean, clean, s.again), true
	}
	plans, err := s.plans(clean)
	if err != nil {
		t.Fatal(err)
	}
	breaks := func(plan schedule) bool { return s.breaks(clean, run(plan)) }
	for _, plan := range plans {
		if breaks(plan) {
			plan = shrink(plan, breaks)
			return report(plan, clean, run(plan), s.again), true
		}
	}
	return fmt.Sprintf("idemtest: %d points, %d schedules, none breaks the handler (seed %d)",
		len(clean.points), len(plans), s.seed), false
}

// plans returns the schedules of a test.
func (s *search) plans(clean outcomeOf) ([]schedule, error) {
	if s.only != "" {
		plan, err := parseSchedule(s.only)
		return []schedule{plan}, err
	}
	all := singles(clean.points, clean.parts)
	rng := rand.New(rand.NewPCG(s.seed, 0))
	for range s.pairs {
		all = append(all, pair(clean.points, clean.parts, rng.IntN))
	}
	return all, nil
}

// breaks reports whether a run ended in another way than the clean run, and not in an accepted one.
func (s *search) breaks(clean, out outcomeOf) bool {
	switch {
	case out.err != nil:
		return true
	case reflect.DeepEqual(out.state, clean.state) && sameAnswers(clean, out):
		return false
	case out.unknown && len(out.repeated) == 0:
		return !s.acceptUnknown
	default:
		return !s.accepts(out.repeated)
	}
}

// sameAnswers reports whether each answer of a run is the first one of the clean run.
func sameAnswers(clean, out outcomeOf) bool {
	return !slices.ContainsFunc(out.answers, func(a any) bool {
		return !reflect.DeepEqual(a, clean.answers[0])
	})
}

// accepts reports whether all repeated calls are accepted, and there is one.
func (s *search) accepts(repeated map[effect][]call) bool {
	for at, list := range repeated {
		keyed := slices.ContainsFunc(list, func(c call) bool { return c.key != "" })
		if keyed || !slices.Contains(s.accept, at.what) {
			return false
		}
	}
	return len(repeated) > 0
}
