package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// This file makes the page, and leads a request to the function of its path.

// maxForm limits a form, which may have a dead letter for each of maxPlanned.
const maxForm = 512 << 10

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
		cfg: cfg, guard: http.NewCrossOriginProtection(), src: src, plans: newPlans(),
		background: background{now: time.Now, timeout: cfg.Timeout, places: newPlaces()},
	}
	for _, origin := range cfg.TrustedOrigins {
		if err := h.guard.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("ops: Config.TrustedOrigins: %w", err)
		}
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.cells = newCells(&h.background, &h.src)
	h.pages = map[string]methods{
		"":             {http.MethodGet: h.showStart},
		"event":        {http.MethodGet: h.showEvent},
		"activity":     {http.MethodGet: h.showActivity},
		"partitions":   {http.MethodGet: h.showPartitions},
		"claims":       {http.MethodGet: h.showClaims},
		"deferred":     {http.MethodGet: h.showDeferred},
		"dead-letters": {http.MethodGet: h.showDeadLetters},
		"dead-letter":  {http.MethodGet: h.showDeadLetter},
		"plan":         {http.MethodGet: h.showPlan, http.MethodPost: h.makePlan},
		"replay":       {http.MethodPost: h.replay},
		"outbox":       {http.MethodGet: h.showOutbox},
		"doctor":       {http.MethodGet: h.showDoctor},
	}
	for name, a := range assets() {
		h.pages[name] = methods{http.MethodGet: a.serve}
	}
	return h, nil
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
