package browser

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPage has one program and one browser for all uses of the page, as both take seconds to start.
// Its parts follow one another: the events of one part are there for the next ones.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser and a program: not with -short")
	}
	b, w := startBrowser(t), newWorld(t)
	w.furnish()
	for _, part := range []struct {
		name string
		test func(*testing.T, *world, *browser)
	}{
		{"look up by keyboard", lookUpByKeyboard},
		{"why it failed", whyItFailed},
		{"filter", filterDeadLetters},
		{"plan and replay", planAndReplay},
		{"live", liveFigures},
		{"without script", withoutScript},
		{"other origins", otherOrigins},
		{"axe", everybody},
		{"sign in and out", signInAndOut},
		{"hostile", hostileTexts},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, w, b) }) && t.Context().Err() != nil {
			return
		}
	}
}

// furnish produces the events for the parts: handled events of several types, dead letters of four
// classes, an event that waits for a later attempt, a deferred key, and an event in flight.
func (w *world) furnish() {
	w.provider.answer(http.StatusUnprocessableEntity, "the card was declined", "order-declined", "order-mended", "order-offered", "order-plain")
	w.provider.answer(http.StatusUnprocessableEntity, "no such address", "parcel-lost")
	w.provider.answer(http.StatusInternalServerError, "the provider is ill", "invoice-ill", "mail-later", "account-deferred")
	w.send("order.paid", "order-1", "order-2", "order-declined", "order-mended", "order-offered", "order-plain")
	w.send("order.shipped", "parcel-1", "parcel-lost")
	w.produce(w.topic,
		record{id: "invoice-1", typ: "invoice.sent", value: `{}`, headers: [][2]string{{"tenant", "acme"}}},
		record{id: "invoice-ill", typ: "invoice.sent", value: `{}`, headers: [][2]string{{"tenant", "acme"}}},
		record{id: "order-garbled", typ: "order.paid", value: `{"amount": "a lot"}`},
		record{typ: "order.paid", value: `{"amount": 1}`}, // no identity
		record{id: "account-deferred", typ: "account.closed", key: "customer-9", value: `{}`},
		record{id: "account-behind", typ: "account.closed", key: "customer-9", value: `{}`},
	)
	w.send("mail.bounced", "mail-later")
	w.fillOutbox("outbox-1", "outbox-2")
	w.provider.hold("order-slow")
	w.send("order.paid", "order-slow", "order-1") // and a duplicate
	w.handled("order-1", "order-2", "parcel-1", "invoice-1")
	w.deadLetterCount(8)
}

func lookUpByKeyboard(t *testing.T, w *world, b *browser) {
	tb := b.tab(t, w, desktop)
	tb.event("order-1", "Yes") // the store has it
	tb.open("doctor")
	tb.run(chromedp.KeyEvent(kb.Tab))
	tb.until(`document.activeElement.classList.contains("skip")`, "the first stop leads past the navigation")
	for range 20 {
		if tb.is(`document.activeElement.matches(".tabs a") && document.activeElement.textContent === "Look up"`) {
			break
		}
		tb.run(chromedp.KeyEvent(kb.Tab))
	}
	tb.run(chromedp.KeyEvent(kb.Enter))
	tb.until(`document.activeElement.id === "id"`, "the look-up has the focus")
	tb.run(chromedp.KeyEvent("order-1"), chromedp.KeyEvent(kb.Enter))
	tb.says("Timeline")
	assert.Equal(t, "order-1", tb.text(`document.querySelector("h1").textContent`))
	assert.Contains(t, tb.text(`document.querySelector("h2").textContent`), "Yes")
	timeline := tb.text(`document.querySelector(".timeline").innerText`)
	for _, step := range []string{"Written to Kafka", w.topic, "First seen by the store", "Handled"} {
		assert.Contains(t, timeline, step)
	}
	assert.Less(t, strings.Index(timeline, "Written"), strings.Index(timeline, "Handled"), "in the order of time")
}

