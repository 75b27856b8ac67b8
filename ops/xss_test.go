package ops

import (
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/outbox"
)

// hostile are texts that want to be something else.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'><svg/onload=alert(1)>`, `javascript:alert(1)`, `</title><script>alert(1)</script>`,
	`</textarea></pre></code><iframe src=//evil.example></iframe>`, `{{.}}{{printf "%s" .}}`, `${7*7}#{7*7}<%= 7*7 %>`, `" autofocus onfocus=alert(1) x="`,
	"`-alert(1)-`", `<a href="javascript:alert(1)">x</a>`, `<!--`, `]]><x>`, "\u202Egnp.exe", "\u2028alert(1)", "a\x00b\x1b[31m", `&lt;script&gt;`, `<base href=//evil.example>`,
	`<meta http-equiv=refresh content=0;url=//evil.example>`, `<style>*{display:none}</style>`, `<math><mtext></form><form action=//evil.example>`, "\xff\xfe<script>",
	`data:text/html,<script>alert(1)</script>`, `//evil.example/x`, `../../../etc/passwd`,
}

// poisoned are sources in which every text is hostile.
func poisoned(text string) sources {
	now := time.Now()
	key := dedup.Key{Tenant: text, Scope: text, Type: text, ID: text}
	origin := dedup.Origin{Topic: text, Partition: 1, Offset: 2, Time: now}
	row := deadLetterRow{
		Failed: now, Class: idem.Class(text), Tenant: text, Scope: text, Type: text, ID: text, Origin: text, Attempts: 3, Error: text, Note: text,
	}
	letters := newFakeDeadLetters(
		deadLetterDetail{deadLetterRow: row, Key: []byte(text), Value: []byte(text), Headers: []idem.Header{{Key: text, Value: []byte(text)}, {Key: "idem-" + text, Value: []byte(text)}}},
		deadLetterDetail{deadLetterRow: row, Key: []byte(text), Value: fmt.Appendf(nil, `{%q: [%q]}`, text, text)},
		deadLetterDetail{deadLetterRow: deadLetterRow{Failed: now, Problem: text}, Value: []byte(text)},
	)
	m := NewMonitor()
	m.notices.add(notice{kind: "x", subject: text, Level: "warn", Title: text, Text: text})
	m.failures.note(failure{Key: key, Attempt: 1, Topic: text, Error: text, Class: idem.Class(text)})
	m.ObserveProgress(nil, observe.ProgressEvent{Group: "billing", Topic: text, Next: 1, HighWater: 3}) //nolint:staticcheck // it is not looked at
	m.began = m.began.Add(-10 * time.Second)                                                            // the second of the progress is over: a chart draws it
	m.calls.shards[0].all = map[*observe.Call]callState{{}: {"billing", text, 1, 2, key, 1, now}}
	n := int64(4)
	return sources{
		monitor: m, deadLetters: letters,
		events: &fakeEvents{
			answer: eventAnswer{Records: []eventRecord{
				{Record: dedup.Record{Key: key, State: dedup.GivenUp, Reason: text, First: origin, Created: now, Changed: now, Failures: 2}, Store: text, Next: text, Deferred: &deferredEvent{Topic: text, Queue: text, HeadID: text}},
				{Record: dedup.Record{Key: key, State: dedup.Released, First: origin}, Store: text, Next: text},
			}},
			deadLetters: eventDeadLetters{DeadLetters: []deadLetterRow{letters.all[0].deadLetterRow}},
		},
		group: &fakeSource[groupState]{value: groupState{
			Members: []groupMember{{text, text, []memberTopic{{text, []int32{1}}}}}, Notes: []string{text}, DeadLetters: []deadLetterTopic{{Topic: text, Records: 3, Ends: 3}},
			Partitions: []groupPartition{{text, 0, false, &n, 0, 9, 5, text, "", false}, {text, 1, true, nil, 0, 0, 0, "", text, false}},
		}},
		claims:   &fakeSource[[]storeClaims]{value: []storeClaims{{Store: text, Records: []stuckRecord{{dedup.Record{Key: key, First: origin}}}}, {Store: text, Cannot: true}}},
		deferred: &fakeSource[deferredState]{value: deferredState{Cannot: []string{text}, Queues: []deferredQueue{{Topic: text, Name: "k" + text, Head: &dedup.Deferred{Key: key}}}}},
		outbox:   &fakeSource[outboxState]{value: outboxState{Backlog: outbox.Backlog{Parked: 1}, Parked: []outboxRow{{Topic: text, Key: text, Type: text, ID: text, Reason: text}}}},
		doctor:   (&fakeSource[[]Finding]{value: []Finding{{text, text, text, "bad", text, text}, {text, text, text, "ok", text, text}}}).read,
	}
}

// Text from an event stays text, on every page. No element, attribute or link comes of it (G-10).
func TestHostileTextStaysText_G10(t *testing.T) {
	harmless := skeletons(t, poisoned("harmless"), "harmless")
	for _, text := range hostile {
		for page, bones := range skeletons(t, poisoned(text), text) {
			require.Equal(t, harmless[page], bones, "%s with %q", page, text)
		}
	}
}

