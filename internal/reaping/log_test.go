package reaping

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTrouble(t *testing.T) {
	type run struct {
		end          ending
		err          error
		begins, ends bool
	}
	good, elsewhere := run{end: ending{looked: true}}, run{}
	down := run{err: errDown}
	slow := run{end: ending{looked: true, slow: true}, err: errSlow}
	slowThenElsewhere := run{end: ending{slow: true}, err: errSlow}
	begins := func(r run) run {
		r.begins = true
		return r
	}
	ends := func(r run) run {
		r.ends = true
		return r
	}
	for name, runs := range map[string][]run{
		"none":                           {good, elsewhere, good},
		"one line for many runs":         {begins(down), down, down, ends(good), good},
		"the store answers":              {begins(down), ends(elsewhere), elsewhere},
		"slow scopes":                    {begins(slow), slow, ends(good), good},
		"elsewhere ends no slow scopes":  {begins(slow), elsewhere, elsewhere, ends(good)},
		"slow scopes before the loss":    {begins(slowThenElsewhere), slow, elsewhere, ends(good)},
		"a second time":                  {begins(down), ends(good), begins(down), ends(elsewhere)},
		"an outage beside slow scopes":   {begins(slow), begins(down), down, ends(elsewhere), elsewhere, ends(good)},
		"a second outage beside them":    {begins(slow), begins(down), ends(elsewhere), begins(down), ends(good), good},
		"slow scopes after an outage":    {begins(down), begins(slow), slow, ends(good)},
		"the work behind slow scopes":    {begins(slow), begins(down), slow, ends(good)},
		"an outage behind a lost lease":  {begins(down), ends(elsewhere), begins(down), ends(elsewhere)},
		"no slow scopes for a new owner": {begins(slow), begins(down), ends(good), good},
	} {
		t.Run(name, func(t *testing.T) {
			var now trouble
			for i, r := range runs {
				begins, ends := now.note(r.end, r.err)
				require.Equal(t, []bool{r.begins, r.ends}, []bool{begins, ends}, "run %d", i)
			}
		})
	}
}
