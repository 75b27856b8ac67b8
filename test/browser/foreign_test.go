package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// otherOrigins lets pages of another port and of another site post the forms of the page, in the
// browser of a signed-in person with a plan.
func otherOrigins(t *testing.T, w *world, b *browser) {
	const id = "order-declined"
	w.provider.answer(0, "", id)
	before := w.size(w.retries())
	tb := b.tab(t, w, desktop)
	tb.plan(id)
	plan, err := url.ParseQuery(strings.TrimPrefix(tb.text("location.search"), "?"))
	require.NoError(t, err)
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, `<!doctype html><html lang="en"><title>A stranger</title><link rel="icon" href="data:,"><p>Win a prize</p>`)
	}))
	t.Cleanup(stranger.Close)
	port := strings.TrimPrefix(stranger.URL, "http://127.0.0.1")
	tb.allow(stranger.URL)
	tb.allow("http://localhost" + port)
	tb.allow("403 (Forbidden)")
	tb.allow(tb.base + "replay") // the browser's message about requests by script
	tb.allow(tb.base + "plan")
	forms := []struct{ path, fields string }{
		{"replay", "id=" + plan.Get("id")},
		{"plan", url.Values{"topic": {w.deadLetters}, "at": {"0/0"}}.Encode()},
	}
	var refused []status
	for _, origin := range []string{stranger.URL, "http://localhost" + port} {
		for _, f := range forms {
			target := tb.base + f.path
			tb.run(chromedp.Navigate(origin))
			require.True(t, tb.is(fmt.Sprintf("location.origin === %q", origin)))
			tb.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(submit, target, f.fields)))
			tb.until(fmt.Sprintf(`location.href === %q && document.readyState === "complete"`, target), "the form was sent")
			tb.says("This form was sent from another site or another port.") // the signed-in person reads that
			for _, mode := range []string{"no-cors", "cors"} {
				tb.run(chromedp.Navigate(origin))
				assert.Equal(t, "refused", tb.fetch(target, f.fields, mode), "%s from %s", mode, origin)
			}
			refused = append(refused, slices.Repeat([]status{{"POST", f.path, http.StatusForbidden}}, 3)...)
			require.Eventually(t, func() bool { return len(tb.refusals()) >= len(refused) }, patience, 20*time.Millisecond, "from %s", origin)
		}
	}
	assert.ElementsMatch(t, refused, tb.refusals())
	tb.open("plan", "id", plan.Get("id"))
	tb.says("1 dead letter of 1 would be replayed")
	assert.Zero(t, w.provider.effects(id), "nothing was replayed")
	assert.Equal(t, before, w.size(w.retries()), "nothing was written")
	sent := len(tb.refusals())
	tb.press("Replay 1 dead letter") // of our own
	tb.says("1 of 1 replayed")
	w.handled(id)
	tb.event(id, "Yes")
	assert.Equal(t, 1, w.provider.effects(id))
	assert.Len(t, tb.refusals(), sent)
}

// submit sends a form as a stranger's page does.
const submit = `(() => {
	const form = document.createElement("form");
	form.method = "post";
	form.action = %q;
	for (const [name, value] of new URLSearchParams(%q)) {
		const field = document.createElement("input");
		field.type = "hidden"; field.name = name; field.value = value;
		form.append(field);
	}
	document.body.append(form);
	form.submit();
})()`

// fetch posts a form by script, and returns the result that the script sees.
func (tb *tab) fetch(target, fields, mode string) string {
	tb.t.Helper()
	said, err := chromedp.Run(tb.ctx, chromedp.Evaluate[string](fmt.Sprintf(
		`fetch(%q, {method: "POST", mode: %q, credentials: "include", body: new URLSearchParams(%q)}).then(() => "sent", () => "refused")`,
		target, mode, fields), chromedp.EvalAwaitPromise))
	require.NoError(tb.t, err)
	return said
}
