package decision

import "time"

// floorRest is how long a reaper begins behind rows that stay. Then it reads them again, since the
// retention of dead letters may be over.
const floorRest = time.Hour

// Floors remembers where the rows of each scope and table begin that a reaper may delete. It passes
// the windows in front of them, with rows of other scopes and dead letters, once an hour only. The
// zero value is ready. A Floors is for one goroutine.
type Floors struct{ of map[floorKey]floor }

type floorKey struct {
	scope string
	table int
}

type floor struct {
	at   time.Time // the end of the windows that were passed
	till time.Time // until when the reaper begins there
}

// Begin returns the time from which a reaper reads rows: that of the last call of Pass, or from.
func (f *Floors) Begin(scope string, table int, from, now time.Time) time.Time {
	key := floorKey{scope, table}
	at, there := f.of[key]
	if !there {
		return from
	}
	if !now.Before(at.till) {
		delete(f.of, key)
		return from
	}
	return at.at
}

// Pass notes that a reaper has found no row of a scope up to the end of a full window.
func (f *Floors) Pass(scope string, table int, to, now time.Time) {
	if f.of == nil {
		f.of = make(map[floorKey]floor)
	}
	key := floorKey{scope, table}
	till := now.Add(floorRest)
	if at, there := f.of[key]; there {
		till = at.till
	}
	f.of[key] = floor{to, till}
}
