package main

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionOf(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	module := debug.Module{Version: "v1.2.3"}
	settings := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: modified}}
	}
	for name, c := range map[string]struct {
		info *debug.BuildInfo
		ok   bool
		want buildVersion
	}{
		"nothing recorded": {nil, false, buildVersion{"unknown", "unknown", false, runtime.Version(), platform}},
		"empty":            {&debug.BuildInfo{}, true, buildVersion{"unknown", "unknown", false, runtime.Version(), platform}},
		"a module of the proxy has no commit": {
			&debug.BuildInfo{GoVersion: "go1.99", Main: module}, true,
			buildVersion{"v1.2.3", "unknown", false, "go1.99", platform},
		},
		"a clean tree": {
			&debug.BuildInfo{GoVersion: "go1.99", Main: module, Settings: settings("false")}, true,
			buildVersion{"v1.2.3", "abc", false, "go1.99", platform},
		},
		"a changed tree": {
			&debug.BuildInfo{GoVersion: "go1.99", Main: module, Settings: settings("true")}, true,
			buildVersion{"v1.2.3", "abc", true, "go1.99", platform},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, versionOf(c.info, c.ok)) })
	}
}

// A released program has the version that its build has set.
func TestVersionOf_Release(t *testing.T) {
	defer func(before string) { release = before }(release)
	release = "v1.2.4"
	require.Equal(t, "v1.2.4", versionOf(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, true).Version)
}

func TestVersion(t *testing.T) {
	var got map[string]any
	command(t, "version", "-o", "json").json(t, &got)
	require.Equal(t, runtime.Version(), got["go"])
	require.Contains(t, got, "commit")
	require.Contains(t, command(t, "version").ok(t), runtime.Version())
	require.Contains(t, command(t, "--version").ok(t), runtime.Version())
	command(t, "version", "now").failed(t, exitUsage, "no arguments")
	command(t, "version", "-o", "yaml").failed(t, exitUsage, "table or json")
}
