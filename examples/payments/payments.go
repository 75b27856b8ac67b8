package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
)

// This file is the part of the example that concerns Idem: the account of a request, the stored
// answer, and the work of a payment in the transaction.

const (
	scope = "payments"
	// retention is the time for which answers are replayed. Clients must know this time. Later the
	// UNIQUE constraint still prevents a second payment.
	retention = 48 * time.Hour
	// handlerTime bounds the time for which a payment holds a transaction and a connection.
	handlerTime = 15 * time.Second
	maxBody     = 64 << 10
)

func newMiddleware(store dedup.Store, secret []byte,
	observe func(context.Context, httpidem.Observation), log *slog.Logger) (
	*httpidem.Middleware, error,
) {
	return httpidem.NewTx[pgx.Tx](httpidem.Config{
		Store:     store,
		Scope:     scope,
		Principal: func(r *http.Request) (string, error) { return accountOf(r), nil },
		Secret:    secret,
		Retention: retention,
		Timeout:   handlerTime,
		Wait:      httpidem.DefaultWait, // a second click gets the answer to the first
		MaxBody:   maxBody,
		// All requests without an account share one.
		MaxLiveKeys: 1000,
		Logger:      log,
		Observe:     observe,
	})
}

// anonymous is the account of requests without an account.
const anonymous = "anonymous"

// accountOf returns the account of a request. A demonstration may trust the header; README.md
// describes the alternative.
func accountOf(r *http.Request) string { return cmp.Or(r.Header.Get("X-Account"), anonymous) }

// payment is a row of the table payments, and the answer to the client.
type payment struct {
	ID         string `json:"id"`
	OrderID    string `json:"order_id"`
	CustomerID string `json:"customer_id"`
	Amount     int64  `json:"amount"`
	Currency   string `json:"currency"`
	ChargeID   string `json:"charge_id"`
	Account    string `json:"-"`
	Key        string `json:"-"` // Idempotency-Key
}

// sameWish reports whether the requests for two payments have equal contents.
func (p *payment) sameWish(o *payment) bool {
	return p.OrderID == o.OrderID && p.CustomerID == o.CustomerID && p.Amount == o.Amount &&
		p.Currency == o.Currency
}

// cashier makes payments.
type cashier struct {
	provider *providerClient
	// completed, if not nil, is called once for each payment, in tx. All writes of completed are
	// committed with the payment or not at all. [events] queues payment.completed here.
	completed func(context.Context, pgx.Tx, payment) error
	log       *slog.Logger
}

