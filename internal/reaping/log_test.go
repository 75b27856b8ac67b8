package reaping

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTrouble(t *testing.T) {
	type run struct {
		far          reach
		err          error
		begins, ends bool
	}
	for name, runs := range map[string][]run{
		"none":                  {{far: looked}, {far: asked}, {far: leased}},
		"told once":             {{asked, errDown, true, false}, {far: leased, err: errDown}},
		"over":                  {{looked, errSlow, true, false}, {looked, nil, false, true}, {far: looked}},
		"the lease is readable": {{asked, errDown, true, false}, {asked, nil, false, true}},
		"elsewhere says nothing about scopes": {{leased, errDown, true, false}, {far: asked},
			{far: leased}, {looked, nil, false, true}},
		"nor about the work behind them": {{looked, errSlow, true, false}, {far: asked},
			{far: leased}, {looked, nil, false, true}},
		"the worst run counts": {{leased, errSlow, true, false}, {far: asked, err: errDown},
			{far: asked}, {looked, nil, false, true}},
		"a second time": {{asked, errDown, true, false}, {looked, nil, false, true},
			{asked, errDown, true, false}, {asked, nil, false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var now trouble
			for i, r := range runs {
				begins, ends := now.note(r.far, r.err)
				require.Equal(t, []bool{r.begins, r.ends}, []bool{begins, ends}, "run %d", i)
			}
		})
	}
}
