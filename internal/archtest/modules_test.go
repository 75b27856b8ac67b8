package archtest

import (
	"go/version"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// A module that users build with names the oldest Go release that its dependencies allow. The toolchain line has ours.
func TestGoLinesAreNoHigherThanThoseOfDependencies(t *testing.T) {
	for _, dir := range []string{".", "adapter/kafkagoidem", "adapter/kgoidem", "adapter/watermillidem", "codec/cloudevents", "codec/jsonv2", "codec/schemaregistry", "dedup/dynamostore", "dedup/sqlstore", "examples"} {
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

// The go.mod that users get stays small. What needs a tree of its own, such as an SDK for tests, is a module of its own:
// docs/decisions/dependencies.md.
func TestRootModuleRequiresLittle(t *testing.T) {
	requirements := regexp.MustCompile(`(?m)^\t\S+ v\S+`).FindAll(read(t, "go.mod"), -1)
	require.NotEmpty(t, requirements)
	require.LessOrEqual(t, len(requirements), 45)
}
