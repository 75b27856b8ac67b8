package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience bounds every wait, far beyond the time of any step on a busy machine.
const patience = 30 * time.Second

// needed returns the path of something that is installed. Without it the test is skipped, or fails
// if IDEM_REQUIRE_BROWSER is set: a skip must never look like a success in CI.
func needed(t testing.TB, what, how string, find func() (string, error)) string {
	t.Helper()
	path, err := find()
	switch {
	case err == nil:
	case os.Getenv("IDEM_REQUIRE_BROWSER") != "":
		t.Fatalf("%s is missing (%v): %s", what, err, how)
	default:
		t.Skipf("%s is missing: %s", what, how)
	}
	return path
}

func chromiumPath(t testing.TB) string {
	return needed(t, "chromium", "install it (Debian, Ubuntu: apt-get install chromium)", func() (string, error) {
		for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
			if path, err := exec.LookPath(name); err == nil {
				return path, nil
			}
		}
		return "", exec.ErrNotFound
	})
}

// browser is a Chromium with a profile of its own for each run.
type browser struct{ ctx context.Context }

func startBrowser(t testing.TB) *browser {
	t.Helper()
	path, home := chromiumPath(t), t.TempDir()
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(home, "profile")),
		chromedp.Env("HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home),
		chromedp.Headless, chromedp.NoSandbox, // it runs as root in CI, and meets our own pages only
		chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.WSURLReadTimeout(time.Minute),
	}
	for _, flag := range []string{
		"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-extensions", "disable-default-apps",
		"disable-dev-shm-usage", "disable-breakpad", "metrics-recording-only", "force-color-profile=srgb",
		"disable-background-timer-throttling", "disable-backgrounding-occluded-windows", "disable-renderer-backgrounding",
		"blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4", // a mouse is there
	} {
		name, value, _ := strings.Cut(flag, "=")
		if value == "" {
			opts = append(opts, chromedp.Flag(name, true))
		} else {
			opts = append(opts, chromedp.Flag(name, value))
		}
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...) // t.Context ends before the cleanups of tabs
	t.Cleanup(stop)
	ctx, closeIt := chromedp.NewContext(ctx)
	t.Cleanup(closeIt)
	require.NoError(t, chromedp.Do(ctx), "start %s", path)
	return &browser{ctx}
}

// look is how a page is looked at.
type look struct {
	width, height  int64
	dark, noScript bool
	scale          float64 // pixels of a picture for one of the page; zero is one
}

var (
	desktop = look{width: 1280, height: 800}
	phone   = look{width: 390, height: 844}
)

// looks are those that axe judges: large and small, light and dark.
func looks() (all []look) {
	for _, l := range []look{desktop, phone} {
		for _, l.dark = range []bool{false, true} {
			all = append(all, l)
		}
	}
	return all
}

func (l look) String() string {
	return fmt.Sprintf("%dx%d, %s", l.width, l.height, map[bool]string{true: "dark", false: "light"}[l.dark])
}

// tab is one window, with cookies of its own. A forbidden act of a page is noted, and fails the
// test at its end.
type tab struct {
	t    testing.TB
	ctx  context.Context
	base string // URL of the page

	mu       sync.Mutex
	problems []string
	requests map[network.RequestID]status // the last of each
	statuses []status
	refused  []network.RequestID // by status 403, even if the page that asked does not see it
	allowed  []string
}

// status is the answer to a request.
type status struct {
	method, url string
	code        int64
}

// tab opens a window for a signed-in person at w.
func (b *browser) tab(t testing.TB, w *world, l look) *tab {
	t.Helper()
	tb := b.window(t, w.url, l)
	yes := true
	call(tb, network.SetCookie, network.SetCookieParams{
		Name: "sign-in", Value: w.signIn, URL: w.url, SameSite: network.CookieSameSiteNone, Secure: &yes, HTTPOnly: &yes,
	})
	return tb
}

// window opens a window without cookies, for pages below base.
func (b *browser) window(t testing.TB, base string, l look) *tab {
	t.Helper()
	ctx, closeIt := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(closeIt)
	tb := &tab{t: t, ctx: ctx, base: base, requests: make(map[network.RequestID]status)}
	require.NoError(t, chromedp.Listen(ctx, tb.note))
	call(tb, network.Enable, network.EnableParams{})
	call(tb, cdplog.Enable, cdp.Empty{})
	tb.as(l)
	t.Cleanup(func() {
		tb.mu.Lock()
		defer tb.mu.Unlock()
		assert.Empty(t, tb.problems, "what no page of ours may do")
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("at %s:\n%s", tb.text("location.href"), clip(tb.text("document.body.innerText"), 3000))
		}
	})
	return tb
}

func clip(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// as looks at the page in another way, without loading it again.
func (tb *tab) as(l look) {
	tb.t.Helper()
	scheme := map[bool]string{true: "dark", false: "light"}[l.dark]
	call(tb, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: l.width, Height: l.height, DeviceScaleFactor: cmp.Or(l.scale, 1), Mobile: l.width < 600,
	})
	call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	call(tb, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: l.noScript})
}

// call is one command of the protocol.
func call[P, R any](tb *tab, command cdp.Command[P, R], params P) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, command, params)
	require.NoError(tb.t, err, command.Method)
}

