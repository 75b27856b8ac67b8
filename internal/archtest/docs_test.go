package archtest

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unreleased is the version of a requirement that only a replace directive can satisfy.
const unreleased = "v0.0.0-00010101000000-000000000000"

// A page must not ask for `go get` of a module with requirements that cannot be resolved, unless
// the same block replaces them.
func TestDocsFetchOnlyModulesThatResolve(t *testing.T) {
	needs := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + `\S* ` + regexp.QuoteMeta(unreleased))
	blocks := regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	inPage := map[string][]string{}
	for _, page := range files(t, ".md") {
		inPage[page] = blocks.FindAllString(string(read(t, page)), -1)
	}
	unresolved := 0
	for _, f := range files(t, "go.mod") {
		if !needs.Match(read(t, f)) || path.Dir(f) == "." {
			continue
		}
		unresolved++
		fetch := "go get " + module + "/" + path.Dir(f)
		for page, found := range inPage {
			for _, block := range found {
				if strings.Contains(block, fetch) {
					assert.Contains(t, block, "-replace "+module+"=", "%s: %s cannot resolve %s %s", page, fetch, module, unreleased)
				}
			}
		}
	}
	require.Positive(t, unresolved, "no module needs a replacement any longer: remove this test and the replacements in docs/stores.md")
}

// The probes in a page are those that the programs of this project serve.
func TestProbesInDocsAreServed(t *testing.T) {
	probe := regexp.MustCompile(`httpGet: *\{path: *([^, }]+)`)
	served := string(read(t, "examples/notifier/health.go"))
	found := 0
	for _, page := range files(t, ".md") {
		for _, m := range probe.FindAllStringSubmatch(string(read(t, page)), -1) {
			found++
			assert.Contains(t, served, `"GET `+m[1]+`"`, "%s probes %s", page, m[1])
		}
	}
	require.Positive(t, found)
}