// create handles POST /payments. The middleware has begun the transaction and claimed the key, and
// commits both with the answer.
func (c *cashier) create(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	tx, ok := httpidem.TxFrom[pgx.Tx](ctx)
	if !ok {
		c.fail(w, r, errors.New("payments need the middleware"))
		return
	}
	p, err := readPayment(r)
	if err != nil {
		httpidem.NotApplied(ctx) // an invalid request does not use up its key
		problem(w, http.StatusBadRequest, "invalid_payment", err.Error())
		return
	}
	p.Account, p.Key = accountOf(r), httpidem.KeyFrom(ctx)
	// The ID is the same at every attempt. The provider compares requests that come under one key,
	// so equal requests are needed. The reference identifies the charge of a payment that was
	// rolled back.
	p.ID = httpidem.ForwardKey(ctx, "payment")
	p, err = c.pay(ctx, tx, p, httpidem.ForwardKey(ctx, "charge"))
	if err != nil && tx.Conn().IsClosed() {
		err = fmt.Errorf("%w: %w", errConnectionLost, err)
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(p)
}

// pay makes the payment or finds the existing one. The insert comes before the charge. The
// constraints of the row act as a lock: no other transaction can charge for the same request or
// order.
func (c *cashier) pay(
	ctx context.Context, tx pgx.Tx, p payment, chargeKey string,
) (payment, error) {
	earlier, err := insert(ctx, tx, p)
	if err != nil || earlier != nil {
		return value(earlier), err
	}
	if p.ChargeID, err = c.provider.charge(ctx, chargeKey, &p); err != nil {
		return p, err
	}
	if err := setCharge(ctx, tx, p); err != nil {
		return p, err
	}
	if c.completed != nil {
		err = c.completed(ctx, tx, p)
	}
	return p, err
}

func value(p *payment) payment {
	if p == nil {
		return payment{}
	}
	return *p
}

var (
	errOtherPayment   = errors.New("this key was used for another payment")
	errOrderPaid      = errors.New("the order was paid by a request with another key")
	errConnectionLost = errors.New("connection to the database lost")
)

// fail answers an error. A status below 500 is stored as the answer, and the writes of the handler
// are rolled back to the savepoint. A status of 500 and above rolls back the whole transaction and
// stores no answer. The same request then runs again, with the same keys for the provider.
func (c *cashier) fail(w http.ResponseWriter, r *http.Request, err error) {
	declined, isDeclined := errors.AsType[*declinedError](err)
	switch {
	case isDeclined:
		problem(w, http.StatusPaymentRequired, declined.code,
			"The provider declined the charge. Use a new key for another attempt.")
	case errors.Is(err, errOrderPaid):
		problem(w, http.StatusConflict, "order_already_paid", err.Error())
	case errors.Is(err, errOtherPayment):
		problem(w, http.StatusUnprocessableEntity, "request_signature_mismatch", err.Error())
	case errors.Is(err, errProviderAway), errors.Is(err, errConnectionLost),
		errors.Is(err, context.DeadlineExceeded):
		c.log.WarnContext(r.Context(), "payment rolled back",
			"idempotency_key", httpidem.KeyFrom(r.Context()), "error", idem.ErrorText(err))
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "try_again",
			"Nothing was stored. Send the request again, with the same key.")
	default:
		c.log.ErrorContext(r.Context(), "payment rolled back",
			"idempotency_key", httpidem.KeyFrom(r.Context()), "error", idem.ErrorText(err))
		problem(w, http.StatusInternalServerError, "failed",
			"Nothing was stored. Send the request again, with the same key.")
	}
}

// problem writes an answer in the format of RFC 9457.
func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "code": code,
		"detail": detail,
	})
}

var (
	isCurrency = regexp.MustCompile(`^[A-Z]{3}$`).MatchString
	// for example, texts in Postgres cannot have zero bytes
	isID = regexp.MustCompile(`^[[:print:]]{1,200}$`).MatchString
)

// name is the ID of an order or a customer. The JSON is a string or a number; a number is kept as
// written.
type name string

// UnmarshalJSON implements [json.Unmarshaler].
func (s *name) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, (*string)(s))
	}
	return json.Unmarshal(b, (*json.Number)(s))
}

// decode reads the body of a request into wish.
func decode(body io.Reader, wish any) error {
	d := json.NewDecoder(body)
	if err := d.Decode(wish); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
			return fmt.Errorf("%s cannot be a %s", e.Field, e.Value)
		}
		return errors.New(`the body is not a payment such as ` +
			`{"order_id":"o-1","amount":995,"currency":"EUR","customer_id":"ada"}`)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body continues after the payment")
	}
	return nil
}

// readPayment reads and checks the request for a payment. The amount is an integer. Quotes are
// allowed, because clients with floating-point numbers write amounts in quotes. 9.95 is refused, in
// quotes or not, because 10.00 could mean ten euros or a thousand.
func readPayment(r *http.Request) (payment, error) {
	var wish struct {
		OrderID    name        `json:"order_id"`
		CustomerID name        `json:"customer_id"`
		Amount     json.Number `json:"amount"`
		Currency   string      `json:"currency"`
	}
	if err := decode(r.Body, &wish); err != nil {
		return payment{}, err
	}
	amount, err := strconv.ParseInt(wish.Amount.String(), 10, 64)
	p := payment{OrderID: string(wish.OrderID), CustomerID: string(wish.CustomerID), Amount: amount,
		Currency: wish.Currency}
	switch {
	case !isID(p.OrderID):
		return p, errors.New("order_id must have 1 to 200 printable ASCII characters")
	case !isID(p.CustomerID):
		return p, errors.New("customer_id must have 1 to 200 printable ASCII characters")
	case err != nil || p.Amount <= 0:
		return p, errors.New("amount must be an integer above zero, " +
			"in the currency's smallest unit: 995 is 9.95 EUR")
	case !isCurrency(p.Currency):
		return p, errors.New("currency must be an ISO 4217 code such as EUR")
	}
	return p, nil
}
