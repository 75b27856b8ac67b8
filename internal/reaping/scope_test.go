package reaping

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// age returns a scope that is consumed until 90, with a horizon at 20.
func age(cutoff int64) *Age {
	a := &Age{Scope: "g", ConsumedUntil: micro(90), Horizon: micro(20), Ripe: true}
	if cutoff > 0 {
		a.Cutoff = micro(cutoff)
	}
	return a
}

// mine returns rows of the scope, made at a time, which expire at the others.
func mine(made int64, expires ...int64) (all []row) {
	for _, at := range expires {
		all = append(all, row{scope: "g", made: made, expires: at})
	}
	return all
}

// change returns the rows with a change of each.
func change(rows []row, how func(r *row)) []row {
	for i := range rows {
		how(&rows[i])
	}
	return rows
}

func silent(r *row) { r.scope = "silent" }
func dead(r *row)   { r.dead = true }
func locked(r *row) { r.locked = true }

func rows(all ...[]row) (sum []row) {
	for _, some := range all {
		sum = append(sum, some...)
	}
	return sum
}

// A batch has two rows, a window three, and a move of the horizon reads five.
func scopesOf(m *memory) *Scopes {
	m.batch = 2
	return &Scopes{Rows: m, Window: 3, Limit: 5, Between: m.between}
}

// Work calls the store in this order, with these times.
func TestWork(t *testing.T) {
	unripe, unknown := age(60), age(60)
	unripe.Ripe, unknown.ConsumedUntil = false, time.Time{}
	for name, c := range map[string]struct {
		age            *Age
		events, claims []row
		calls          []string
		left           []int64 // events
	}{
		"the consumed time is not known": {age: unknown, events: mine(10, 30), left: []int64{30}},
		"the horizon is not old enough":  {age: unripe, events: mine(10, 30), left: []int64{30}},
		"no row": {age: age(60), calls: []string{"events window 0-60", "claims window 0-60",
			"events window 0-90", "claims window 0-90"}},
		"no cut-off, so no row is deleted": {age: age(0), events: mine(10, 30), claims: mine(25, 40),
			calls: []string{"events window 0-90", "events expired 0-90", "claims window 0-90",
				"claims expired 0-90", "move 25 90"}, left: []int64{30}},
		"the horizon never goes back": {age: age(0), events: mine(10, 30), calls: []string{
			"events window 0-90", "events expired 0-90", "claims window 0-90", "move 20 90"},
			left: []int64{30}},
		"rows behind the horizon only": {age: age(60), events: rows(mine(10, 30), mine(21, 40),
			mine(10, 60)), calls: []string{"events window 0-60", "events delete 0-60",
			"claims window 0-60", "events window 0-90", "events expired 0-90", "claims window 0-90",
			"move 21 90"}, left: []int64{40, 60}},
		"batches begin at the last row of the one before": {age: age(60),
			events: mine(10, 30, 31), claims: mine(10, 32), calls: []string{"events window 0-60",
				"events delete 0-60", "between", "events delete 31-60", "claims window 0-60",
				"claims delete 0-60", "events window 0-90", "claims window 0-90"}},
		"windows end behind all rows of one expiry": {age: age(60),
			events: rows(mine(10, 30, 40, 40, 40, 40), mine(10, 50)), calls: []string{
				"events window 0-60", "events delete 0-41", "between", "events delete 40-41",
				"between", "events delete 40-41", "between", "events window 41-60",
				"events delete 41-60", "claims window 0-60", "events window 0-90", "claims window 0-90"}},
		"a window that ends at the cut-off is the last one": {age: age(60),
			events: change(mine(10, 30, 40, 59, 59), silent), calls: []string{"events window 0-60",
				"events delete 0-60", "claims window 0-60", "events window 0-90", "events expired 0-60",
				"between", "events window 60-90", "claims window 0-90"},
			left: []int64{30, 40, 59, 59}},
		"locked rows of several times": {age: age(60),
			events: rows(change(mine(10, 30, 31), locked), mine(10, 32)), calls: []string{
				"events window 0-60", "events delete 0-33", "between", "events delete 31-33", "between",
				"events delete 32-33", "between", "events window 33-60", "claims window 0-60",
				"events window 0-90", "events expired 0-90", "claims window 0-90", "move 20 90"},
			left: []int64{30, 31}},
		"locked rows of one time, more than a batch": {age: age(60),
			events: rows(change(mine(10, 30, 30, 30), locked), mine(10, 31)), calls: []string{
				"events window 0-60", "events delete 0-31", "between", "events delete 30-31", "between",
				"events delete 31-31", "between", "events window 31-60", "events delete 31-60",
				"claims window 0-60", "events window 0-90", "events expired 0-31", "between",
				"events window 31-90", "claims window 0-90", "move 20 90"},
			left: []int64{30, 30, 30}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{rows: [recordTables][]row{c.events, c.claims}}
			require.NoError(t, scopesOf(m).Work(t.Context(), c.age, func(int64) {}, func(int64) {}))
			require.Equal(t, c.calls, m.calls)
			require.Equal(t, c.left, m.left(0))
		})
	}
}

