package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail"

	"github.com/idem-go/idem"
)

// mailSender sends every notification as a mail. sms and push go to a gateway that takes mail. A
// mail server has no idempotency keys. Instead the Message-ID derives from the key: many mailboxes
// show two mails with the same Message-ID as one, and a person can recognize the repeat.
type mailSender struct {
	host     string
	from     string
	domain   string // of users without an address, and of Message-IDs
	implicit bool   // TLS from the first byte
	options  []mail.Option
}

// mailTimeout bounds the whole conversation with the server.
const mailTimeout = 15 * time.Second

// newMailSender parses
// smtp://[user:password@]host[:port][?from=a@b&domain=d&tls=mandatory|opportunistic|none].
func newMailSender(u *url.URL) (*mailSender, error) {
	q := u.Query()
	s := &mailSender{host: u.Hostname(), from: q.Get("from"), domain: q.Get("domain"),
		implicit: u.Scheme == "smtps"}
	if s.host == "" {
		return nil, fmt.Errorf("-sender %q: no host", u.Redacted())
	}
	if s.domain == "" {
		s.domain = "notifier.example" // reserved by RFC 2606, so that no mail reaches a stranger
	}
	if s.from == "" {
		s.from = "notifier@" + s.domain
	}
	port := 25
	if s.implicit {
		port = 465
	}
	if u.Port() != "" {
		var err error
		if port, err = strconv.Atoi(u.Port()); err != nil {
			return nil, fmt.Errorf("-sender %q: port: %w", u.Redacted(), err)
		}
	}
	policy, err := tlsPolicy(q.Get("tls"), u.User != nil)
	if err != nil {
		return nil, fmt.Errorf("-sender %q: %w", u.Redacted(), err)
	}
	s.options = []mail.Option{mail.WithPort(port), mail.WithTimeout(mailTimeout),
		mail.WithTLSPolicy(policy)}
	if s.implicit {
		s.options = append(s.options, mail.WithSSL())
	}
	if u.User != nil {
		password, _ := u.User.Password()
		s.options = append(s.options, mail.WithSMTPAuth(mail.SMTPAuthPlain),
			mail.WithUsername(u.User.Username()), mail.WithPassword(password))
	}
	// Reports wrong options at the start instead of with the first mail.
	if _, err := mail.NewClient(s.host, s.options...); err != nil {
		return nil, fmt.Errorf("-sender %q: %w", u.Redacted(), err)
	}
	return s, mail.NewMsg().From(s.from)
}

// tlsPolicy is opportunistic by default. A password is never sent over an unencrypted connection.
func tlsPolicy(name string, password bool) (mail.TLSPolicy, error) {
	switch {
	case name == "mandatory", name == "" && password:
		return mail.TLSMandatory, nil
	case name == "opportunistic", name == "":
		return mail.TLSOpportunistic, nil
	case name == "none":
		return mail.NoTLS, nil
	}
	return 0, fmt.Errorf("tls=%s: want mandatory, opportunistic or none", name)
}

func (s *mailSender) Send(ctx context.Context, n notification, key string) error {
	msg, err := s.message(n, key)
	if err != nil {
		return err
	}
	client, err := mail.NewClient(s.host,
		append(slices.Clone(s.options), mail.WithDialContextFunc(s.dial(ctx)))...)
	if err != nil {
		return idem.NotApplied(err)
	}
	err = client.DialAndSendWithContext(ctx, msg)
	if msg.IsDelivered() {
		return nil // the server has accepted the mail; an error of QUIT does not matter
	}
	return mailError(err)
}

// dial connects. The connection ends with ctx, because the library checks ctx only before the
// connection stands.
func (s *mailSender) dial(ctx context.Context) mail.DialContextFunc {
	return func(dialing context.Context, network, addr string) (net.Conn, error) {
		var conn net.Conn
		var err error
		if s.implicit {
			config := &tls.Config{ServerName: s.host, MinVersion: tls.VersionTLS12}
			secure := &tls.Dialer{Config: config}
			conn, err = secure.DialContext(dialing, network, addr)
		} else {
			conn, err = (&net.Dialer{}).DialContext(dialing, network, addr)
		}
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}
}

// message returns the mail for n. Its errors are permanent.
func (s *mailSender) message(n notification, key string) (*mail.Msg, error) {
	subject, body, err := render(n)
	if err != nil {
		return nil, err
	}
	to, err := s.address(n)
	if err != nil {
		return nil, idem.Permanent(err)
	}
	msg := mail.NewMsg()
	if err := errors.Join(msg.From(s.from), msg.To(to)); err != nil {
		return nil, idem.Permanent(err)
	}
	msg.Subject(subject)
	msg.SetBodyString(mail.TypeTextPlain, body)
	msg.SetDate()
	msg.SetMessageIDWithValue(key + "@" + s.domain)
	msg.SetGenHeader("Idempotency-Key", key)
	msg.SetGenHeader("X-Notification-Channel", n.Type)
	return msg, nil
}

// address returns data.email, or the user if that is an address, or the user at the domain.
func (s *mailSender) address(n notification) (string, error) {
	if to, ok := n.Data["email"].(string); ok && to != "" {
		return to, nil
	}
	switch {
	case n.UserID == "":
		return "", errors.New("no receiver: no data.email and no user_id")
	case strings.Contains(n.UserID, "@"):
		return n.UserID, nil
	}
	return n.UserID + "@" + s.domain, nil
}

// mailError classifies the error of a mail. A server that refuses, at any point, has not accepted
// the mail. Only a connection that breaks during the transfer of the mail leaves the result
// uncertain.
func mailError(err error) error {
	var failed *mail.SendError
	if !errors.As(err, &failed) {
		// No connection or no log-in: every mail needs them.
		return idem.Unavailable(idem.NotApplied(err))
	}
	switch code := failed.ErrorCode(); {
	case code >= 500:
		return idem.Permanent(err)
	case code >= 400:
		return idem.NotApplied(err)
	}
	if failed.Reason == mail.ErrSMTPDataClose || failed.Reason == mail.ErrWriteContent {
		return err
	}
	return idem.NotApplied(err)
}
