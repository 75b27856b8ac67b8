package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// unknown stands for a part of the version that the build did not record.
const unknown = "unknown"

// release is the version of a released program, set by -ldflags in .goreleaser.yaml. Any other
// program has the version of its main module.
var release string

// buildVersion identifies the running program.
type buildVersion struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // the working tree had changes that the commit lacks
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print version, commit and Go release of this program", Args: none,
		Example: "  idem version\n" +
			"  idem version -o json",
		RunE: func(*cobra.Command, []string) error {
			v := versionOf(debug.ReadBuildInfo())
			return a.show(v, nil, v.rows())
		},
	}
}

// versionOf reads the version from the build information of a program.
func versionOf(info *debug.BuildInfo, ok bool) buildVersion {
	v := buildVersion{
		Version: unknown, Commit: unknown, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if !ok {
		return v
	}
	v.Version, v.Go = cmp.Or(release, info.Main.Version, unknown), cmp.Or(info.GoVersion, v.Go)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = cmp.Or(s.Value, unknown)
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// line is for --version, which takes no other flag.
func (v buildVersion) line() string {
	return fmt.Sprintf("%s, commit %s, %s, %s", v.Version, v.Commit, v.Go, v.Platform)
}

func (v buildVersion) rows() [][]string {
	commit := v.Commit
	if v.Modified {
		commit += ", modified"
	}
	return [][]string{
		{"version", v.Version}, {"commit", commit}, {"go", v.Go}, {"platform", v.Platform},
	}
}