func whyItFailed(t *testing.T, w *world, b *browser) {
	tb := b.tab(t, w, desktop)
	for _, c := range []struct {
		id   string
		says []string
	}{
		{"order-declined", []string{"No. It was given up.", "the card was declined", "idem event skip order-declined"}},
		{"invoice-ill", []string{"No. It was given up", "the provider is ill", "3 attempts"}},
		{"mail-later", []string{"A later attempt is on its way.", "the provider is ill"}},
		{"account-deferred", []string{"the provider is ill", "customer-9"}},
		{"never-was", []string{"Not known here.", "Compare the ID"}},
	} {
		tb.event(c.id, c.says[0])
		tb.says("What to do next")
		text := tb.text(`document.querySelector("main").innerText`)
		for _, part := range c.says {
			assert.Contains(t, text, part, c.id)
		}
	}
	tb.open("event", "id", "account-behind", "type", "account.closed", "topic", w.topic)
	tb.says("account-deferred")
	tb.open("event", "id", "order-declined")
	tb.follow("Look at its dead letter, and plan a replay")
	tb.says("Given up: permanent")
	tb.says(`"currency": "EUR"`)
	tb.open("claims")
	tb.says("order-slow")
	tb.open("deferred")
	tb.says("account-deferred")
	tb.open("outbox")
	tb.until(`document.querySelector("#outbox-state .tile b").textContent === "2"`, "two wait in the outbox")
}

func filterDeadLetters(t *testing.T, w *world, b *browser) {
	tb := b.tab(t, w, desktop)
	tb.open("dead-letters")
	require.Len(t, tb.deadLetters(), 8)
	filter := func(field, value string) []string {
		tb.open("dead-letters")
		tb.fill(field, value)
		tb.press("Filter")
		tb.until(fmt.Sprintf(`location.search.includes(%q)`, value), "the filter is in the address")
		return tb.deadLetters()
	}
	assert.ElementsMatch(t, []string{"order-declined", "order-mended", "order-offered", "order-plain", "parcel-lost"}, filter("class", "permanent"))
	assert.Equal(t, []string{"invoice-ill"}, filter("class", "failed"))
	assert.Equal(t, []string{"order-garbled"}, filter("class", "undecodable"), "its identity was read before its payload")
	assert.Equal(t, []string{""}, filter("class", "no-event-id"))
	assert.Equal(t, []string{"parcel-lost"}, filter("type", "order.shipped"))
	assert.Equal(t, []string{"order-mended"}, filter("fid", "order-mended"))
	assert.Empty(t, filter("fid", "order-9999"))
	tb.says("No dead letter matches")
	assert.Empty(t, filter("until", "23h"))
	assert.Len(t, filter("since", "23h"), 8)
	filter("since", "yesterday")
	tb.says("A time is such as")
}

// plan chooses the dead letter of an event and plans its replay.
func (tb *tab) plan(id string) {
	tb.t.Helper()
	tb.open("dead-letters", "id", id)
	require.Equal(tb.t, []string{id}, tb.deadLetters())
	tb.run(chromedp.Click(chromedp.CSS(`input[name=at]`)))
	tb.press("Plan a replay of those chosen")
	tb.says("1 dead letter of 1 would be replayed")
}

func planAndReplay(t *testing.T, w *world, b *browser) {
	const id = "order-mended"
	before := w.size(w.retries())
	w.provider.answer(0, "", id)
	tb, other := b.tab(t, w, desktop), b.tab(t, w, desktop)
	tb.plan(id)
	assert.Zero(t, w.provider.effects(id), "a plan changes nothing")
	address := tb.text("location.search")
	other.run(chromedp.Navigate(tb.base + "plan" + address))
	other.says("would be replayed")

	tb.press("Replay 1 dead letter")
	tb.says("1 of 1 replayed")
	w.handled(id)
	tb.run(chromedp.NavigateBack()) // as people do
	tb.until(`document.readyState === "complete"`, "the page before")
	tb.run(chromedp.NavigateForward())
	tb.says("1 of 1 replayed")

	other.press("Replay 1 dead letter") // it shows the earlier state
	other.says("Already done")
	other.open("dead-letters", "id", id)
	other.run(chromedp.Click(chromedp.CSS(`input[name=at]`)))
	other.press("Plan a replay of those chosen")
	other.says("No dead letter to replay")
	assert.False(t, other.is(`document.querySelector("form[action='./replay']")`), "nothing to confirm")

	other.event(id, "Yes")
	assert.Equal(t, []status{{"POST", "plan", 303}, {"POST", "replay", 303}}, tb.posts(), "back and forward send nothing")
	assert.EqualValues(t, 1, w.size(w.retries())-before, "copies")
	assert.Equal(t, 1, w.provider.effects(id), "effects")
}

