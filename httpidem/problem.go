package httpidem

import "net/http"

// problem is an answer of the middleware itself (RFC 9457).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"`
	Key    string `json:"idempotency_key,omitempty"`
	// OriginalStatus of an answer that cannot be replayed.
	OriginalStatus int `json:"original_status,omitempty"`
}

// write sends it.
func (p *problem) write(w http.ResponseWriter) { panic("TODO") }

// answer is the problem as something that is kept.
func (p *problem) answer() *answer { panic("TODO") }
