package browser

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/chromedp/chromedp"
	"github.com/idem-go/idem/deadletter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostile are texts that want to be more than text. They try to set window.pwned, to add an element
// that is marked with "pwned", or to send a request elsewhere.
var hostile = []struct{ name, text string }{
	{"script", `<script>window.pwned=1;alert(1)</script>`},
	{"image", `"><img src=x id=pwned onerror=window.pwned=1>`},
	{"svg", `<svg/onload=window.pwned=1 id=pwned><animate onbegin=alert(1) attributeName=x>`},
	{"attribute", `" autofocus onfocus="window.pwned=1" id="pwned" x="`},
	{"attribute, one quote", `' onmouseover='window.pwned=1' style='position:fixed;inset:0`},
	{"javascript URL", `javascript:window.pwned=1//`},
	{"link", `<a href="javascript:window.pwned=1" id=pwned>look</a><form action=//evil.test id=pwned2><button>x`},
	{"data URL", `data:text/html,<script>window.pwned=1</script>`},
	{"template", `{{.}}{{define "content"}}pwned{{end}}${window.pwned=1}<%= 7*7 %>#{7*7}{{constructor.constructor('window.pwned=1')()}}`},
	{"end tags", `</textarea></title></style></pre></code></svg></script><script>window.pwned=1</script><base href=//evil.test>`},
	{"refresh", `<meta http-equiv=refresh content="0;url=http://evil.test/"><link rel=stylesheet href=//evil.test/x.css>`},
	{"frame", `<iframe srcdoc="<script>parent.pwned=1</script>"></iframe><object data=x id=pwned></object><embed src=x>`},
	{"comment", `<!--><script>window.pwned=1</script>--!><![CDATA[<img src=x onerror=window.pwned=1>]]>`},
	{"mutation", `<noscript><p title="</noscript><img src=x onerror=window.pwned=1>"><math><mtext><table><mglyph><style><img src=x onerror=window.pwned=1>`},
	{"directions", "paid\u202Eeruliaf\u202C zero\u200Bwidth\uFEFF \u2066isolated\u2069"},
	{"controls", "bell\a back\b escape\x1b[31mred\x1b[0m delete\x7f c1\u0085 end"},
	{"line", strings.Repeat("wide", 20_000) + `<script>window.pwned=1</script>`},
	{"not UTF-8", "\xff\xfe<script>window.pwned=1</script>\xc3\x28\xed\xa0\x80"},
	{"JSON", `{"amount":"many","note":"<script>window.pwned=1</script>","__proto__":{"pwned":1},"u":"\u003cimg src=x onerror=window.pwned=1\u003e"}`},
	{"JSON text", `"<img src=x id=pwned onerror=window.pwned=1>"`},
}

// hostileTexts writes each of them into all that an event and a dead letter are made of, and looks
// at all that shows it.
func hostileTexts(t *testing.T, w *world, b *browser) {
	before := w.size(w.deadLetters)
	for _, h := range hostile {
		short := h.text[:min(len(h.text), 250)]
		// An event that comes the usual way, and a forged dead letter.
		w.produce(w.topic, record{id: short, typ: "invoice.sent", key: short, value: h.text, headers: [][2]string{{"tenant", short}, {"x-" + short, h.text}, {"idem-error", short}}})
		w.produce(w.deadLetters, record{id: short, typ: short, key: h.text, value: h.text, headers: [][2]string{
			{"x-" + short, h.text}, {deadletter.HeaderTopic, w.topic}, {deadletter.HeaderPartition, "0"}, {deadletter.HeaderOffset, "1"},
			{deadletter.HeaderTime, time.Now().UTC().Format(time.RFC3339)}, {deadletter.HeaderGroup, w.group}, {deadletter.HeaderScope, w.group},
			{deadletter.HeaderTenant, short}, {deadletter.HeaderEventID, short}, {deadletter.HeaderEventType, short}, {deadletter.HeaderAttempts, "1"},
			{deadletter.HeaderFirstFailure, time.Now().UTC().Format(time.RFC3339)}, {deadletter.HeaderLastFailure, time.Now().UTC().Format(time.RFC3339)},
			{deadletter.HeaderErrorClass, short}, {deadletter.HeaderError, short},
		}})
	}
	w.deadLetterCount(before + 2*int64(len(hostile)))
	tb := b.tab(t, w, desktop)
	tb.run(chromedp.Navigate("about:blank"))
	tb.open("dead-letters")
	all := tb.harmless("the list")
	rows := tb.deadLetterRows()
	require.GreaterOrEqual(t, len(rows), 2*len(hostile))
	for _, h := range hostile {
		if utf8.ValidString(h.text) {
			assert.Contains(t, all, shown(h.text[:min(len(h.text), 250)]), "%s is shown as text in the list", h.name)
		}
	}
	for i, href := range rows[:2*len(hostile)] {
		for _, as := range []string{"", "&as=text", "&as=hex"}[:1+2*(i%2)] {
			tb.open(strings.TrimPrefix(href, tb.base) + as)
			all += tb.harmless(href + as)
		}
	}
	for _, h := range hostile {
		if utf8.ValidString(h.text) && !strings.HasPrefix(h.text, "{") && len(h.text) < 60<<10 {
			assert.GreaterOrEqual(t, strings.Count(all, shown(h.text)), 10, "%s is shown as text in dead letters", h.name)
		}
	}
	assert.Contains(t, all, `"note": "<script>window.pwned=1</script>"`, "JSON is indented, and text")
	assert.Contains(t, all, "ff fe 3c 73 63 72 69 70", "bytes are shown by their numbers")
	tb.askHostile()
	tb.open("dead-letters")
	tb.press(strings.TrimSpace(tb.text(`document.querySelector("button[name=all]").textContent`)))
	tb.says("Dead letter by dead letter")
	tb.harmless("the plan")
	for _, name := range everyPage {
		tb.open(name)
		tb.harmless(name)
	}
}

