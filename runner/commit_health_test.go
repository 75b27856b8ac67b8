package runner

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommitHealth_G04: a failing commit is logged without the data that its error quotes.
func TestCommitHealth_G04(t *testing.T) {
	_, quoting := strconv.Atoi("canary")
	cfg := good()
	cfg.ErrorText = func(error) string { return "hidden" }
	var lines strings.Builder
	health := commitHealth{log: slog.New(slog.NewTextHandler(&lines, nil)), text: cfg.Text}
	health.begin(1)
	health.note(quoting)
	health.end(0)
	health.settle()
	require.NotContains(t, lines.String(), "canary")
	require.Contains(t, lines.String(), `committing offsets fails, will go on trying" error=hidden`)
}