// skeletons are the pages without their texts and the values of attributes.
func skeletons(t *testing.T, src sources, text string) map[string]string {
	t.Helper()
	cfg := quietConfig()
	cfg.Title = text
	s := serve(t, cfg, src)
	all := map[string]string{}
	id := url.QueryEscape(text)
	pages := []string{
		"", "event?id=" + id, "event?id=unknown&type=" + id + "&tenant=" + id + "&source=&topic=" + id, "activity", "partitions", "claims", "deferred", "dead-letters", "dead-letters?id=" + id,
		"dead-letters?since=" + id, "dead-letter?topic=orders.billing.dlq&partition=0&offset=0", "dead-letter?topic=orders.billing.dlq&partition=0&offset=0&as=text", "dead-letter?topic=orders.billing.dlq&partition=0&offset=0&as=hex",
		"dead-letter?topic=orders.billing.dlq&partition=1&offset=1", "dead-letter?topic=orders.billing.dlq&partition=0&offset=2", "outbox", "doctor", id + "x", "plan?id=" + id,
	}
	for i, p := range pages {
		all[fmt.Sprint(i)] = bones(t, s.get(p).body)
	}
	plan := s.planFor("0/0", "1/1", "0/2")
	all["plan"] = bones(t, s.get("plan?id="+plan).body)
	s.post("replay", url.Values{"id": {plan}})
	all["result"] = bones(t, s.get("plan?id="+plan).body)
	return all
}

// bones are the elements of a page with the names of their attributes. Payloads may be shown in
// different ways.
func bones(t *testing.T, page string) string {
	t.Helper()
	var b strings.Builder
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return b.String()
		case html.StartTagToken, html.SelfClosingTagToken:
			tok := z.Token()
			b.WriteString("<" + tok.Data)
			for _, a := range tok.Attr {
				b.WriteString(" " + a.Key)
				if a.Key == "href" || a.Key == "action" || a.Key == "src" {
					require.True(t, strings.HasPrefix(a.Val, "./") || strings.HasPrefix(a.Val, "#"), "a link to %q", a.Val)
				}
				require.False(t, strings.HasPrefix(a.Key, "on"), "an attribute %s", a.Key)
			}
			b.WriteString(">\n")
		case html.CommentToken:
			b.WriteString("<!---->")
		default: // text and ends
		}
	}
}

var (
	inlineStyle  = regexp.MustCompile(`(?i)\sstyle\s*=|<style`)
	inlineScript = regexp.MustCompile(`(?i)\son[a-z]+\s*=|javascript:|<script(?:\s+src="\./\{\{\.Assets\.Script\}\}"\s+defer)?>`)
	elsewhere    = regexp.MustCompile(`(?i)https?://|"//`)
)

// No template has script or style in it, and no template loads a file from another origin.
func TestTemplates_NothingInline(t *testing.T) {
	n := 0
	require.NoError(t, fs.WalkDir(templateFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		b, err := templateFiles.ReadFile(path)
		require.NoError(t, err)
		require.Empty(t, inlineStyle.FindAllString(string(b), -1), path)
		require.Empty(t, elsewhere.FindAllString(string(b), -1), path)
		for _, found := range inlineScript.FindAllString(string(b), -1) {
			require.Equal(t, `<script src="./{{.Assets.Script}}" defer>`, found, path)
		}
		return nil
	}))
	require.Greater(t, n, 8)
	for _, a := range loaded() {
		if a.mime == "image/svg+xml" { // its namespace is an address, and is not asked
			continue
		}
		require.Empty(t, elsewhere.FindAllString(string(a.content), -1), a.name)
		require.NotRegexp(t, `\beval\b|Function\(|innerHTML|document\.write|@import`, string(a.content))
	}
}

func TestPayload(t *testing.T) {
	require.Equal(t, "null", showBytes(nil, "").Kind)
	require.Equal(t, "empty", showBytes([]byte{}, "").Kind)
	s := showBytes([]byte(`{"a":12345678901234567890.10,"b":[1,{"c":"<script>"}]}`), "")
	require.Equal(t, "JSON", s.Kind)
	lines := strings.Split(s.Text, "\n") // as it was written, with blanks
	require.Equal(t, []string{"{", `  "a": 12345678901234567890.10,`, `  "b": [`, "    1,", "    {", `      "c": "<script>"`, "    }", "  ]", "}"}, lines)
	require.Equal(t, "text", showBytes([]byte(`{"a":`), "").Kind)
	require.Equal(t, "text", showBytes([]byte(`{"a":1}`), "text").Kind)
	require.Equal(t, "bytes", showBytes([]byte(`{"a":1}`), "hex").Kind)
	s = showBytes([]byte{0, 1, 2, 0xff}, "")
	require.Equal(t, "bytes", s.Kind)
	require.Contains(t, s.Text, "00 01 02 ff")
	require.Equal(t, "bytes", showBytes([]byte("a\x1b[31m"), "").Kind)
	require.Equal(t, `a\u{1B}[31m`, showBytes([]byte("a\x1b[31m"), "text").Text)
	require.Equal(t, `\u{202E}x`, visible("\u202Ex"))

	s = showBytes([]byte(strings.Repeat("é", shownText)), "")
	require.True(t, s.Cut)
	require.Equal(t, "text", s.Kind, "a cut character does not make bytes of a text")
	require.LessOrEqual(t, len(s.Text), shownText+3)
	s = showBytes(make([]byte, 1<<20), "")
	require.True(t, s.Cut)
	require.Less(t, len(s.Text), 32<<10)
	s = showBytes([]byte(strings.Repeat("[", 30_000)+strings.Repeat("]", 30_000)), "")
	require.Less(t, len(s.Text), 16*shownText, "depth must not make a page of gigabytes")
	require.Equal(t, "text", showBytes([]byte("["+strings.Repeat("1,", shownText)+"1]"), "").Kind)
}

func TestHidePayloads(t *testing.T) {
	s, _ := fullSite(t, func(c *Config) { c.HidePayloads = true })
	body := s.get("dead-letter?topic=orders.billing.dlq&partition=0&offset=0").body
	require.NotContains(t, body, "A-4711")
	require.NotContains(t, body, "customer-0")
	require.NotContains(t, body, "traceparent")
	require.Contains(t, body, "idem-error-class")
	require.Contains(t, body, "HidePayloads")
}
