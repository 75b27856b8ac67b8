package cells

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const proof = "../../docs/proof.md"

// The page lists exactly the cells of the table, with its expectations and its reasons.
func TestProofListsTheCells(t *testing.T) {
	text, err := os.ReadFile(proof)
	require.NoError(t, err)
	requireProof(t, string(text))
	require.LessOrEqual(t, strings.Count(string(text), "\n"), 300)
}

func requireProof(t *testing.T, text string) {
	t.Helper()
	came, err := parse(text)
	require.NoError(t, err, "run `make cells`")
	for _, c := range cells() {
		require.NotEmpty(t, came[c], "%s is missing in docs/proof.md: run `make cells`", c)
		require.NotContains(t, came[c], unexpected, "%s", c)
		delete(came, c)
	}
	require.Empty(t, came, "docs/proof.md has cells that the table does not have: run `make cells`")
	require.Contains(t, text, renderReasons(), "run `make cells`")
	require.True(t, strings.HasPrefix(text, intro), "run `make cells`")
}

// A rendered page is parsed to what it was rendered from. A page without a cell, or with another
// expectation, is refused.
func TestRender(t *testing.T) {
	p := page{ran: ranPrefix + "a day.", came: make(map[combination]string)}
	for _, c := range cells() {
		p.came[c] = "1"
	}
	p.came[cells()[3]] = "1 + repeat"
	text := render(p)
	requireProof(t, text)
	came, err := parse(text)
	require.NoError(t, err)
	require.Equal(t, p.came, came)
	require.Equal(t, p.ran, ranOf(text))

	_, err = parse(strings.Replace(text, "| 1-2 |", "| 1 |", 1))
	require.Error(t, err)
	came, err = parse(strings.Replace(text, "before the claim; ", "", 1))
	require.NoError(t, err)
	require.Less(t, len(came), len(cells()))
}
