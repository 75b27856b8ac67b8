package archtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	code    = regexp.MustCompile("(?s)\n *```.*?\n *```|`[^`\n]+`")
	link    = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	written = regexp.MustCompile(`<a id="([^"]+)">`)
	marks   = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// A link of a page to a file or a heading of this repository has its target. `make docs` tests the
// pages of docs/ as a site; this test has all pages, as GitHub shows them.
func TestLinksOfPagesHaveTargets(t *testing.T) {
	checked := 0
	for _, page := range files(t, ".md") {
		text := code.ReplaceAllString("\n"+string(read(t, page)), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			checked++
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			info, err := os.Stat(filepath.Join(root, file))
			switch {
			case err != nil:
				t.Errorf("%s links to %s: %v", page, m[1], err)
			case anchor != "" && !info.IsDir():
				assert.Contains(t, anchorsOf(t, file), anchor, "%s: %s", page, m[1])
			}
		}
	}
	require.Greater(t, checked, 300)
}

// anchorsOf returns the anchors that GitHub gives to the headings of a page, and written ones.
func anchorsOf(t *testing.T, page string) (anchors []string) {
	t.Helper()
	text := regexp.MustCompile("(?s)\n *```.*?\n *```").ReplaceAllString("\n"+string(read(t, page)), "")
	seen := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		a := strings.ToLower(strings.TrimSpace(linked.ReplaceAllString(m[1], "$1")))
		a = strings.ReplaceAll(marks.ReplaceAllString(a, ""), " ", "-")
		seen[a]++
		if n := seen[a]; n > 1 {
			a = fmt.Sprintf("%s-%d", a, n-1)
		}
		anchors = append(anchors, a)
	}
	for _, m := range written.FindAllStringSubmatch(text, -1) {
		anchors = append(anchors, m[1])
	}
	return anchors
}
