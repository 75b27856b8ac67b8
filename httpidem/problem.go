package httpidem

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// problem is an answer of the middleware itself (RFC 9457).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"`
	Key    string `json:"idempotency_key,omitempty"`
	// OriginalStatus is the status of an answer that cannot be replayed.
	OriginalStatus int `json:"original_status,omitempty"`
}

// write sends the problem. Headers that describe another body are removed; the others stay.
func (p *problem) write(w http.ResponseWriter) {
	a, h := p.answer(), w.Header()
	for _, name := range []string{"Content-Encoding", "Content-Language", "Content-Disposition",
		"Etag", "Last-Modified", "Trailer"} {
		h.Del(name)
	}
	for name, values := range a.header {
		h[name] = values
	}
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client has gone: no further error to report
}

// answer returns the problem as an answer that can be stored.
func (p *problem) answer() *answer {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return &answer{
		status: p.Status,
		header: http.Header{"Content-Type": {"application/problem+json"},
			"Cache-Control": {"no-store"}},
		body: append(body, '\n'),
	}
}
