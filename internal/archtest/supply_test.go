package archtest

import (
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// soundDrivers are versions below which no go.mod of this repository may go. pgx before 5.5.4 lets
// a message of 4 GB inject SQL, and go-redis before 9.7.3 may return the reply to another call
//
var soundDrivers = map[string][3]int{
	"github.com/jackc/pgx/v5":      {5, 12, 0},
	"github.com/redis/go-redis/v9": {9, 23, 0},
}

// G-06: no module falls back to an unsound version of a driver.
func TestDriversAreSound_G06(t *testing.T) {
	requirement := regexp.MustCompile(`(?m)^\s*(?:require )?(\S+) v(\d+)\.(\d+)\.(\d+)`)
	seen := map[string]bool{}
	for _, f := range files(t, "go.mod") {
		for _, m := range requirement.FindAllStringSubmatch(string(read(t, f)), -1) {
			least, known := soundDrivers[m[1]]
			if !known {
				continue
			}
			seen[m[1]] = true
			var got [3]int
			for i := range got {
				got[i], _ = strconv.Atoi(m[2+i])
			}
			for i := range got {
				if got[i] != least[i] {
					assert.Greater(t, got[i], least[i], "%s: %s %v is older than %v", f, m[1], got, least)
					break
				}
			}
		}
	}
	require.Len(t, seen, len(soundDrivers))
}

// workflows returns the files of workflows, with .ci/run, by path.
func workflows(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{".ci/run": string(read(t, ".ci/run"))}
	found, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*"))
	require.NoError(t, err)
	for _, f := range found {
		name := path.Join(".github", "workflows", filepath.Base(f))
		all[name] = string(read(t, name))
	}
	require.Contains(t, all, ".github/workflows/ci.yml")
	return all
}

// G-11: actions are pinned by commit, since a tag can be moved. Each workflow names the rights that
// it needs, and no other.
func TestActionsArePinned_G11(t *testing.T) {
	uses := regexp.MustCompile(`(?m)uses: *(\S+)`)
	for name, text := range workflows(t) {
		if name == ".ci/run" {
			continue
		}
		assert.Regexp(t, `(?m)^permissions:`, text, name)
		assert.NotContains(t, text, "write-all", name)
		found := uses.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, found, name)
		for _, m := range found {
			assert.Regexp(t, `^\S+@[0-9a-f]{40}$`, m[1], name)
		}
	}
}

// Every `make X` of a workflow and of .ci/run is a target of the Makefile.
func TestWorkflowsMakeTargetsThatExist(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([\w./-]+):(?:[^=]|$)`).FindAllStringSubmatch(string(read(t, "Makefile")), -1) {
		targets[m[1]] = true
	}
	require.True(t, targets["test"] && targets["release-check"], "targets of the Makefile: %v", targets)
	named := 0
	for name, text := range workflows(t) {
		for _, target := range madeTargets(text) {
			named++
			assert.True(t, targets[target], "%s makes %s, which the Makefile lacks", name, target)
		}
	}
	require.Greater(t, named, 5)
}

// making matches a call of make with its arguments, and comment the rest of a line that is not run.
var (
	making  = regexp.MustCompile(`(?m)(?:^|[\s;&|({"'])make((?: +[^\s;&|)}"']+)+)`)
	comment = regexp.MustCompile(`(?m)(?:^|\s)#.*$`)
)

// madeTargets returns the targets that a script makes.
func madeTargets(script string) (targets []string) {
	for _, m := range making.FindAllStringSubmatch(comment.ReplaceAllString(script, ""), -1) {
		for word := range strings.FieldsSeq(m[1]) {
			if strings.ContainsAny(word, "=><$") { // a variable, and the end of the targets
				break
			}
			if !strings.HasPrefix(word, "-") {
				targets = append(targets, word)
			}
		}
	}
	return targets
}

func TestMadeTargets(t *testing.T) {
	require.Equal(t, []string{"lint", "docs", "test", "release-notes", "a", "b"}, madeTargets(
		"step lint make lint\n# make nothing\n- run: make docs # and make nothing\nrun: env X=1 make test\n"+
			"make -s release-notes VERSION=\"1\"\nmakes no\n{ make a b; }\ncommand -v make >/dev/null"))
}

// A tool that `go run` or `go install` fetches has an exact version, in the Makefile and in
// workflows.
func TestToolsArePinned_G11(t *testing.T) {
	texts := workflows(t)
	texts["Makefile"] = string(read(t, "Makefile"))
	fetched := regexp.MustCompile(`go (?:run|install) [^\n@]*@(\S+)`)
	found := 0
	for name, text := range texts {
		for _, m := range fetched.FindAllStringSubmatch(text, -1) {
			found++
			assert.Regexp(t, `^v\d+\.\d+\.\d+$`, m[1], name)
		}
	}
	require.Positive(t, found)
}

// G-16: no package decodes a format that a sender can make build arbitrary types.
func TestNothingDecodesGob_G16(t *testing.T) {
	imports := 0
	for _, f := range files(t, ".go") {
		if strings.HasPrefix(f, "test/") || path.Base(path.Dir(f)) == "testdata" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f, read(t, f), parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range file.Imports {
			imports++
			assert.NotContains(t, []string{`"encoding/gob"`, `"encoding/xml"`, `"plugin"`}, i.Path.Value, f)
		}
	}
	require.Greater(t, imports, 1000)
}
