// Package provider is a small payment provider in memory, for the payments example and its tests.
// It behaves like real providers: it charges once for each Idempotency-Key, stores its answers, and
// refuses a key that comes with another charge. It also fails on request.
package provider

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
)

// Wish is the body of POST /charges.
type Wish struct {
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Customer  string `json:"customer"`
	Reference string `json:"reference"`
}

// Charge is a charge that was made.
type Charge struct {
	ID  string `json:"id"`
	Key string `json:"idempotency_key"`
	Wish
}

// Request is one request for a charge. Attempt counts the requests with the same key, from 1.
type Request struct {
	Key     string
	Attempt int
	Wish
}

// Fault describes the faults of one request. The zero value means no fault.
type Fault struct {
	// Unavailable answers 503, without a charge and without a stored answer.
	Unavailable bool
	// Decline answers 402, also to all later requests with the key.
	Decline bool
	// AfterCharge is called after the charge and before its answer is sent. ctx ends when the
	// client disconnects.
	AfterCharge func(ctx context.Context)
	// Hang makes the charge, and does not answer until the client disconnects.
	Hang bool
}

// ByCustomer chooses the fault by the customer's name: "declined" is declined, "unavailable" is
// answered 503, and "lost" is charged at the first attempt and answered at the second.
func ByCustomer(r Request) Fault {
	return Fault{
		Decline:     r.Customer == "declined",
		Unavailable: r.Customer == "unavailable",
		Hang:        r.Customer == "lost" && r.Attempt == 1,
	}
}

// Server is the provider. POST /charges charges. GET /charges lists the last 20 charges, or as many
// as ?last= names. Server is safe for concurrent use. Create it with New.
type Server struct {
	fault func(Request) Fault
	mux   *http.ServeMux

	mu       sync.Mutex
	answers  map[string]*answer // by key
	attempts map[string]int     // by key
	charges  []Charge
}

// answer is the stored answer of a key, with the charge that was asked for.
type answer struct {
	wish   Wish
	status int
	body   any
}

// maxKeys bounds the number of stored keys. Requests with further keys are answered 503.
const maxKeys = 1_000_000

// New returns a provider without charges. fault chooses the fault of each request; nil means no
// faults.
func New(fault func(Request) Fault) *Server {
	if fault == nil {
		fault = func(Request) Fault { return Fault{} }
	}
	s := &Server{
		fault: fault, mux: http.NewServeMux(),
		answers: make(map[string]*answer), attempts: make(map[string]int), charges: []Charge{},
	}
	s.mux.HandleFunc("POST /charges", s.post)
	s.mux.HandleFunc("GET /charges", func(w http.ResponseWriter, r *http.Request) {
		charges, last := s.Charges(), 20
		if n, err := strconv.Atoi(r.URL.Query().Get("last")); err == nil {
			last = max(0, n)
		}
		write(w, http.StatusOK,
			map[string]any{"count": len(charges), "charges": charges[max(0, len(charges)-last):]})
	})
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Charges returns all charges in their order.
func (s *Server) Charges() []Charge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.charges)
}

// Attempts returns the number of requests with a key.
func (s *Server) Attempts(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[key]
}

func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	req := Request{Key: r.Header.Get("Idempotency-Key")}
	// the whole body, because only then the server notices a disconnect
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	if err == nil {
		err = json.Unmarshal(body, &req.Wish)
	}
	if err != nil || req.Key == "" || len(req.Key) > 255 || req.Amount <= 0 {
		write(w, http.StatusBadRequest, refusal("invalid_request"))
		return
	}
	if req.Attempt = s.attempt(req.Key); req.Attempt == 0 {
		write(w, http.StatusServiceUnavailable, refusal("full"))
		return
	}
	fault := s.fault(req)
	if fault.Unavailable {
		write(w, http.StatusServiceUnavailable, refusal("unavailable"))
		return
	}
	a := s.decide(req, fault.Decline)
	if fault.AfterCharge != nil {
		fault.AfterCharge(r.Context())
	}
	if fault.Hang {
		<-r.Context().Done()
		return
	}
	write(w, a.status, a.body)
}

// attempt counts an attempt. It returns 0 if there is no room for the key.
func (s *Server) attempt(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempts[key] == 0 && len(s.attempts) >= maxKeys {
		return 0
	}
	s.attempts[key]++
	return s.attempts[key]
}

// decide charges, or returns the earlier decision.
func (s *Server) decide(r Request, decline bool) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.answers[r.Key]; a != nil {
		if a.wish != r.Wish {
			return answer{status: http.StatusBadRequest,
				body: refusal("idempotency_key_in_use_for_another_charge")}
		}
		return *a
	}
	a := &answer{wish: r.Wish, status: http.StatusPaymentRequired, body: refusal("card_declined")}
	if !decline {
		c := Charge{ID: chargeID(r.Key), Key: r.Key, Wish: r.Wish}
		s.charges = append(s.charges, c)
		a.status, a.body = http.StatusCreated, c
	}
	s.answers[r.Key] = a
	return *a
}

// chargeID returns an ID that is unique for each key, also after a restart, so that clients may
// store it.
func chargeID(key string) string {
	sum := sha256.Sum256([]byte(key))
	return fmt.Sprintf("ch_%x", sum[:8])
}

func refusal(code string) map[string]string { return map[string]string{"code": code} }

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
