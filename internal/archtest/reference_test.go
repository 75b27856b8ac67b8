package archtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// named returns the names in code style of the first column of the table behind a comment.
func named(t *testing.T, page, comment string) (names []string) {
	t.Helper()
	_, table, found := strings.Cut(string(read(t, page)), "<!-- "+comment+":")
	require.True(t, found, "%s has no table of %s", page, comment)
	for _, line := range strings.Split(table, "\n")[4:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			names = append(names, m[1])
		}
	}
	require.NotEmpty(t, names)
	slices.Sort(names)
	return names
}

// declared returns the matches of a pattern in files, sorted.
func declared(t *testing.T, pattern string, paths ...string) (names []string) {
	t.Helper()
	for _, f := range paths {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(read(t, f)), -1) {
			names = append(names, m[1])
		}
	}
	require.NotEmpty(t, names)
	slices.Sort(names)
	return slices.Compact(names)
}

// The reference has every option of a handler, header of a dead letter, and table.
func TestReferenceIsComplete(t *testing.T) {
	var sources []string
	for _, f := range files(t, ".go") {
		if !strings.Contains(f, "/") && !strings.HasSuffix(f, "_test.go") {
			sources = append(sources, f)
		}
	}
	assert.Equal(t, declared(t, `(?m)^func ([A-Z]\w*)\(.*\) Option \{`, sources...),
		named(t, "docs/reference/options.md", "options"))
	headers := slices.DeleteFunc(declared(t, `"(idem-[\w-]+)"`, "deadletter/headers.go"),
		func(name string) bool { return strings.HasSuffix(name, "-") }) // a prefix
	assert.Equal(t, headers, named(t, "docs/reference/headers.md", "headers"))
	assert.Equal(t, declared(t, `CREATE TABLE IF NOT EXISTS (\w+)`, "dedup/pgstore/schema.sql"),
		named(t, "docs/reference/schema.md", "tables"))
}
