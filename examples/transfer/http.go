package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/httpidem"
)

// books decide transfers, each once for the natural key. [bank] has its books in Postgres.
type books interface {
	decide(context.Context, naturalKey, order) (t transfer, known bool, err error)
	accounts(context.Context) ([]account, error)
	count(context.Context) (counts, error)
	ping(context.Context) error
}

// service is the bank's HTTP API.
type service struct {
	bank books
	log  *slog.Logger
}

// handler returns the whole API. Only POST goes through the idempotency middleware.
func (s *service) handler(m *httpidem.Middleware) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /transfers", m.Handler(http.HandlerFunc(s.postTransfer)))
	mux.HandleFunc("GET /transfers", func(w http.ResponseWriter, r *http.Request) {
		answer(s, w, r, s.bank.count)
	})
	mux.HandleFunc("GET /accounts", func(w http.ResponseWriter, r *http.Request) {
		answer(s, w, r, s.bank.accounts)
	})
	mux.HandleFunc("GET /healthz", s.healthz)
	return mux
}

// requestTime bounds the time for which one request uses the database.
const requestTime = 10 * time.Second

// postTransfer works with and without the middleware, because the bank decides each key once.
func (s *service) postTransfer(w http.ResponseWriter, r *http.Request) {
	o, err := readOrder(r.Body)
	if err != nil {
		s.refuse(w, r, http.StatusBadRequest, "invalid_transfer", err.Error())
		return
	}
	who, err := customer(r)
	if err != nil { // the middleware has checked this already
		w.Header().Set("WWW-Authenticate", httpidem.DefaultChallenge)
		s.refuse(w, r, http.StatusUnauthorized, "principal_unknown", err.Error())
		return
	}
	// While Redis is down, this time-out alone bounds the request.
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	t, known, err := s.bank.decide(ctx, naturalKey{customer: who, key: httpidem.KeyFrom(ctx)}, o)
	switch {
	case errors.Is(err, errOtherOrder): // the text of the middleware, which has lost the key
		s.refuse(w, r, http.StatusUnprocessableEntity, "request_signature_mismatch",
			"This key was used for another request. Use a new key for each operation.")
		return
	case err != nil:
		s.failed(w, r, err)
		return
	}
	if known {
		w.Header().Set(httpidem.DefaultReplayedHeader, "true")
	}
	if t.Refused != "" {
		writeProblem(w, http.StatusUnprocessableEntity, string(t.Refused), t.Refused.text(t.order))
		return
	}
	writeJSON(w, http.StatusCreated, t)
}

// refuse sends an answer that the database does not store. The middleware does not either: the next
// request is decided anew.
func (s *service) refuse(w http.ResponseWriter, r *http.Request, status int, code, detail string) {
	httpidem.NotApplied(r.Context())
	writeProblem(w, status, code, detail)
}

// failed answers when the database cannot be used. The answer need not be stored. If a COMMIT has
// arrived and its answer was lost, the next request with the key finds the decision.
func (s *service) failed(w http.ResponseWriter, r *http.Request, err error) {
	httpidem.NotApplied(r.Context())
	s.log.ErrorContext(r.Context(), "database", "idempotency_key", httpidem.KeyFrom(r.Context()),
		"error", idem.ErrorText(err))
	if permanent(err) {
		writeProblem(w, http.StatusInternalServerError, "internal_error",
			"Nothing is known to be wrong with the request.")
		return
	}
	w.Header().Set("Retry-After", "1")
	writeProblem(w, http.StatusServiceUnavailable, "database_unavailable",
		"Send it again; if it has a key, with the same one.")
}

// permanent reports whether a retry would fail for the same reason.
func permanent(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(e.Code) < 2 {
		return false
	}
	switch e.Code[:2] {
	// connection, transaction, deadlock, resources, locks, operator
	case "08", "25", "40", "53", "55", "57":
		return false
	}
	return true
}