// askHostile asks for hostile names, which are in the answers.
func (tb *tab) askHostile() {
	tb.t.Helper()
	for i, h := range hostile {
		if !utf8.ValidString(h.text) {
			continue
		}
		short := h.text[:min(len(h.text), 250)]
		if i%2 == 0 { // found, and asked for in a way without a result
			tb.open("event", "id", short)
		} else {
			tb.open("event", "id", short, "type", short, "tenant", short, "source", short, "topic", short)
		}
		tb.harmless("event, " + h.name)
		assert.Equal(tb.t, shown(strings.TrimSpace(short)), tb.text(`document.querySelector("h1").textContent`), h.name)
		tb.open("dead-letters", "id", short, "type", short, "class", short, "since", short, "until", short)
		tb.harmless("filters " + h.name)
	}
}

// shown is how a text must look: characters that do not show, or turn the direction of others, have
// become numbers.
func shown(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			fmt.Fprintf(&b, "\\u{%X}", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (tb *tab) deadLetterRows() (hrefs []string) {
	tb.t.Helper()
	text := tb.text(`JSON.stringify([...document.querySelectorAll("tbody td[data-label=Record] a")].map(e => e.href))`)
	require.NoError(tb.t, json.Unmarshal([]byte(text), &hrefs))
	return hrefs
}

// ourTags are the elements that templates of the page use.
var ourTags = strings.Fields(`HTML HEAD META TITLE LINK SCRIPT BODY A HEADER DIV SPAN P UL OL LI DL DT DD H1 H2 H3 MAIN NAV FOOTER SECTION ARTICLE FORM LABEL
	INPUT BUTTON SELECT OPTION FIELDSET LEGEND DETAILS SUMMARY TABLE CAPTION THEAD TBODY TR TH TD B TIME PRE CODE svg path circle rect`)

// harmless looks for anything on the page that is not of our own making, and returns its text.
func (tb *tab) harmless(what string) string {
	tb.t.Helper()
	var found struct {
		Ready  string
		Tags   []string
		Active []string
		Marked int
		Pwned  bool
		Text   string
	}
	text := tb.text(`JSON.stringify((() => {
		const all = [...document.querySelectorAll("*")], own = location.origin;
		const active = e => e.getAttributeNames().some(n => /^on|^style$|^srcdoc$|^formaction$|^http-equiv$|^ping$/i.test(n)) ||
			["href", "src", "action"].some(n => e.hasAttribute(n) && new URL(e.getAttribute(n), document.baseURI).origin !== own) ||
			e.tagName === "SCRIPT" && (!e.getAttribute("src") || e.textContent !== "");
		return {
			Ready: document.readyState,
			Tags: [...new Set(all.map(e => e.tagName))],
			Active: all.filter(active).map(e => e.outerHTML.slice(0, 200)),
			Marked: document.querySelectorAll("[id^=pwned]").length,
			Text: document.documentElement.textContent,
			Pwned: window.pwned === 1 || ({}).pwned !== undefined,
		};
	})())`)
	require.NoError(tb.t, json.Unmarshal([]byte(text), &found), what)
	assert.Equal(tb.t, "complete", found.Ready, what)
	assert.False(tb.t, found.Pwned, "%s: a text was executed", what)
	assert.Empty(tb.t, found.Active, "%s: elements that do something", what)
	assert.Zero(tb.t, found.Marked, "%s: elements of a text", what)
	for _, tag := range found.Tags {
		assert.True(tb.t, slices.Contains(ourTags, tag), "%s: an element <%s>", what, tag)
	}
	assert.NotContains(tb.t, found.Text, "\u202E", "%s: a text that turns the direction of others", what)
	return found.Text
}