// note is called in the order of events, from one goroutine.
func (tb *tab) note(event any) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		tb.complain("exception: %s %s", e.ExceptionDetails.Text, describe(e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		var text []string
		for _, a := range e.Args {
			text = append(text, describe(a))
		}
		tb.complain("console.%s: %s", e.Type, strings.Join(text, " "))
	case *cdplog.EventEntryAdded: // also violations of the content security policy
		tb.complain("log, %s: %s (%s)", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *page.EventJavascriptDialogOpening:
		tb.complain("dialog: %s", e.Message)
		go func() { // the tab stands still until then
			_, _ = chromedp.Call(tb.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	case *network.EventRequestWillBeSent:
		if e.RedirectResponse != nil {
			tb.answered(e.RequestID, e.RedirectResponse.Status)
		}
		tb.requests[e.RequestID] = status{e.Request.Method, strings.TrimPrefix(e.Request.URL, tb.base), 0}
		if !strings.HasPrefix(e.Request.URL, tb.base) {
			tb.complain("request to elsewhere: %s", e.Request.URL)
		}
	case *network.EventResponseReceived:
		tb.answered(e.RequestID, e.Response.Status)
	case *network.EventResponseReceivedExtraInfo:
		if e.StatusCode == http.StatusForbidden { // may come before the request itself is told of
			tb.refused = append(tb.refused, e.RequestID)
		}
	}
}

func (tb *tab) answered(id network.RequestID, code int64) {
	r := tb.requests[id]
	r.code = code
	tb.statuses = append(tb.statuses, r)
}

// refusals are the requests that were answered with 403.
func (tb *tab) refusals() (all []status) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, id := range tb.refused {
		if r, ok := tb.requests[id]; ok {
			all = append(all, status{r.method, r.url, http.StatusForbidden})
		}
	}
	return all
}

// posts are the answers to the posted forms.
func (tb *tab) posts() (all []status) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, s := range tb.statuses {
		if s.method == "POST" {
			all = append(all, s)
		}
	}
	return all
}

func (tb *tab) complain(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.ContainsFunc(tb.allowed, func(part string) bool { return strings.Contains(text, part) }) {
		tb.problems = append(tb.problems, text)
	}
}

// allow makes problems with this text expected ones.
func (tb *tab) allow(part string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.allowed = append(tb.allowed, part)
}

func (tb *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	require.NoError(tb.t, chromedp.Do(ctx, actions...))
}

// open loads a page by its name, such as "dead letters".
func (tb *tab) open(name string, query ...string) {
	tb.t.Helper()
	address := tb.base + name
	if len(query) > 0 {
		q := url.Values{}
		for pair := range slices.Chunk(query, 2) {
			q.Set(pair[0], pair[1])
		}
		address += "?" + q.Encode()
	}
	tb.run(chromedp.Navigate(address))
}

// text is the value of a JavaScript expression, as text. It is empty if there is no value, as
// between two pages.
func (tb *tab) text(expression string) string {
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	s, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		return ""
	}
	return s
}

// is reports whether a JavaScript expression is true.
func (tb *tab) is(expression string) bool { return tb.text("Boolean("+expression+")") == "true" }

// until waits for a JavaScript expression to become true.
func (tb *tab) until(expression, why string) {
	tb.t.Helper()
	require.Eventually(tb.t, func() bool { return tb.is(expression) }, patience, 50*time.Millisecond, "%s: %s", why, expression)
}

// says waits for a text on the page.
func (tb *tab) says(text string) {
	tb.t.Helper()
	tb.until(fmt.Sprintf("document.readyState === 'complete' && document.body.innerText.includes(%q)", text), "the page says it")
}

func describe(o *runtime.RemoteObject) string {
	if o == nil {
		return ""
	}
	return string(o.Value) + o.Description
}

// event looks an event up, again and again until the answer has a text. Its page does not refresh
// by itself, and the store may record an effect, or a dead letter, a moment after others see it.
func (tb *tab) event(id, text string) {
	tb.t.Helper()
	require.Eventually(tb.t, func() bool {
		tb.open("event", "id", id)
		return strings.Contains(tb.text(`document.querySelector("main").innerText`), text)
	}, patience, 100*time.Millisecond, "the page of %s says %q", id, text)
}

// deadLetters are the IDs of the listed dead letters.
func (tb *tab) deadLetters() (ids []string) {
	tb.t.Helper()
	tb.until(`document.readyState === "complete"`, "loaded")
	text := tb.text(`JSON.stringify([...document.querySelectorAll("tbody td[data-label=Event]")].map(e => e.querySelector("a")?.textContent ?? ""))`)
	require.NoError(tb.t, json.Unmarshal([]byte(text), &ids))
	return ids
}

// fill sets a field of a form by its id.
func (tb *tab) fill(id, value string) {
	tb.t.Helper()
	tb.run(chromedp.SetValue(chromedp.CSS("#"+id), value))
}

// press clicks the button with this text, and waits for the next page.
func (tb *tab) press(text string) { tb.t.Helper(); tb.click("main button", text) }

// follow clicks the link with this text, and waits for the next page.
func (tb *tab) follow(text string) { tb.t.Helper(); tb.click("main a", text) }

func (tb *tab) click(kind, text string) {
	tb.t.Helper()
	element := fmt.Sprintf(`[...document.querySelectorAll(%q)].find(e => e.textContent.trim() === %q)`, kind, text)
	tb.until(element, "it is there to be clicked")
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.JSPath(element)))
	require.NoError(tb.t, err, "%s %q", kind, text)
}
