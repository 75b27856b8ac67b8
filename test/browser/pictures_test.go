package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// notInNames are characters that a file name should not have.
var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// keep writes a picture of the whole page to the folder IDEM_PICTURES, if it is set: `make
// pictures`.
func (tb *tab) keep(name string, l look) {
	tb.t.Helper()
	folder := os.Getenv("IDEM_PICTURES")
	if folder == "" {
		return
	}
	shot, err := chromedp.Run(tb.ctx, chromedp.FullScreenshot(100))
	require.NoError(tb.t, err, "picture of %q (%s)", name, l)
	file := notInNames.ReplaceAllString(fmt.Sprintf("%s %s %s", tb.t.Name(), name, l), "-") + ".png"
	require.NoError(tb.t, os.WriteFile(filepath.Join(folder, file), shot, 0o644))
}
