package soak

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// disturber disturbs the workers of a line. Moments are chosen by progress: a worker is disturbed
// that has handled events a moment ago. Each disturbance releases a portion of the load, so that
// work is left.
type disturber struct {
	line
	t     testing.TB
	rng   *rand.Rand
	crew  *crew
	load  *load
	group *group

	portion int // the events of one release
}

type disturbance bool

const (
	kill disturbance = false
	cut  disturbance = true
)

// run returns how many workers were killed, and how many of them while work was left. It ends early
// if the load does.
func (d *disturber) run() (killed, hits int) {
	d.t.Helper()
	all := slices.Concat(slices.Repeat([]disturbance{kill}, d.kills), slices.Repeat([]disturbance{cut}, d.cuts))
	d.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	d.portion = d.events/(2*len(all)+2) + 1 // half of the load is for workers that are idle
	d.load.release(d.portion)
	for _, what := range all {
		d.load.release(d.portion)
		name := d.victim()
		if name == "" {
			return killed, hits
		}
		d.pause(30 * time.Millisecond)
		if what == kill {
			d.crew.now[name].kill()
			killed++
			if lag, err := d.lag(); err == nil && lag > 0 {
				hits++
			}
			d.crew.begin(name)
			continue
		}
		w := d.crew.wires[name]
		before := w.lost.Load()
		w.lose([]loss{theRequest, theAnswer}[d.rng.IntN(2)])
		d.until(func() bool { return w.lost.Load() > before })
		w.lose(nothing)
	}
	return killed, hits
}

// until waits until ok, and releases more load whenever all is handled. It returns false if no load
// is left, and fails after a minute.
func (d *disturber) until(ok func() bool) bool {
	d.t.Helper()
	for range 60 {
		if d.await(time.Second, ok) {
			return true
		}
		if lag, err := d.lag(); err != nil || lag > 0 {
			continue // a worker is starting, or slow
		}
		if d.load.spent() {
			return false
		}
		d.load.release(d.portion)
	}
	d.crew.dump()
	require.Fail(d.t, "the workers do not go on", "for a minute")
	return false
}

// lag returns how many records are not committed, or an error while the coordinator moves.
func (d *disturber) lag() (int64, error) {
	committed, err := d.group.committed()
	lag := int64(d.load.sent)
	for _, offset := range committed {
		lag -= offset
	}
	return lag, err
}

// settled is how many events a process handles before it is disturbed. Kills that follow each other
// at once would hit one event again and again. The crash guard gives up an event after three runs
// without an end.
const settled = 20 * partitions

// victim returns a worker that handles events at this moment, or "" if no load is left.
func (d *disturber) victim() (name string) {
	d.t.Helper()
	d.crew.working() // from here on
	var names []string
	if !d.until(func() bool {
		names = slices.DeleteFunc(d.crew.working(), func(name string) bool {
			return d.crew.now[name].handled.Load() < settled
		})
		return len(names) > 0
	}) {
		return ""
	}
	return names[d.rng.IntN(len(names))]
}

// await polls until ok, and reports whether that came in time.
func (d *disturber) await(limit time.Duration, ok func() bool) bool {
	poll, end := time.NewTicker(5*time.Millisecond), time.After(limit)
	defer poll.Stop()
	for {
		select {
		case <-poll.C:
			if ok() {
				return true
			}
		case <-end:
			return false
		case <-d.t.Context().Done():
			return false
		}
	}
}

func (d *disturber) pause(limit time.Duration) {
	d.await(time.Duration(d.rng.Int64N(int64(limit))), func() bool { return false })
}

// finish waits until the group has committed everything. It fails if the lag stays as it is for a
// minute.
func (d *disturber) finish() {
	d.t.Helper()
	least, since := int64(1)<<62, time.Now()
	for {
		lag, err := d.lag()
		switch {
		case err != nil: // the coordinator moves
		case lag == 0:
			return
		case lag < least:
			least, since = lag, time.Now()
		}
		if time.Since(since) > time.Minute {
			d.crew.dump()
			require.Fail(d.t, "the lag does not go away", "%d records; dead letters: %q", least, d.group.deadLetters())
		}
		d.crew.working() // requires that the workers run
		d.pause(200 * time.Millisecond)
	}
}