// Rows that stay, as many as a move of the horizon reads, do not stop the horizon: it moves by the
// rows from the last cut-off on. The cut-off is when the last row expired that was read.
func TestWorkBehindRowsThatStay(t *testing.T) {
	ahead := mine(50, 30, 31, 32, 33, 34) // made after the horizon
	for name, c := range map[string]struct {
		cutoff int64
		later  []row
		move   string
	}{
		"as many as one step reads":       {0, nil, "move 50 34"},
		"the rest, without a cut-off":     {0, mine(60, 70, 71), "move 50 34"},
		"the rest":                        {34, mine(60, 70, 71), "move 60 90"},
		"no rest":                         {60, nil, "move 50 90"},
		"more than a step, behind":        {34, mine(60, 70, 71, 72, 73, 74, 75), "move 60 73"},
		"more than a step, all of a time": {60, mine(60, 60, 60, 60, 60, 60, 60), "move 60 61"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{}
			m.rows[0] = rows(ahead, c.later)
			a := age(c.cutoff)
			require.NoError(t, scopesOf(m).Work(t.Context(), a, func(int64) {}, func(int64) {}))
			require.Equal(t, c.move, m.calls[len(m.calls)-1])
		})
	}
}

// Work tells the rows of each batch, those of events and claims apart.
func TestWorkTellsBatches(t *testing.T) {
	m := &memory{}
	m.rows[0] = rows(mine(10, 30, 31, 32), change(mine(10, 33, 34), locked))
	m.rows[1] = mine(10, 40, 41)
	var events, claims []int64
	require.NoError(t, scopesOf(m).Work(t.Context(), age(60), func(n int64) {
		events = append(events, n)
	}, func(n int64) { claims = append(claims, n) }))
	require.Equal(t, [][]int64{{2, 1, 0, 0}, {2, 0}}, [][]int64{events, claims})
}

// An error of any call, or of the pause between two calls, ends the work. No call follows, so the
// horizon does not move. The error names the scope.
func TestWorkEndsWithAnError(t *testing.T) {
	work := func(fails int) (calls []string, err error) {
		m := &memory{fails: fails}
		m.rows[0] = rows(mine(10, 30, 40, 41, 42, 50), mine(30, 61, 62, 63, 64, 65))
		m.rows[1] = rows(mine(10, 30), mine(30, 61))
		err = scopesOf(m).Work(t.Context(), age(60), func(int64) {}, func(int64) {})
		return m.calls, err
	}
	all, err := work(0)
	require.NoError(t, err)
	require.Contains(t, all, "events expired 64-90")
	require.Equal(t, "move 30 65", all[len(all)-1])
	for i := range all {
		calls, err := work(i + 1)
		require.ErrorIs(t, err, errDown)
		require.EqualError(t, err, `scope "g": the store is down`)
		require.Equal(t, all[:i+1], calls)
	}
}

// Windows without a row that has expired are read once an hour, also when the row of a dead letter
// is among them. The work begins behind them meanwhile, for each scope and table by itself.
func TestWorkBeginsBehindRowsThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		m.rows[0] = rows(change(mine(10, 10, 11, 12, 13, 14), silent), change(mine(10, 15), dead),
			mine(30, 40))
		s := scopesOf(m)
		work := func(a *Age) []string {
			t.Helper()
			require.NoError(t, s.Work(t.Context(), a, func(int64) {}, func(int64) {}))
			return m.taken()
		}
		behind := []string{"events window 16-60", "events delete 16-60", "claims window 0-60",
			"events window 16-90", "events expired 16-90", "claims window 0-90", "move 30 90"}
		all := []string{"events window 0-60", "events delete 0-13", "between", "events window 13-60",
			"events delete 13-16", "between"}
		last := work(age(0))
		require.Equal(t, []string{"events window 0-90", "events expired 0-13", "between",
			"events window 13-90", "events expired 13-16", "between", "events window 16-90",
			"events expired 16-90", "claims window 0-90", "move 30 90"}, last)
		require.Equal(t, behind, work(age(60)))
		m.rows[0][5].dead = false
		time.Sleep(time.Hour - time.Nanosecond)
		require.Equal(t, behind, work(age(60)))
		other := age(60)
		other.Scope = "other"
		require.Equal(t, all[:3], work(other)[:3])
		time.Sleep(time.Nanosecond)
		require.Equal(t, all, work(age(60))[:6])
		require.Equal(t, []int64{10, 11, 12, 13, 14, 40}, m.left(0))
	})
}

// Rows of the scope that stay only because of their times are read each time: they move the horizon.
func TestWorkPassesNoRowThatItMayDelete(t *testing.T) {
	m := &memory{}
	m.rows[0] = rows(mine(30, 10, 11, 12), change(mine(10, 13, 14, 15), silent))
	s := scopesOf(m)
	for range 2 {
		require.NoError(t, s.Work(t.Context(), age(0), func(int64) {}, func(int64) {}))
		require.Equal(t, "events window 0-90", m.taken()[0])
	}
	a := age(60)
	a.Horizon = micro(30)
	require.NoError(t, s.Work(t.Context(), a, func(int64) {}, func(int64) {}))
	require.Equal(t, []int64{13, 14, 15}, m.left(0))
}
