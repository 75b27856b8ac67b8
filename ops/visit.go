package ops

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// This file has the request of a person, and the answers without a page.

// visit is one request.
type visit struct {
	w   http.ResponseWriter
	r   *http.Request
	who string
}

func (v *visit) context() context.Context { return v.r.Context() }

// query returns a value of the URL, without surrounding blanks and of bounded length.
func (v *visit) query(name string) string { return clipped(v.r.URL.Query().Get(name)) }

// identity returns a value of the URL unchanged if the page made the link, because blanks belong to
// an ID (P-23).
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
