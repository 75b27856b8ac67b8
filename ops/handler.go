package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// Handler is the page. Make it with [NewHandler]. Safe for concurrent use.
type Handler struct {
	cfg   Config
	guard *http.CrossOriginProtection
	pages map[string]page
	src   sources
	plans *plans
	now   func() time.Time

	ctx                 context.Context // of work behind requests, until Close
	stop                context.CancelFunc
	work                sync.WaitGroup
	places              *places  // of reads of whole topics, and other searches
	strangers, refusals refusals // strangers: without a name, or from other sites
	cells               cells
	watch               deadLetterWatch
}

// maxForm limits a form, which may have a dead letter for each of maxPlanned.
const maxForm = 512 << 10

// page has the handlers of one path, by method.
type page map[string]func(*visit) error

// NewHandler returns the page of a configuration, without network access. Without Auth and Loopback
// the error matches [ErrNoAuth]. Call Close after the last request.
//
// The page answers paths below Config.Prefix only. All links are relative, so a proxy may map
// another path to the page.
func NewHandler(cfg Config) (*Handler, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return newHandler(cfg, newSources(cfg))
}

func newHandler(cfg Config, src sources) (*Handler, error) {
	h := &Handler{
		cfg: cfg, guard: http.NewCrossOriginProtection(), src: src, plans: newPlans(), now: time.Now, places: newPlaces(),
	}
	for _, origin := range cfg.TrustedOrigins {
		if err := h.guard.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("ops: Config.TrustedOrigins: %w", err)
		}
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.cells = newCells(h)
	h.pages = map[string]page{
		"":             {http.MethodGet: h.start},
		"event":        {http.MethodGet: h.event},
		"activity":     {http.MethodGet: h.activity},
		"partitions":   {http.MethodGet: h.partitions},
		"claims":       {http.MethodGet: h.claims},
		"deferred":     {http.MethodGet: h.deferred},
		"dead-letters": {http.MethodGet: h.deadLetters},
		"dead-letter":  {http.MethodGet: h.deadLetter},
		"plan":         {http.MethodGet: h.showPlan, http.MethodPost: h.makePlan},
		"replay":       {http.MethodPost: h.replay},
		"outbox":       {http.MethodGet: h.outbox},
		"doctor":       {http.MethodGet: h.doctor},
	}
	for name, a := range assets() {
		h.pages[name] = page{http.MethodGet: a.serve}
	}
	return h, nil
}

// Close ends the work behind the page and waits for it, until ctx ends. A replay finishes its
// current dead letter. Own connections to Kafka are closed. Later requests show errors in their
// sections.
func (h *Handler) Close(ctx context.Context) error {
	h.stop()
	done := make(chan struct{})
	go func() {
		h.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("ops: close: %w", context.Cause(ctx))
	}
	if h.src.close == nil {
		return nil
	}
	return h.src.close()
}

// visit is one request.
type visit struct {
	w   http.ResponseWriter
	r   *http.Request
	who string
}

func (v *visit) context() context.Context { return v.r.Context() }

// query returns a value of the URL, without surrounding blanks and of bounded length.
func (v *visit) query(name string) string { return clipped(v.r.URL.Query().Get(name)) }

// identity returns a value of the URL unchanged if the link is one of ours, because blanks belong
// to an ID (P-23).
func (v *visit) identity(name string) string {
	query := v.r.URL.Query()
	if query.Get("exact") == "" {
		return clipped(query.Get(name))
	}
	return bounded(query.Get(name))
}

// maxField bounds a field of a form: longer than an ID of a CloudEvent with the source.
const maxField = 1024

func clipped(s string) string {
	return bounded(strings.Trim(s, " \t\r\n")) // pasted text
}

func bounded(s string) string {
	if len(s) > maxField {
		s = strings.ToValidUTF8(s[:maxField], "")
	}
	return s
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	who, err := h.admit(r)
	v := &visit{w: w, r: r, who: who}
	if err != nil {
		h.refused(v, Action{Kind: actionEnter}, "not let in")
		h.deny(w, r, err)
		return
	}
	if err := h.serve(v); err != nil {
		h.fail(v, err)
	}
}

