package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// siteRoot is the folder with the Makefile, as seen from the test.
const siteRoot = "../.."

// sitePath is the path of the published site, which its page for unknown addresses depends on.
const sitePath = "/idem/"

// sitePages has one page of each kind of the documentation site.
var sitePages = []struct{ kind, name, says string }{
	{"home", "", "Getting started"},
	{"getting started", "getting-started.html", "Ten minutes"},
	{"how-to", "how-to/retries.html", "Retry"},
	{"table of options", "reference/options.html", "Options"},
	{"the command", "command.html", "Exit codes"},
	{"explanation", "why-not-exactly-once.html", "exactly-once"},
	{"search results", "index.html?q=dead+letter", "matching documents"},
	{"not found", "no-such-page.html", "There is no such page"},
}

// TestSite looks at one page of each kind of the documentation site, in light and dark, wide and
// narrow.
func TestSite(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser and builds the site: not with -short")
	}
	axe, b := axeSource(t), startBrowser(t)
	tb := b.window(t, serveSite(t, buildSite(t)), desktop)
	tb.allow("404 (Not Found)")
	tb.allow("request to elsewhere: data:") // icons in the style of the theme
	for _, p := range sitePages {
		tb.open(p.name)
		tb.says(p.says)
		tb.run(chromedp.Evaluate[chromedp.Void](axe))
		for _, l := range looks() {
			tb.as(l)
			scheme := map[bool]string{true: "slate", false: "default"}[l.dark]
			tb.until(fmt.Sprintf("document.body.dataset.mdColorScheme === %q", scheme), "the colours are those of the system")
			tb.judge(p.kind, l)
		}
	}
}

// buildSite builds the site as `make docs` does, and returns its folder.
func buildSite(t testing.TB) string {
	t.Helper()
	tools := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", siteRoot, ".bin/docs/installed")
	if out, err := tools.CombinedOutput(); err != nil {
		if os.Getenv("IDEM_REQUIRE_SERVICES") != "" {
			t.Fatalf("mkdocs cannot be installed (%v): %s", err, out)
		}
		needed(t, "mkdocs", "make docs (needs Python 3 with venv, and PyPI)", func() (string, error) { return "", err })
	}
	folder := filepath.Join(t.TempDir(), "site")
	build := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", siteRoot, "docs", "SITE="+folder)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return folder
}

// serveSite serves the site as GitHub Pages does, and returns its URL.
func serveSite(t testing.TB, folder string) string {
	t.Helper()
	files := http.StripPrefix(sitePath, http.FileServer(http.Dir(folder)))
	missing, err := os.ReadFile(filepath.Join(folder, "404.html"))
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := os.Stat(filepath.Join(folder, path.Clean("/"+r.URL.Path[len(sitePath)-1:])))
		if err == nil {
			files.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(missing) // the browser may be gone
	}))
	t.Cleanup(server.Close)
	return server.URL + sitePath
}
