package idemtest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
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
	acceptDead    bool
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
	return s.look(t, runner(t, s, setup, work, state))
}

// runner returns a function that runs a schedule in a new world.
func runner[W any](
	t *testing.T, s *search, setup func(testing.TB, *Faults) W, work func(*testing.T, W, opener) job,
	state func(W) any,
) func(schedule) outcomeOf {
	t.Helper()
	return func(plan schedule) (out outcomeOf) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			f := newFaults(plan)
			w := setup(t, f)
			out = play(f, work(t, w, s.store(w)), func() any { return state(w) })
		})
		if out.lease > longestLease {
			t.Fatalf("idemtest: the test has a lease of %s, and Torture can wait for %s at most: configure a "+
				"shorter lease in the test", out.lease, longestLease)
		}
		return out
	}
}

// look is the function look with one that runs a schedule.
func (s *search) look(t *testing.T, run func(schedule) outcomeOf) (text string, broken bool) {
	t.Helper()
	clean := cleanRun(t, run)
	if s.breaks(clean, clean) {
		return report(nil, clean, clean, s), true
	}
	if s.only != "" {
		return s.one(t, clean, run)
	}
	var ran []single
	all := singles(clean.points, clean.parts)
	for _, plan := range all {
		out := run(plan)
		if s.breaks(clean, out) {
			return s.found(plan, clean, out, run), true
		}
		ran = append(ran, single{plan[0], out.points})
	}
	pairs := s.pairsOf(ran, clean.parts)
	for _, plan := range pairs {
		if out := run(plan); s.breaks(clean, out) {
			return s.found(plan, clean, out, run), true
		}
	}
	return fmt.Sprintf("idemtest: %d points, %d schedules, none breaks the handler (seed %d)",
		len(clean.points), len(all)+len(pairs), s.seed), false
}

// cleanRun runs without faults, twice.
func cleanRun(t *testing.T, run func(schedule) outcomeOf) outcomeOf {
	t.Helper()
	clean := run(nil)
	if clean.shared != nil {
		t.Fatalf("idemtest: %s\n%s", clean.shared, story(clean.trace))
	}
	if clean.err != nil {
		t.Fatalf("idemtest: the run without faults failed: %v\n%s", clean.err, story(clean.trace))
	}
	if len(clean.points) == 0 {
		t.Fatal("idemtest: the run without faults reached no step: Torture needs Records, " +
			"and a handler or function of Idem must run")
	}
	again := run(nil)
	for _, c := range []struct {
		what       string
		first, now any
	}{
		{"the state differs", clean.state, again.state},
		{"the answers differ", clean.answers, again.answers},
	} {
		if !reflect.DeepEqual(c.first, c.now) {
			t.Fatalf("idemtest: %s between two runs without faults, so a comparison shows nothing: it must not "+
				"depend on the time, on random values or on the order of events of different keys\n"+
				"first run:  %+v\nsecond run: %+v", c.what, c.first, c.now)
		}
	}
	return clean
}

// one runs the schedule of [Only].
func (s *search) one(t *testing.T, clean outcomeOf, run func(schedule) outcomeOf) (text string, broken bool) {
	t.Helper()
	plan, err := parseSchedule(s.only)
	if err != nil {
		t.Fatal(err)
	}
	out := run(plan)
	if err := plan.reached(out.points, clean.parts); err != nil {
		t.Fatal(err)
	}
	if s.breaks(clean, out) {
		return s.found(plan, clean, out, run), true
	}
	return fmt.Sprintf("idemtest: %d points, the schedule %q does not break the handler",
		len(out.points), plan), false
}

// pairsOf draws schedules with two faults. Each is drawn once.
func (s *search) pairsOf(ran []single, parts int) (all []schedule) {
	rng := rand.New(rand.NewPCG(s.seed, 0))
	drawn := make(map[string]bool)
	for range s.pairs {
		plan := pair(ran, parts, rng.IntN)
		if plan == nil {
			break
		}
		if text := plan.String(); !drawn[text] {
			drawn[text] = true
			all = append(all, plan)
		}
	}
	return all
}

// found shrinks a schedule that breaks the work, and returns the report of the shortest one.
func (s *search) found(plan schedule, clean, broken outcomeOf, run func(schedule) outcomeOf) string {
	plan = shrink(plan, func(shorter schedule) bool {
		out := run(shorter)
		if !s.breaks(clean, out) {
			return false
		}
		broken = out
		return true
	})
	return report(plan, clean, broken, s)
}
