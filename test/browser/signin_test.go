package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/issuertest"
	"github.com/idem-go/idem/internal/testenv"
)

// untilInput runs a program until its own input ends.
const untilInput = `"$0" "$@" </dev/null & program=$!; cat >/dev/null; kill -TERM "$program"; wait "$program"`

// signInAndOut looks at the pages of signing in and out of idem ops: a refusal, a failed sign-in,
// the way out, and the page itself with its button for signing out.
func signInAndOut(t *testing.T, w *world, b *browser) {
	axe := axeSource(t)
	issuer := issuertest.New(t)
	base := "http://" + testenv.FreeAddr(t) + "/"
	issuer.Redirect(base + "signin/callback")
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(issuertest.ClientSecret), 0o600))
	run(t, exec.Command("sh", "-c", untilInput, built(t, "../../cmd/idem", "."), "ops", "-G", w.group, "--topics", w.topic,
		"--brokers", strings.Join(testenv.Kafka(t), ","), "--listen", strings.Trim(base, "htp:/"), "--public-url", base,
		"--oidc-issuer", issuer.URL, "--oidc-client-id", issuertest.ClientID, "--oidc-client-secret-file", secret,
		"--viewer-groups", "dev"), func() {})
	tb := b.window(t, base, desktop)
	tb.allow("request to elsewhere: " + issuer.URL)
	tb.allow("403 (Forbidden)")
	judge := func(title string) {
		t.Helper()
		tb.says(title)
		tb.run(chromedp.Evaluate[chromedp.Void](axe))
		for _, l := range looks() {
			tb.as(l)
			tb.judge(title, l)
		}
		tb.as(desktop)
	}
	issuer.SignIn(map[string]any{"email": "eve@example.com", "email_verified": true})
	tb.open("")
	judge("This page is not for you")
	tb.press("Sign out")
	judge("You are signed out")
	issuer.Break(nil, nil, "access_denied")
	tb.follow("Sign in")
	judge("The sign-in has failed")
	issuer.Break(nil, nil, "")
	issuer.SignIn(map[string]any{"email": "ada@example.com", "email_verified": true, "groups": []string{"dev"}})
	tb.follow("Sign in")
	tb.run(chromedp.Evaluate[chromedp.Void](`sessionStorage.setItem("idem-paused", "yes")`)) // axe looks at one state
	tb.open("")
	judge("ada@example.com")
	tb.click(".signout button", "Sign out")
	tb.says("You are signed out")
}
