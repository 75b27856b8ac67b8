package archtest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// place is a file of the map for maintainers, and a name that it declares, if there is one.
var place = regexp.MustCompile("`([\\w/]+\\.go)(?:: (\\w+))?`")

// docs/architecture.md names files and functions. Each of them exists. A name without a folder is a
// file of the engine.
func TestArchitectureNamesWhatThereIs(t *testing.T) {
	page := string(read(t, "docs/architecture.md"))
	assert.LessOrEqual(t, strings.Count(page, "\n"), 120, "the map has two screens")
	found := place.FindAllStringSubmatch(page, -1)
	require.Greater(t, len(found), 40, "places")
	all := map[string]bool{}
	for _, f := range files(t, ".go") {
		all[f] = true
	}
	for _, p := range found {
		file, name := p[1], p[2]
		if engine := "internal/engine/" + file; !strings.Contains(file, "/") && all[engine] {
			file = engine
		}
		if !assert.True(t, all[file], "%s is no file", file) || name == "" {
			continue
		}
		declared := regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?` + name + `[\[(]`)
		assert.True(t, declared.Match(read(t, file)), "%s declares no function %s", file, name)
	}
}
