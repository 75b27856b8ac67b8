package dedup

import (
	"errors"
	"fmt"
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

// The results of a call with three claims: R renewed, F failed, L lost.
func TestResultsOfARenewal(t *testing.T) {
	down := fmt.Errorf("down: %w", ErrUnavailable)
	part := func(failed, lost []int) error { return &PartError{Failed: failed, Lost: lost, Err: down} }
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"success":                    {nil, "RRR"},
		"an error":                   {down, "FFF"},
		"lost":                       {Lost([]int{1}), "RLR"},
		"lost, wrapped":              {fmt.Errorf("store: %w", Lost([]int{0, 2})), "LRL"},
		"a part":                     {part([]int{0, 2}, nil), "FRF"},
		"a part, wrapped":            {fmt.Errorf("store: %w", part([]int{1}, nil)), "RFR"},
		"a part, and lost":           {part([]int{0}, []int{2}), "FRL"},
		"a part that is all":         {part([]int{0, 1, 2}, nil), "FFF"},
		"failed and lost":            {part([]int{0}, []int{0}), "FRR"},
		"a part without a failure":   {part(nil, []int{1}), "FFF"},
		"a part of no claim":         {part([]int{3}, nil), "FFF"},
		"a part below zero":          {part([]int{-1}, nil), "FFF"},
		"a part, lost of no claim":   {part([]int{0}, []int{3}), "FFF"},
		"a part around a loss":       {&PartError{Failed: []int{1}, Err: Lost([]int{0})}, "RFR"},
		"no part around a loss":      {&PartError{Err: Lost([]int{0})}, "FFF"},
		"lost of no claim":           {Lost([]int{0, 3}), "FFF"},
		"a part beside other errors": {errors.Join(down, part([]int{2}, nil)), "RRF"},
	} {
		got := ""
		for _, r := range results(3, c.err) {
			got += string("RFL"[r])
		}
		require.Equal(t, c.want, got, name)
	}
	require.Empty(t, results(0, nil))
}

// H-18: after a completion without an answer, a renewal alone does not find a loss.
func TestReactionToARenewal_H18(t *testing.T) {
	type state struct {
		result     result
		completing int
		unanswered bool
	}
	for s, want := range map[state]reaction{
		{resultRenewed, 0, false}: reactRenewed,
		{resultRenewed, 1, false}: reactRenewed,
		{resultRenewed, 0, true}:  reactRenewed,
		{resultRenewed, 1, true}:  reactRenewed,
		{resultFailed, 0, false}:  reactRetry,
		{resultFailed, 1, false}:  reactRetry,
		{resultFailed, 0, true}:   reactRetry,
		{resultFailed, 1, true}:   reactRetry,
		{resultLost, 0, false}:    reactLose,
		{resultLost, 1, false}:    reactRetry,
		{resultLost, 0, true}:     reactComplete,
		{resultLost, 2, true}:     reactRetry,
	} {
		e := &kept{completing: s.completing}
		if s.unanswered {
			e.unanswered = &Completion{}
		}
		require.Equal(t, want, e.react(s.result), "%+v", s)
		require.False(t, e.doubted(), "%+v", s)
		e.denied = true
		require.Equal(t, s.completing > 0 || s.unanswered, e.doubted(), "%+v", s)
	}
}

func TestPartError(t *testing.T) {
	err := &PartError{Failed: []int{1, 4}, Lost: []int{2}, Err: ErrUnavailable}
	require.ErrorIs(t, err, ErrUnavailable)
	require.NotErrorIs(t, err, ErrClaimLost)
	require.EqualError(t, err, "2 claims not renewed: store unavailable")
}