func (r refusal) text(o order) string {
	switch r {
	case unknownAccount:
		return fmt.Sprintf("There is no account %d or no account %d.", o.From, o.To)
	case wrongCurrency:
		return fmt.Sprintf("The accounts %d and %d are not both kept in %s.", o.From, o.To,
			o.Currency)
	case insufficientFunds:
		return fmt.Sprintf("Account %d did not hold %d when the transfer was asked for.", o.From,
			o.Amount)
	}
	return string(r)
}

// maxReference is the maximum number of characters of a reference, as in SEPA.
const maxReference = 140

// readOrder reads an order and refuses unknown fields. Amounts are integers. 9.95 is refused,
// because 10.00 could mean ten euros or a thousand. Integers may be in quotes, as clients with
// floating-point numbers write them.
func readOrder(body io.Reader) (o order, err error) {
	var text struct {
		From      json.Number `json:"from"`
		To        json.Number `json:"to"`
		Amount    json.Number `json:"amount"`
		Currency  string      `json:"currency"`
		Reference string      `json:"reference"`
	}
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(&text); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
			return o, fmt.Errorf("%s cannot be a %s", e.Field, e.Value)
		}
		return o, errors.New(`the body is not a transfer such as ` +
			`{"from":1,"to":2,"amount":2500,"currency":"EUR","reference":"rent"}, ` +
			"with these fields and no others")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return o, errors.New("the body continues after the transfer")
	}
	o = order{
		From: integer(text.From), To: integer(text.To), Amount: integer(text.Amount),
		Currency: text.Currency, Reference: text.Reference,
	}
	return o, o.check()
}

// integer returns 0, which is never a valid value here, if n is missing or not an integer of 64
// bits.
func integer(n json.Number) int64 {
	i, err := n.Int64()
	if err != nil {
		return 0
	}
	return i
}

// check returns the error of an order that is wrong regardless of the accounts.
func (o order) check() error {
	switch {
	case o.From <= 0 || o.To <= 0:
		return errors.New("from and to are numbers of accounts")
	case o.From == o.To:
		return errors.New("from and to are the same account")
	case o.Amount <= 0:
		return errors.New("amount is an integer above zero, in minor units: 995 is 9.95 EUR")
	case !isCurrency(o.Currency):
		return errors.New("currency is an ISO 4217 code such as EUR")
	case utf8.RuneCountInString(o.Reference) > maxReference:
		return fmt.Errorf("reference has more than %d characters", maxReference)
	case strings.ContainsFunc(o.Reference, unicode.IsControl):
		return errors.New("reference has control characters")
	}
	return nil
}

func isCurrency(s string) bool {
	return len(s) == 3 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// anonymous is the customer of requests without Authorization.
const anonymous = "anonymous"

// customer returns the customer of a request. In this demonstration a bearer token is the
// customer's name, and requests without a token share the customer anonymous. A real bank verifies
// the token here, and checks that the account is the customer's.
func customer(r *http.Request) (string, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return anonymous, nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > 64 ||
		strings.ContainsFunc(token, notVisible) {
		return "", httpidem.Refuse(http.StatusUnauthorized,
			"the header Authorization is Bearer and the name of a customer")
	}
	return token, nil
}

func notVisible(r rune) bool { return r <= ' ' || r > '~' }

// answer sends the result of a query.
func answer[T any](
	s *service, w http.ResponseWriter, r *http.Request, ask func(context.Context) (T, error),
) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	v, err := ask(ctx)
	if err != nil {
		s.failed(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, v)
}

// healthz checks Postgres only, because the bank works without Redis.
func (s *service) healthz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := s.bank.ping(ctx); err != nil {
		writeProblem(w, http.StatusServiceUnavailable, "database_unavailable",
			"Postgres does not answer.")
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails if the client has disconnected
}

// writeProblem writes an error in the format of the middleware (RFC 9457).
func writeProblem(w http.ResponseWriter, status int, code, detail string) {
	body, err := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
		Code   string `json:"code"`
	}{"about:blank", http.StatusText(status), status, detail, code})
	if err != nil {
		panic(err) // strings and a number
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
