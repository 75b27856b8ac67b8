package chaos

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// crew is a number of workers with static instance IDs. One that was killed is replaced at once,
// under its ID.
type crew struct {
	t     testing.TB
	names []string
	start func(name string) *proc
	now   map[string]*proc
	all   []*proc
}

func newCrew(t testing.TB, names []string, start func(name string) *proc) *crew {
	t.Helper()
	c := &crew{t: t, names: names, start: start, now: make(map[string]*proc)}
	for _, name := range names {
		c.begin(name)
	}
	return c
}

func (c *crew) begin(name string) {
	c.t.Helper()
	p := c.start(name)
	c.now[name] = p
	c.all = append(c.all, p)
}

func (c *crew) kill(name string) {
	c.t.Helper()
	c.now[name].requireRunning()
	c.now[name].kill()
}

func (c *crew) requireRunning() {
	c.t.Helper()
	for _, name := range c.names {
		c.now[name].requireRunning()
	}
}

// stop ends all of them in good order.
func (c *crew) stop(limit time.Duration) {
	c.t.Helper()
	for _, name := range c.names {
		c.now[name].stop(limit)
	}
}

// killing kills workers while they work. Moments are chosen by progress and not by the clock: the
// next victim must have had some effects since it was chosen. So every kill hits a process that
// works, on a slow machine as on a fast one.
type killing struct {
	crew    *crew
	rng     *rand.Rand
	kills   int
	effects func(*proc) int // that this process has had so far
	between int             // at most so many effects of the victim before it is killed
	spread  time.Duration   // and so long after that
	left    func() int      // the unfinished part of the released load
	release func(kill int)  // called after each kill, from 0: releases more load
	more    func() bool     // releases more load because all is done; false, or nil: no load is left
}

// run returns how many of the kills hit a process that was working and had work left.
func (k killing) run() (hits int) {
	t := k.crew.t
	t.Helper()
	for i := range k.kills {
		name := k.victim(i)
		for k.await(i, k.crew.now[name]); k.left() == 0 && k.extra(); { // this process did the rest during the pause
			k.await(i, k.crew.now[name])
		}
		k.crew.kill(name)
		if k.left() > 0 {
			hits++
		}
		k.crew.begin(name)
		k.release(i)
	}
	return hits
}

// await waits until a process has had some effects more, and for a moment.
func (k killing) await(kill int, p *proc) {
	t := k.crew.t
	t.Helper()
	goal := k.effects(p) + 1 + k.rng.IntN(k.between)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	limit := time.After(30 * time.Second)
	for worked := false; !worked; {
		select {
		case <-poll.C:
			p.requireRunning()
			// Without load the kill does not hit a worker at work.
			worked = k.effects(p) >= goal || k.left() == 0 && !k.extra()
		case <-limit:
			require.Fail(t, "does nothing", "kill %d: %s had %d effects in 30 s and not %d; %d are left to do:\n%s",
				kill, p, k.effects(p), goal, k.left(), p.dump())
		}
	}
	pause(t, k.rng, k.spread)
}

// extra releases more load, if there is some.
func (k killing) extra() bool { return k.more != nil && k.more() }

// victim takes turns through the crew, in an order drawn anew for each round: each is killed
// equally often, and now and then one twice in a row.
func (k killing) victim(kill int) string {
	names := k.crew.names
	if kill%len(names) == 0 {
		k.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	}
	return names[kill%len(names)]
}
