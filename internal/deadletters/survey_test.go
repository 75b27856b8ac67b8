package deadletters

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// surveyed is a dead letter of one event in a survey.
type surveyed struct {
	value  *string
	before *string // the original value of an edited one
	line   *string // the value in the file
}

// The dead letters of one event decide by three comparisons. A replay needs one value. An event in
// its queue needs one value only if a line edits it. A handled event needs one value, or one original
// value.
func TestSurvey_Decisions(t *testing.T) {
	a, b, c := text("a"), text("b"), text("c")
	for name, row := range map[string]struct {
		letters             []surveyed
		run, unblock, close bool
	}{
		"one":                          {[]surveyed{{value: a}}, true, true, true},
		"equal ones":                   {[]surveyed{{value: a}, {value: a}}, true, true, true},
		"different ones":               {[]surveyed{{value: a}, {value: b}}, false, true, false},
		"null and empty":               {[]surveyed{{}, {value: text("")}}, false, true, false},
		"an edit":                      {[]surveyed{{value: a}, {value: b, before: a}}, false, true, true},
		"an edit of an edit":           {[]surveyed{{value: a}, {value: b, before: a}, {value: c, before: a}}, false, true, true},
		"an edit back":                 {[]surveyed{{value: a}, {value: a, before: b}}, true, true, true},
		"edits of different ones":      {[]surveyed{{value: c, before: a}, {value: c, before: b}}, true, true, true},
		"edits of two contents":        {[]surveyed{{value: b, before: a}, {value: a, before: c}}, false, true, false},
		"a line corrects one":          {[]surveyed{{value: a, line: b}, {value: a, line: a}}, false, false, true},
		"a line corrects the other":    {[]surveyed{{value: a, line: a}, {value: a, line: b}}, false, false, true},
		"lines correct both":           {[]surveyed{{value: a, line: b}, {value: a, line: b}}, true, true, true},
		"lines correct differently":    {[]surveyed{{value: a, line: b}, {value: a, line: c}}, false, false, true},
		"lines correct different ones": {[]surveyed{{value: a, line: c}, {value: b, line: c}}, true, true, true},
		"lines as exported":            {[]surveyed{{value: a, line: a}, {value: b, line: b}}, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Survey{events: map[digest]kin{}, spare: map[digest][]rank{}, lines: map[Place]*Exported{}}
			key := dedup.Key{Scope: "g", Type: "paid", ID: "1"}
			var last *Found
			for i, l := range row.letters {
				e := &deadletter.Event{Key: key, Message: &idem.Message{Value: bytesIn(l.value)}, Position: dedup.Position{Generation: uint32(i)}}
				if l.before != nil {
					e.Edited = deadletter.ValueHash(bytesIn(l.before))
				}
				last = &Found{Place: Place{0, int64(i)}, Record: &idem.Message{}, DeadLetter: e}
				if l.line != nil {
					s.lines[last.Place] = &Exported{Value: BytesOf(bytesIn(l.line))}
				}
				require.NoError(t, s.note(last))
			}
			none := func(Place) bool { return false }
			j := Judged{Found: last, Action: ActReopen}
			s.choose(&j, none)
			require.Equal(t, row.run, j.Action == ActReopen, j.Note)
			j = Judged{Found: last, Action: ActUnblock}
			s.unblock(&j)
			require.Equal(t, row.unblock, j.Action == ActUnblock, j.Note)
			j = Judged{Found: last, Verdict: SeenDone}
			s.doubt(&j)
			require.Equal(t, row.close, j.Settled(false), j.Note)
		})
	}
}

// The best dead letter of an event is the newest of the highest generation. Those before another
// one are known in order, up to a bound.
func TestSurvey_Rivals(t *testing.T) {
	for name, row := range map[string]struct {
		generations []uint32
		want        [][]int64 // for each dead letter
	}{
		"one":                {[]uint32{0}, [][]int64{nil}},
		"rising":             {[]uint32{0, 1, 2}, [][]int64{{2, 1}, {2}, nil}},
		"falling":            {[]uint32{2, 1, 0}, [][]int64{nil, {0}, {0, 1}}},
		"equal, first first": {[]uint32{1, 1, 1}, [][]int64{nil, {0}, {0, 1}}},
		"mixed":              {[]uint32{1, 3, 2}, [][]int64{{1, 2}, nil, {1}}},
		"more than the bound": {
			[]uint32{0, 1, 2, 3, 4, 5}, [][]int64{{5, 4, 3, 2}, {5, 4, 3, 2}, {5, 4, 3}, {5, 4}, {5}, nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Survey{events: map[digest]kin{}, spare: map[digest][]rank{}}
			var all []*Found
			for i, g := range row.generations {
				e := &deadletter.Event{
					Key: dedup.Key{Scope: "g", Type: "paid", ID: "1"}, Message: &idem.Message{}, Position: dedup.Position{Generation: g},
				}
				all = append(all, &Found{Place: Place{0, int64(i)}, Record: &idem.Message{}, DeadLetter: e})
				require.NoError(t, s.note(all[i]))
			}
			for i, l := range all {
				var got []int64
				for _, at := range s.rivals(l) {
					got = append(got, at.Offset)
				}
				require.Equal(t, row.want[i], got, "dead letter %d", i)
			}
		})
	}
}
