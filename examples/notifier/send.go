package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"sync"

	"github.com/idem-go/idem"
)

// sender sends a notification on the channel of its type. key is the same at every attempt and in
// every process. A sender forwards the key, so that the receiver recognizes a repeat. The error
// decides about retries; see the constructors of package idem. Safe for concurrent use.
type sender interface {
	Send(ctx context.Context, n notification, key string) error
}

// newSender returns the sender for an address: "log", or the URL of a mail server or a webhook. The
// log sender writes to stdout.
func newSender(address string, stdout io.Writer) (sender, error) {
	if address == "log" {
		return &logSender{out: stdout}, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("-sender: %w", err)
	}
	switch u.Scheme {
	case "smtp", "smtps":
		return newMailSender(u)
	case "http", "https":
		return newWebhookSender(u)
	}
	return nil, fmt.Errorf("-sender %q: want log, or a URL that begins with "+
		"smtp://, smtps://, http:// or https://", address)
}

// logSender writes a line of JSON for each notification, in one call, so that a killed process
// leaves no partial line.
type logSender struct {
	mu  sync.Mutex
	out io.Writer
}

// logLine is the JSON of a line.
type logLine struct {
	EventID        string `json:"event_id"`
	Type           string `json:"type"`
	UserID         string `json:"user_id"`
	Template       string `json:"template"`
	IdempotencyKey string `json:"idempotency_key"`
}

func (s *logSender) Send(_ context.Context, n notification, key string) error {
	line, err := json.Marshal(struct {
		logLine
		OrderID any `json:"order_id,omitempty"` // of notifications about orders
	}{logLine{n.EventID, n.Type, n.UserID, n.Template, key}, n.Data["order_id"]})
	if err != nil {
		return idem.Permanent(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.out.Write(append(line, '\n'))
	return err
}
