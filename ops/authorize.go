package ops

import (
	"net/http"

	"github.com/idem-go/idem"
)

// This file decides about the actions of persons on the page.

// viewOf is the action of a page, by the parameters of its URL.
func viewOf(v *visit, name string) Action {
	a := Action{Kind: ActionView, Page: name}
	switch name {
	case "event":
		a.EventID, a.EventType, a.Tenant, a.Topic = v.identity(
			"id",
		), v.identity(
			"type",
		), v.identity(
			"tenant",
		), v.query(
			"topic",
		)
	case "dead-letters":
		a.EventID, a.EventType, a.Topic = v.query("id"), v.query("type"), v.query("topic")
	case "dead-letter":
		a.Topic = v.query("topic")
		if place, err := parsePlace(a.Topic, v.query("partition")+"/"+v.query("offset")); err == nil {
			a.DeadLetters = []string{place.String()}
		}
	case "plan":
		a.Plan = v.query("id")
	}
	return a
}

// may asks Config.Authorize. A refusal is logged and audited.
func (h *Handler) may(v *visit, a Action) bool {
	if h.cfg.Authorize == nil {
		return true
	}
	err := h.cfg.Authorize(v.r, v.who, a)
	if err != nil {
		h.refused(v, a, idem.ErrorText(err))
	}
	return err == nil
}

// offers reports whether the page shows the button of an action. Config.Authorize is asked once
// more when the button is used.
func (h *Handler) offers(v *visit, a Action) bool {
	if a.Kind == ActionReplay && !h.cfg.AllowReplay {
		return false
	}
	a.Offer = true
	return h.cfg.Authorize == nil || h.cfg.Authorize(v.r, v.who, a) == nil
}

var errNotAllowed = &pageError{
	http.StatusForbidden, "Not allowed",
	"You may look at this page, but not do this. The program decides it (ops.Config.Authorize).",
}

// crossSite reports whether a browser loads r for another site or origin, other than by a link.
// Examples are a picture, a script, a frame and a fetch. Such a request cannot read the answer, but
// it would use up searches and plans. The source is the W3C's Fetch Metadata Request Headers. A
// browser without these headers is not refused.
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false // forms: http.CrossOriginProtection and TrustedOrigins judge them
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" ||
		r.Header.Get("Sec-Fetch-Dest") != "document"
}

// planned is the action of making or carrying out a plan.
func planned(kind ActionKind, page, plan, topic string, at []deadLetterPlace) Action {
	a := Action{Kind: kind, Page: page, Plan: plan, Topic: topic}
	for _, place := range at {
		a.DeadLetters = append(a.DeadLetters, place.String())
	}
	return a
}
