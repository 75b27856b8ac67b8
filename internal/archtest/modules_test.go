package archtest

import (
	"go/version"
	"path"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A module that users build with names the oldest Go release that its dependencies allow. The
// toolchain line has ours.
func TestGoLinesAreNoHigherThanThoseOfDependencies(t *testing.T) {
	for _, dir := range []string{".", "adapter/kafkagoidem", "adapter/kgoidem", "adapter/watermillidem", "cmd/idem", "codec/cloudevents", "codec/jsonv2", "codec/schemaregistry", "dedup/dynamostore", "dedup/sqlstore", "examples", "outbox/sqloutbox"} {
		var own, highest string
		for _, p := range listModule(t, dir) {
			switch m := p.Module; {
			case m == nil: // the standard library
			case m.Main:
				own = "go" + m.GoVersion
			case m.GoVersion != "" && version.Compare("go"+m.GoVersion, highest) > 0:
				highest = "go" + m.GoVersion
			}
		}
		require.True(t, version.IsValid(own) && version.IsValid(highest), "%s: %q, %q", dir, own, highest)
		require.LessOrEqual(t, version.Compare(own, highest), 0, "%s/go.mod has %s, its dependencies need %s only", dir, own, highest)
	}
}

// The go.mod that users get stays small. A package that needs a tree of its own, such as an SDK for
// tests, is a module of its own: docs/decisions/dependencies.md.
func TestRootModuleRequiresLittle(t *testing.T) {
	requirements := regexp.MustCompile(`(?m)^\t\S+ v\S+`).FindAll(read(t, "go.mod"), -1)
	require.NotEmpty(t, requirements)
	require.LessOrEqual(t, len(requirements), 45)
}

// apart are modules with other trees of dependencies: the linter, compose-go, Kubernetes and
// Prometheus.
var apart = []string{"tools", "test/compose", "test/dashboards", "test/deploy"}

// A dependency has one version in all modules. Otherwise users get a version that no test here has
// seen, and every package above the dependency is compiled once for each version.
func TestModulesAgreeOnVersions(t *testing.T) {
	line := regexp.MustCompile(`(?m)^(?:\t|require )(\S+) (v\S+)`)
	seen := make(map[string]string) // by path: the version
	where := make(map[string]string)
	checked := 0
	for _, f := range files(t, "go.mod") {
		if slices.Contains(apart, path.Dir(f)) {
			continue
		}
		checked++
		for _, m := range line.FindAllStringSubmatch(string(read(t, f)), -1) {
			if v, ok := seen[m[1]]; ok && v != m[2] {
				t.Errorf("%s: %s in %s, %s in %s", m[1], v, where[m[1]], m[2], f)
			}
			seen[m[1]], where[m[1]] = m[2], f
		}
	}
	require.Greater(t, checked, 15)
}
