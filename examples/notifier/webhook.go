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
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/classify"
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
		return idem.Unavailable(idem.NotApplied(err))
	case err != nil: // the request may have arrived
		return err
	}
	defer resp.Body.Close()
	// Read a little, so that the connection can be reused.
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	return webhookError(resp)
}

// webhookError classifies an answer. Every notification needs this one service, so all of them wait
// while it is down, or refuses requests above its rate. Answers to wrong settings, such as a
// redirect or a 401, get no mark: [idem.Permanent] would dead-letter every event at once.
func webhookError(resp *http.Response) error {
	err := classify.CheckResponse(resp)
	switch {
	case resp.StatusCode >= 300 && err == nil:
		return fmt.Errorf("webhook answered %s", resp.Status)
	case resp.StatusCode == http.StatusTooManyRequests:
		return idem.Unavailable(err)
	}
	return classify.HTTP(err)
}
