package ops

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/opsstyle"
)

//go:embed static
var staticFiles embed.FS

//go:embed templates
var templateFiles embed.FS

// asset is a file of the page, under a name that changes with the content.
type asset struct {
	name, mime string
	content    []byte
}

// assetNames are the names that templates use.
type assetNames struct{ Style, Script, Icon string }

var loaded = sync.OnceValue(func() map[string]asset {
	mimes := map[string]string{
		"style.css": "text/css; charset=utf-8", "live.js": "text/javascript; charset=utf-8",
		"icon.svg": "image/svg+xml",
	}
	all := make(map[string]asset, len(mimes))
	for file, mime := range mimes {
		content := []byte(opsstyle.CSS)
		if file != "style.css" {
			var err error
			if content, err = staticFiles.ReadFile("static/" + file); err != nil {
				panic(err) // it is embedded: a test asks for each
			}
		}
		sum := sha256.Sum256(content)
		ext := path.Ext(file)
		all[file] = asset{
			file[:len(file)-len(ext)] + "-" + hex.EncodeToString(sum[:6]) + ext, mime, content,
		}
	}
	return all
})

// assets are the files by the names they are served under.
func assets() map[string]asset {
	all := make(map[string]asset)
	for _, a := range loaded() {
		all[a.name] = a
	}
	return all
}

func namesOfAssets() assetNames {
	all := loaded()
	return assetNames{all["style.css"].name, all["live.js"].name, all["icon.svg"].name}
}

// serve answers with the file. Browsers may cache the answer, because another content has another
// name.
func (a asset) serve(v *visit) error {
	h := v.w.Header()
	h.Set("Content-Type", a.mime)
	h.Set("Cache-Control", "private, max-age=86400, immutable")
	http.ServeContent(v.w, v.r, "", time.Time{}, bytes.NewReader(a.content))
	return nil
}
