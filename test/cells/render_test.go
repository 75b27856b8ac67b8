package cells

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const proof = "../../docs/proof.md"

// The page lists exactly the cells of the table, with its expectations and its reasons.
func TestProofListsTheCells(t *testing.T) {
	text, _ := readProof(t)
	requireProof(t, text)
	require.LessOrEqual(t, strings.Count(text, "\n"), 400)
}

// readProof returns the part of the page about cells, and the rest, which `make soak` writes.
func readProof(t testing.TB) (cells, rest string) {
	t.Helper()
	text, err := os.ReadFile(proof)
	require.NoError(t, err)
	cells, _, _ = strings.Cut(string(text), "\n## The soak\n")
	return cells, string(text[len(cells):])
}

func requireProof(t *testing.T, text string) {
	t.Helper()
	came, err := parse(text)
	require.NoError(t, err, "run `make cells`")
	require.NoError(t, faulty(text, came), "run `make cells`")
}

// faulty returns the faults of a page: entries that the table does not allow, missing cells, cells
// too many, or a text that differs from a rendered one, such as in its counts.
func faulty(text string, came map[combination]string) error {
	var wrong []error
	for _, c := range cells() {
		if allowed := expect(c).entries(); !slices.Contains(allowed, came[c]) {
			wrong = append(wrong, fmt.Errorf("%s: the page has %q, the table allows %q", c, came[c], allowed))
		}
	}
	if len(came) != len(cells()) {
		wrong = append(wrong, fmt.Errorf("the page has %d cells, the table %d", len(came), len(cells())))
	}
	if ran := ranOf(text); ran == "" || text != render(page{ran, came}) {
		wrong = append(wrong, errors.New("the page differs from the one that its entries make"))
	}
	return errors.Join(wrong...)
}

// The line of a run names the cells of a later one, once for each pattern.
func TestRanAgain(t *testing.T) {
	const ran = "Run on a day, commit 1."
	once := ranAgain(ran, "^On", 7, "2")
	require.Equal(t, "Run on a day, commit 1. Cells that match `^On`: 7, at commit 2.", once)
	both := ranAgain(once, "^Do", 3, "3")
	require.Equal(t, once+" Cells that match `^Do`: 3, at commit 3.", both)
	again := ranAgain(ranAgain(ran, "^Do", 3, "3"), "^On", 8, "4")
	require.Equal(t, again, ranAgain(both, "^On", 8, "4"))
}

// A rendered page is parsed to its source. A page without a cell, with another expectation, with an
// entry that the table does not allow, or with another count is refused.
func TestRender(t *testing.T) {
	p := page{ran: ranPrefix + "a day.", came: make(map[combination]string)}
	for _, c := range cells() {
		p.came[c] = expect(c).entries()[0]
	}
	repeated := combination{on, afterEffect, pg, kill}
	p.came[repeated] = "1 + repeat"
	text := render(p)
	requireProof(t, text)
	came, err := parse(text)
	require.NoError(t, err)
	require.Equal(t, p.came, came)
	require.Equal(t, p.ran, ranOf(text))

	_, err = parse(strings.Replace(text, "| 1-2 |", "| 1 |", 1))
	require.Error(t, err)
	for name, spoiled := range map[string]string{
		"a cell is missing":  strings.Replace(text, "before the claim; ", "", 1),
		"a repeat":           strings.Replace(text, "| 1 | 1 |", "| 1 | 1 + repeat |", 1),
		"a lost effect":      strings.Replace(text, "| 1 + repeat |", "| 0 |", 1),
		"another answer":     strings.Replace(text, "| 0, unknown outcome | 0, unknown outcome |", "| 0, unknown outcome | 1 |", 1),
		"unexpected":         strings.Replace(text, "| 1 + repeat |", "| 1 + repeat"+unexpected+" |", 1),
		"the count of cells": strings.Replace(text, fmt.Sprintf("%d cells ran", len(cells())), "9 cells ran", 1),
		"the count expected": strings.Replace(text, fmt.Sprintf("and %d came", len(cells())), "and 9 came", 1),
		"the line of a run":  strings.Replace(text, ranPrefix, "Ran on ", 1),
		"a count of reasons": strings.Replace(text, onlyHandlers+" | ", onlyHandlers+" | 1", 1),
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, text, spoiled)
			came, err := parse(spoiled)
			require.NoError(t, err)
			require.Error(t, faulty(spoiled, came))
		})
	}
}
