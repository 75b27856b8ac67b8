package archtest

import (
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// soundDrivers are versions below which no go.mod of this repository may go. pgx before 5.5.4 lets a
// message of 4 GB inject SQL, and go-redis before 9.7.3 may return the reply to another call.
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

// G-11: actions are pinned by commit, since a tag can be moved.
func TestActionsArePinned_G11(t *testing.T) {
	uses := regexp.MustCompile(`(?m)uses: *(\S+)`).FindAllStringSubmatch(string(read(t, ".github/workflows/ci.yml")), -1)
	require.NotEmpty(t, uses)
	for _, m := range uses {
		assert.Regexp(t, `^\S+@[0-9a-f]{40}$`, m[1])
	}
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
