package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// providerClient calls the payment provider, without retries. The client of the API retries, in a
// new transaction.
type providerClient struct {
	charges string // URL
	http    *http.Client
}

// newProviderClient returns a client with a time limit for calls. A charge holds a transaction and
// a connection open, so limit must be well below [handlerTime].
func newProviderClient(base string, limit time.Duration, connections int) (*providerClient, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the provider's URL must begin with http:// or https://")
	}
	return &providerClient{
		charges: u.JoinPath("charges").String(),
		http: &http.Client{Timeout: limit, Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: connections,
			IdleConnTimeout:     time.Minute,
			TLSHandshakeTimeout: limit, ForceAttemptHTTP2: true,
		}},
	}, nil
}

// close closes idle connections.
func (c *providerClient) close() { c.http.CloseIdleConnections() }

// errProviderAway means that the charge may or may not have been made. A retry with the same key
// finds out.
var errProviderAway = errors.New("provider did not answer")

// declinedError is a final refusal of the provider.
type declinedError struct{ code string }

func (e *declinedError) Error() string { return "declined: " + e.code }

const maxAnswer = 64 << 10

// charge takes the money once for each key and returns the provider's ID of the charge.
func (c *providerClient) charge(
	ctx context.Context, key string, p *payment,
) (id string, err error) {
	body, err := json.Marshal(map[string]any{
		"amount": p.Amount, "currency": p.Currency, "customer": p.CustomerID, "reference": p.ID,
	})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.charges, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := c.http.Do(req)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errProviderAway, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("%w: %w", errProviderAway, err)
	}
	return readCharge(res.StatusCode, answer)
}

// readCharge interprets an answer of the provider.
func readCharge(status int, body []byte) (id string, err error) {
	var answer struct{ ID, Code string }
	err = json.Unmarshal(body, &answer)
	switch {
	case status == http.StatusPaymentRequired && err == nil && answer.Code != "":
		return "", &declinedError{answer.Code}
	case status/100 == 2 && err == nil && answer.ID != "":
		return answer.ID, nil
	// 409: the provider still handles an earlier request with this key.
	case status >= 500, status == http.StatusConflict, status == http.StatusRequestTimeout,
		status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return "", fmt.Errorf("%w: status %d", errProviderAway, status)
	default:
		return "", fmt.Errorf("provider answered %d: %.200q", status, body)
	}
}
