package dedup

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each case has a batch and the calls that pieces makes of it. An upper-case rune is a suspect.
func TestPieces(t *testing.T) {
	for batch, want := range map[string]string{
		"":                  "",
		"abcdefghijkl":      "abcdefghijkl",
		"A":                 "A",
		"Ab":                "b A",
		"ABCDEFGH":          "A B C D E F G H",
		"ABCDEFGHI":         "AB CD EF GH I",
		"aBcDeFgHiJkLmNoPq": "acegikmoq B D F H J L N P",
		"aBcD":              "ac B D",
		"ABCDEFGHIJKLMNOPQ": "ABC DEF GHI JKL MNO PQ",
		"AbCDEFGHIJ":        "b AC DE FG HI J",
	} {
		var all []*kept
		for _, c := range batch {
			e := &kept{suspect: c < 'a'}
			e.claim.Key.ID = string(c)
			all = append(all, e)
		}
		calls := pieces(all)
		var got []string
		for _, call := range calls {
			text := ""
			for _, e := range call {
				text += e.claim.Key.ID
			}
			got = append(got, text)
		}
		require.Equal(t, want, strings.Join(got, " "), batch)
		require.LessOrEqual(t, len(calls), 1+renewPieces, batch)
	}
}
