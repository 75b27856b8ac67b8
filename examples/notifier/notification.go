package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"github.com/idem-go/idem"
)

// notification is the event in the form of the producer. Only event_id and type are required. The
// sender checks the other fields.
type notification struct {
	EventID  string         `json:"event_id"`
	Type     string         `json:"type"` // email, sms or push
	UserID   string         `json:"user_id"`
	Template string         `json:"template"`
	Data     map[string]any `json:"data"`
}

// order is the part of order.paid that customers see.
type order struct {
	OrderID    name `json:"order_id"`
	CustomerID name `json:"customer_id"`
}

// name is an ID. The JSON is a string or a number; a number is kept as written.
type name string

// UnmarshalJSON implements [json.Unmarshaler].
func (s *name) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, (*string)(s))
	}
	return json.Unmarshal(b, (*json.Number)(s))
}

// notification returns the mail to the customer.
func (o order) notification(eventID string) notification {
	return notification{
		EventID: eventID, Type: "email", UserID: string(o.CustomerID), Template: "order_paid",
		Data: map[string]any{"order_id": string(o.OrderID)},
	}
}

// texts are the templates of the worker. Each works without data: a notification without a name is
// better than no notification. The first line is the subject.
var texts = parse(map[string]string{
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

// render makes the text of n. The errors would occur at every attempt and are permanent: the event
// goes to the dead-letter topic without a retry.
func render(n notification) (subject, body string, err error) {
	t := texts.Lookup(n.Template)
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