func liveFigures(t *testing.T, w *world, b *browser) {
	start, activity, claims := b.tab(t, w, desktop), b.tab(t, w, desktop), b.tab(t, w, phone)
	start.open("")
	activity.open("activity")
	claims.open("claims")
	const tile, counter = `document.querySelector("#tile-duplicates b").textContent`, `document.querySelector("#duplicate-counter b").textContent`
	number := func(tb *tab, expression string) int {
		n, err := strconv.Atoi(tb.text(expression))
		require.NoError(t, err, expression)
		return n
	}
	before := number(start, tile)
	require.Equal(t, before, number(activity, counter))
	for _, tb := range []*tab{start, activity, claims} {
		tb.run(chromedp.Evaluate[chromedp.Void](`window.sameDocument = true`))
		tb.until(`!document.getElementById("live").hidden && document.querySelector(".live-text").textContent === "Live"`, "the button says so")
	}
	claims.says("order-slow")
	w.send("order.paid", "order-2", "order-2", "order-2")
	start.until(fmt.Sprintf(`%s === "%d"`, tile, before+3), "the counter moves by itself")
	activity.until(fmt.Sprintf(`%s === "%d"`, counter, before+3), "the counter moves by itself")
	w.provider.releaseAll()
	claims.says("No handler runs at this moment.")
	for _, tb := range []*tab{start, activity, claims} {
		assert.True(t, tb.is(`window.sameDocument`), "not by loading the page again")
	}

	start.run(chromedp.Click(chromedp.CSS("#live")))
	start.until(`document.querySelector(".live-text").textContent === "Paused"`, "it can be stopped")
	w.send("order.paid", "order-2")
	activity.until(fmt.Sprintf(`%s === "%d"`, counter, before+4), "others go on")
	assert.Equal(t, before+3, number(start, tile), "it stands still")
	start.run(chromedp.Click(chromedp.CSS("#live")))
	start.until(fmt.Sprintf(`%s === "%d"`, tile, before+4), "and goes on")
	assert.Equal(t, 1, w.provider.effects("order-2"), "duplicates have no effect")
}

func withoutScript(t *testing.T, w *world, b *browser) {
	const id = "order-plain"
	l := desktop
	l.noScript = true
	tb := b.tab(t, w, l)
	tb.open("")
	require.True(t, tb.is(`document.getElementById("live").hidden`), "no script has run")
	tb.run(chromedp.KeyEvent(id), chromedp.KeyEvent(kb.Enter))
	tb.says("the card was declined")
	w.provider.answer(0, "", id)
	tb.open("dead-letters")
	tb.fill("class", "permanent")
	tb.fill("fid", id)
	tb.press("Filter")
	tb.until(`location.search.includes("order-plain")`, "filtered")
	assert.False(t, tb.is(`document.querySelector("[data-with-script]:not([hidden])")`), "nothing is offered that does not work")
	tb.plan(id)
	tb.press("Replay 1 dead letter")
	tb.says("1 of 1 replayed")
	w.handled(id)
	tb.event(id, "Yes")
	assert.Equal(t, 1, w.provider.effects(id))
	for _, name := range everyPage {
		tb.open(name)
		assert.NotEmpty(t, tb.text(`document.querySelector("h1").innerText`), name)
	}
}
