package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// everyPage are the pages that need no query.
var everyPage = []string{"", "activity", "partitions", "claims", "deferred", "dead-letters", "outbox", "doctor"}

func axeSource(t testing.TB) string {
	t.Helper()
	path := needed(t, "axe-core", "make browser-deps", func() (string, error) {
		path := filepath.Join("node_modules", "axe-core", "axe.min.js")
		_, err := os.Stat(path)
		return path, err
	})
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(source)
}

// everybody looks at all pages, light and dark, large and small, and asks axe whether everybody can
// use them.
func everybody(t *testing.T, w *world, b *browser) {
	axe := axeSource(t)
	w.provider.hold("order-slow-2")
	w.send("order.paid", "order-slow-2")
	tb := b.tab(t, w, desktop)
	tb.open("")
	tb.run(chromedp.Evaluate[chromedp.Void](`sessionStorage.setItem("idem-paused", "yes")`)) // axe looks at one state
	tb.open("dead-letters", "id", "parcel-lost")
	letter := strings.TrimPrefix(tb.text(`document.querySelector("td[data-label=Record] a").href`), tb.base)
	tb.plan("parcel-lost")
	plan := "plan" + tb.text("location.search")
	w.provider.answer(0, "", "order-offered")
	tb.plan("order-offered")
	tb.press("Replay 1 dead letter")
	tb.says("1 of 1 replayed")
	done := "plan" + tb.text("location.search")
	tb.allow("404 (Not Found)")
	pages := append([]string{
		"event?id=order-1", "event?id=order-declined", "event?id=mail-later", "event?id=never-was", letter, plan, done,
		"dead-letters?id=nothing&since=yesterday", "no-such-page",
	}, everyPage...)
	for _, name := range pages {
		tb.as(desktop)
		tb.open(name)
		tb.run(chromedp.Evaluate[chromedp.Void](axe))
		tb.run(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach(d => d.open = true)`))
		for _, l := range looks() {
			tb.as(l)
			tb.judge(name, l)
		}
	}
}

// finding is one report of axe.
type finding struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string `json:"html"`
		FailureSummary string `json:"failureSummary"`
	}
}

// judge fails the test at a finding of axe that is serious or critical, and at a page that scrolls
// sideways.
func (tb *tab) judge(name string, l look) {
	tb.t.Helper()
	tb.until(fmt.Sprintf(`matchMedia("(prefers-color-scheme: dark)").matches === %t && document.documentElement.clientWidth <= %d`, l.dark, l.width), l.String())
	var findings []finding
	text, err := chromedp.Run(tb.ctx, chromedp.Evaluate[string](
		`axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations))`, chromedp.EvalAwaitPromise))
	require.NoError(tb.t, err, "axe on %s", name)
	require.NoError(tb.t, json.Unmarshal([]byte(text), &findings))
	for _, f := range findings {
		var where strings.Builder
		for _, n := range f.Nodes {
			fmt.Fprintf(&where, "\n  %s\n    %s", clip(n.HTML, 300), strings.ReplaceAll(n.FailureSummary, "\n", "\n    "))
		}
		serious := f.Impact == "serious" || f.Impact == "critical"
		tb.t.Logf("axe: %s finding on %q (%s): %s, %s%s", f.Impact, name, l, f.ID, f.Help, where.String())
		assert.False(tb.t, serious, "%s finding on %q (%s): %s", f.Impact, name, l, f.ID)
	}
	tb.until(fmt.Sprintf("document.scrollingElement.scrollWidth <= %d", l.width), fmt.Sprintf("%q (%s) does not scroll sideways", name, l))
	assert.Empty(tb.t, tb.text(stuckBoxes), "%q (%s): boxes that scroll sideways, and that a keyboard does not reach", name, l)
	tb.keep(name, l)
}

// stuckBoxes are boxes that scroll sideways, and neither take the focus nor hold an element that
// does.
const stuckBoxes = `[...document.querySelectorAll("main *")].filter(e => e.scrollWidth > e.clientWidth + 1 &&
	["auto", "scroll"].includes(getComputedStyle(e).overflowX) && e.tabIndex < 0 && !e.querySelector("a, button, input, [tabindex]"))
	.map(e => e.outerHTML.slice(0, 200)).join("\n")`
