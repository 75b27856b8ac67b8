package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"time"

	"github.com/idem-go/idem"
)

// webhookSender posts notifications as JSON to a service that delivers them. The service must
// honour the header Idempotency-Key: a repeated key is answered without another delivery.
//
// webhookSender does not retry. A sender that sleeps between attempts would hold its claim
// meanwhile. A returned error releases the claim, and the event comes again after a back-off, in
// any process, with the same key.
type webhookSender struct {
	url    string
	client *http.Client
}

// webhookTimeout bounds one request, the answer included.
const webhookTimeout = 10 * time.Second

func newWebhookSender(u *url.URL) (*webhookSender, error) {
	if u.Host == "" {
		return nil, fmt.Errorf("-sender %q: no host", u.Redacted())
	}
	return &webhookSender{url: u.String(), client: &http.Client{
		Timeout: webhookTimeout,
		// A redirect means that the service is not at this URL. Following it would turn a POST into
		// a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}, nil
}

// webhookBody is the JSON of a request.
type webhookBody struct {
	notification
	IdempotencyKey string `json:"idempotency_key"`
}

func (s *webhookSender) Send(ctx context.Context, n notification, key string) error {
	body, err := json.Marshal(webhookBody{n, key})
	if err != nil {
		return idem.Permanent(err)
	}
	// A request without a connection had no effect.
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost,
		s.url, bytes.NewReader(body))
	if err != nil {
		return idem.Permanent(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := s.client.Do(req)
	switch {
	case err != nil && !connected:
		return idem.NotApplied(err)
	case err != nil: // the request may have arrived
		return err
	}
	defer resp.Body.Close()
	// Read a little, so that the connection can be reused.
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	return webhookError(resp)
}

// webhookError classifies an answer.
func webhookError(resp *http.Response) error {
	code := resp.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	err := fmt.Errorf("webhook answered %s", resp.Status)
	switch {
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		if wait, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
			return idem.RetryAfter(wait, err)
		}
		return err
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code >= 500:
		return err
	case code == http.StatusConflict:
		// The service still handles an earlier request with this key, which may fail.
		return err
	}
	return idem.Permanent(err)
}

// retryAfter parses the header of that name: seconds or a date.
func retryAfter(v string, now time.Time) (time.Duration, bool) {
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(s) * time.Second, true
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), 0), true
	}
	return 0, false
}
