package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"github.com/idem-go/idem"
)

// notification is the event as its producer writes it. Only event_id and type are required of it; what else a channel
// needs is up to the sender.
type notification struct {
	EventID  string         `json:"event_id"`
	Type     string         `json:"type"` // email, sms or push
	UserID   string         `json:"user_id"`
	Template string         `json:"template"`
	Data     map[string]any `json:"data"`
}

// order is the payload of order.paid, as far as customers are told.
type order struct {
	OrderID    name `json:"order_id"`
	CustomerID name `json:"customer_id"`
}

// name is an ID: a text, or a number as many have them, taken as it is written.
type name string

// UnmarshalJSON implements [json.Unmarshaler].
func (s *name) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, (*string)(s))
	}
	return json.Unmarshal(b, (*json.Number)(s))
}

// notification is what the customer is told, by mail.
func (o order) notification(eventID string) notification {
	return notification{
		EventID: eventID, Type: "email", UserID: string(o.CustomerID), Template: "order_paid",
		Data: map[string]any{"order_id": string(o.OrderID)},
	}
}

// dead letters are the texts that the worker knows. Each says what it can without data, since a notification that lacks a
// name is better than one that is not sent. The first line is the subject.
var deadLetters = parse(map[string]string{
	"welcome":            "Welcome{{with .name}}, {{.}}{{end}}\nYour account is ready.",
	"order_confirmation": "Order{{with .order_id}} {{.}}{{end}} confirmed\nThank you{{with .name}}, {{.}}{{end}}.",
	"order_paid":         "Order{{with .order_id}} {{.}}{{end}} is paid\nWe received your payment. Thank you.",
	"order_shipped":      "Order{{with .order_id}} {{.}}{{end}} is on its way\n{{with .tracking}}Follow it here: {{.}}{{end}}",
	"payment_received":   "Payment received\nWe received {{with .amount}}{{.}}{{else}}your payment{{end}}. Thank you.",
	"password_reset":     "Reset your password\n{{with .link}}{{.}}{{else}}Ask for a new link on our page.{{end}}",
	"reminder":           "Reminder\n{{with .text}}{{.}}{{else}}Something is waiting for you.{{end}}",
	"plain":              "{{with .subject}}{{.}}{{else}}A message for you{{end}}\n{{with .text}}{{.}}{{end}}",
})

func parse(texts map[string]string) *template.Template {
	all := template.New("")
	for name, text := range texts {
		template.Must(all.New(name).Parse(text))
	}
	return all
}

// render makes the text of n. What goes wrong here goes wrong every time, so its errors are permanent: the event goes to
// the dead-letter topic without another attempt.
func render(n notification) (subject, body string, err error) {
	t := deadLetters.Lookup(n.Template)
	if t == nil || n.Template == "" {
		return "", "", idem.Permanent(fmt.Errorf("no template %q", n.Template))
	}
	var text strings.Builder
	if err := t.Execute(&text, n.Data); err != nil {
		return "", "", idem.Permanent(fmt.Errorf("template %q: %w", n.Template, err))
	}
	subject, body, _ = strings.Cut(text.String(), "\n")
	return subject, body, nil
}
