package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// All fields of JSON are in snake case.
func TestNamesInJSON(t *testing.T) {
	tag := regexp.MustCompile(`json:"[a-z0-9_]*[A-Z][^"]*"`)
	for _, dir := range []string{".", "../../internal/deadletters", "../../internal/events", "../../internal/outboxview", "../../internal/doctor"} {
		files, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files, dir)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, tag.FindAllString(string(text), -1), file)
		}
	}
}
