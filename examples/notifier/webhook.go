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

// webhookSender posts notifications as JSON to a service that delivers them. The service is expected to honour the
// header Idempotency-Key: a request that comes again with the same key is answered, not carried out again.
//
// It does not retry by itself. A sender that sleeps between attempts would hold its claim all the while; an error that
// is returned gives the claim back, and the event comes again after a back-off, in any process, with the same key.
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
		// A redirect is the answer of a service that is not at this URL. To follow it would turn a POST into a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// webhookBody is what is posted.
type webhookBody struct {
	notification
	IdempotencyKey string `json:"idempotency_key"`
}

func (s *webhookSender) Send(ctx context.Context, n notification, key string) error {
	body, err := json.Marshal(webhookBody{n, key})
	if err != nil {
		return idem.Permanent(err)
	}
	// Whoever gets no connection has sent nothing.
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, s.url, bytes.NewReader(body))
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
	// Read a little, so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	return webhookError(resp)
}

// webhookError says what an answer means.
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
		// With an Idempotency-Key: an earlier request with this key is still being carried out. It may yet fail.
		return err
	}
	return idem.Permanent(err)
}

// retryAfter reads the header of that name: seconds or a date.
func retryAfter(v string, now time.Time) (time.Duration, bool) {
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(s) * time.Second, true
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), 0), true
	}
	return 0, false
}
