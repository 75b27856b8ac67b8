package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// goreleaser has the parts of .goreleaser.yaml that the bytes of a release come from.
type goreleaser struct {
	Builds []struct {
		Dir, Main, Binary string
		Env, Flags        []string
		Ldflags           []string
		Goos, Goarch      []string
		Timestamp         string `yaml:"mod_timestamp"`
	}
	Archives []struct {
		Builds struct{ MTime string } `yaml:"builds_info"`
		Files  []struct {
			Src  string
			Info struct{ MTime string }
		}
	}
	Checksum struct{ Algorithm string }
	SBOMs    []struct {
		Artifacts string
		Args      []string
	}
	Release struct{ Draft bool }
}

func readGoreleaser(t *testing.T) (g goreleaser) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &g))
	require.Len(t, g.Builds, 1)
	require.Len(t, g.Archives, 1)
	require.Len(t, g.SBOMs, 1)
	return g
}

// `make goreleaser-check` asks goreleaser itself, which takes many minutes to build.
func TestGoreleaser(t *testing.T) {
	g := readGoreleaser(t)
	build := g.Builds[0]
	require.Equal(t, []string{"linux", "darwin", "windows"}, build.Goos)
	require.Equal(t, []string{"amd64", "arm64"}, build.Goarch)
	require.Subset(t, build.Goos, platforms)
	require.Equal(t, []string{"cmd/idem", ".", "idem"}, []string{build.Dir, build.Main, build.Binary})
	require.Equal(t, []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="}, build.Env)
	require.Equal(t, []string{"-trimpath", "-buildvcs=true"}, build.Flags)
	require.Equal(t, []string{"-s -w -X main.release=v{{ .Version }}"}, build.Ldflags)
	// Times are those of the commit.
	require.Equal(t, "{{ .CommitTimestamp }}", build.Timestamp)
	require.Equal(t, "{{ .CommitDate }}", g.Archives[0].Builds.MTime)
	var files []string
	for _, f := range g.Archives[0].Files {
		files = append(files, f.Src)
		require.Equal(t, "{{ .CommitDate }}", f.Info.MTime, f.Src)
	}
	require.Subset(t, files, []string{"LICENSE", thirdParty, ".release/LICENCES.txt"})
	require.Equal(t, "sha256", g.Checksum.Algorithm)
	require.Equal(t, "binary", g.SBOMs[0].Artifacts)
	require.True(t, g.Release.Draft)
	// make sbom has the tool in the same version.
	tool := slices.IndexFunc(g.SBOMs[0].Args, func(arg string) bool { return strings.Contains(arg, "cyclonedx-gomod@v") })
	require.NotEqual(t, -1, tool)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	require.Contains(t, string(makefile), "\nCYCLONEDX := go run "+g.SBOMs[0].Args[tool]+"\n")
}

// Two builds with the flags of a release, in two folders, give the same bytes. Without -trimpath
// they differ: the compiler writes the folder into the program.
func TestReproducible_G11(t *testing.T) {
	var sums []string
	for range 2 {
		file := releaseBuild(t, copied(t).root)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256(text)))
		out, err := exec.CommandContext(t.Context(), file, "--version").Output()
		require.NoError(t, err)
		require.Regexp(t, `\bv9\.8\.7, commit `, string(out))
	}
	require.Equal(t, sums[0], sums[1])
}

// releaseBuild builds the command as goreleaser does, for this machine's processor and Linux.
func releaseBuild(t *testing.T, folder string) (file string) {
	t.Helper()
	build := readGoreleaser(t).Builds[0]
	file = filepath.Join(t.TempDir(), build.Binary)
	// The copy has no commit; a release is built from one, and has its hash in both builds.
	args := append(append([]string{"build", "-o", file}, build.Flags...), "-buildvcs=false")
	version := regexp.MustCompile(`\{\{ *\.Version *\}\}`)
	args = append(args, "-ldflags", version.ReplaceAllString(strings.Join(build.Ldflags, " "), "9.8.7"))
	cmd := exec.CommandContext(t.Context(), "go", append(args, build.Main)...)
	cmd.Dir = filepath.Join(folder, build.Dir)
	cmd.Env = append(append(os.Environ(), "GOOS=linux"), build.Env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return file
}