func (h *Handler) serve(v *visit) error {
	if err := h.guard.Check(v.r); err != nil {
		h.refused(v, Action{Kind: actionEnter}, "a form of another site")
		return &pageError{
			http.StatusForbidden, "Refused",
			"This form was sent from another site or another port. Open the page here and send it again.",
		}
	}
	if crossSite(v.r) {
		h.refused(v, Action{Kind: actionEnter}, "loaded by another site")
		return &pageError{
			http.StatusForbidden, "Refused",
			"Another site has loaded this address. Open the page itself.",
		}
	}
	if v.r.URL.Path+"/" == h.cfg.Prefix || v.r.URL.Path == "" { // links would lead astray
		return redirectToSlash(v)
	}
	name, ok := strings.CutPrefix(v.r.URL.Path, h.cfg.Prefix)
	p := h.pages[name]
	if !ok || p == nil || !endsWith(v.r.URL, name) {
		return &pageError{
			http.StatusNotFound, "No such page",
			"There is nothing under this address. If the page itself should be here, ops.Config.Prefix must be its path.",
		}
	}
	method := v.r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	do, ok := p[method]
	if !ok {
		v.w.Header().Set("Allow", p.allow())
		return &pageError{
			http.StatusMethodNotAllowed, "Not this way",
			"This address does not take the method " + v.r.Method + ".",
		}
	}
	if method == http.MethodPost {
		v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
		if err := v.r.ParseForm(); err != nil {
			return &pageError{
				http.StatusBadRequest, "Not understood", "The form is too large or is none.",
			}
		}
	} else if _, file := assets()[name]; !file && !h.may(v, viewOf(v, name)) { // plans and replays ask by themselves
		return errNotAllowed
	}
	return do(v)
}

// endsWith reports whether the last part of a path was sent without escapes. A proxy that forbids
// "dead letter" need not know that "%6Cetter" is the same.
func endsWith(u *url.URL, name string) bool {
	sent := u.EscapedPath()
	return sent[strings.LastIndexByte(sent, '/')+1:] == name
}

func (p page) allow() string {
	if _, ok := p[http.MethodGet]; !ok {
		return http.MethodPost
	}
	if _, ok := p[http.MethodPost]; ok {
		return "GET, HEAD, POST"
	}
	return "GET, HEAD"
}

func redirectToSlash(v *visit) error {
	asked, _, _ := strings.Cut(v.r.RequestURI, "?")
	last := asked[strings.LastIndexByte(asked, '/')+1:]
	if last == "" {
		return &pageError{
			http.StatusNotFound, "No such page",
			"The page is mounted without a slash at the end of its prefix.",
		}
	}
	v.w.Header().Set("Location", "./"+last+"/")
	v.w.WriteHeader(http.StatusPermanentRedirect)
	return nil
}

// to redirects the browser to another page, by a link relative to the present one.
func (v *visit) to(name string, query url.Values) error {
	target := "./" + name
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	v.w.Header().Set("Location", target)
	v.w.WriteHeader(http.StatusSeeOther)
	return nil
}

// pageError is an answer without a page, as text for the person.
type pageError struct {
	status      int
	title, text string
}

func (e *pageError) Error() string { return e.title + ": " + e.text }

func (h *Handler) fail(v *visit, err error) {
	var known *pageError
	if !errors.As(err, &known) {
		h.cfg.Logger.ErrorContext(
			v.context(), "ops page failed", "path", v.r.URL.Path, "error", idem.ErrorText(err),
		)
		known = &pageError{
			http.StatusInternalServerError, "This page is broken",
			"The reason is in the log of the program.",
		}
	}
	if err := h.show(v, known.status, "error", known.title, 0, known.text); err != nil {
		http.Error(v.w, known.title, http.StatusInternalServerError)
	}
}

// show writes a page. After an error of the template nothing is written.
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
