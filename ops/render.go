package ops

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/words"
)

// frame is the part of a page around the content.
type frame struct {
	Page, Title string
	Name        string // Config.Title
	Group       string
	Who         string
	SignOut     string
	Replay      bool
	Assets      assetNames
	Nav         []navItem
	Now         time.Time
	Live        int // seconds between refreshes; 0: not live
	Content     any
}

type navItem struct {
	Name, Text string
	Here       bool
}

// pageNames are the pages in the order of the navigation.
var pageNames = []navItem{
	{
		Name: ".", Text: "Look up",
	}, {Name: "activity", Text: "Activity"}, {Name: "partitions", Text: "Partitions"}, {Name: "claims", Text: "Claims"},
	{
		Name: "deferred", Text: "Deferred",
	}, {Name: "dead-letters", Text: "Dead letters"}, {Name: "outbox", Text: "Outbox"}, {Name: "doctor", Text: "Doctor"},
}

// belongs maps a page to its entry in the navigation.
var belongs = map[string]string{
	"start": ".", "event": ".", "dead-letter": "dead-letters",
	"plan": "dead-letters",
}

func (h *Handler) frame(v *visit, name, title string, live time.Duration, content any) frame {
	f := frame{
		Page: name, Title: title, Name: h.cfg.Title, Group: h.cfg.Consumer.Group, Who: v.who, SignOut: h.cfg.SignOut,
		Replay: v.who != "" && h.offers(v, Action{Kind: ActionReplay, Page: name}),
		Assets: namesOfAssets(), Now: h.now(), Live: int(live / time.Second), Content: content,
	}
	for _, item := range pageNames {
		item.Here = item.Name == name || item.Name == belongs[name]
		f.Nav = append(f.Nav, item)
	}
	return f
}

var functions = template.FuncMap{
	"ago": ago, "stamp": stamp, "clock": clock, "iso": machineTime, "span": span, "size": size,
	"visible": visible, "capital": capital, "rows": outboxRows,
	"number": func(n any) (string, error) {
		whole, err := wholeNumber(n)
		return words.Number(whole), err
	},
	"plural": func(n any, noun string) (string, error) {
		whole, err := wholeNumber(n)
		return words.Count(whole, noun), err
	},
	// with gives a template that another one includes several values.
	"with_": func(pairs ...any) (map[string]any, error) {
		m := make(map[string]any, len(pairs)/2)
		for i := 0; i+1 < len(pairs); i += 2 {
			name, ok := pairs[i].(string)
			if !ok {
				return nil, fmt.Errorf("%v is no name", pairs[i])
			}
			m[name] = pairs[i+1]
		}
		return m, nil
	},
}

// wholeNumber reads the types of numbers that views have.
func wholeNumber(n any) (int64, error) {
	switch n := n.(type) {
	case int:
		return int64(n), nil
	case int32:
		return int64(n), nil
	case int64:
		return n, nil
	case *int64:
		return *n, nil
	case uint32:
		return int64(n), nil
	case uint64:
		return int64(n), nil
	}
	return 0, fmt.Errorf("%T is no number", n)
}

// pageTemplates are parsed once, when the first page is made.
var pageTemplates = sync.OnceValues(func() (map[string]*template.Template, error) {
	base, err := template.New("").Funcs(functions).ParseFS(templateFiles, "templates/parts/*.html")
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	all := make(map[string]*template.Template, len(files))
	for _, file := range files {
		t, err := base.Clone()
		if err != nil {
			return nil, err
		}
		if t, err = t.ParseFS(templateFiles, file); err != nil {
			return nil, err
		}
		all[strings.TrimSuffix(path.Base(file), ".html")] = t
	}
	return all, nil
})

func render(w io.Writer, name string, f frame) error {
	all, err := pageTemplates()
	if err != nil {
		return err
	}
	t := all[name]
	if t == nil {
		return fmt.Errorf("ops: there is no template %s", name)
	}
	return t.ExecuteTemplate(w, "layout", f)
}

// show writes a page. After an error of the template the page is not written.
func (h *Handler) show(
	v *visit, status int, name, title string, live time.Duration, content any,
) error {
	var b bytes.Buffer
	if err := render(&b, name, h.frame(v, name, title, live, content)); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	if v.r.Method != http.MethodHead {
		_, _ = b.WriteTo(v.w) // the browser may be gone
	}
	return nil
}

// liveEvery is the interval at which live pages refresh.
const liveEvery = 2 * time.Second
