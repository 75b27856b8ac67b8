package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// mailbox is a mail server with answers chosen by the test.
type mailbox struct {
	mu    sync.Mutex
	mails []received
	mail  func() error // answers to MAIL, RCPT and the end of DATA
	rcpt  func() error
	data  func() error
	end   func() // called at QUIT
}

type received struct {
	from, to string
	msg      *mail.Message
	body     string
}

func (m *mailbox) list() []received {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]received(nil), m.mails...)
}

type session struct {
	box  *mailbox
	conn *smtp.Conn
	at   received
}

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

func (s *session) Reset()        { s.at = received{} }
func (s *session) Logout() error { return nil }
func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.at.from = from
	return call(s.box.mail)
}
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error { s.at.to = to; return call(s.box.rcpt) }

func (s *session) Data(r io.Reader) error {
	msg, err := mail.ReadMessage(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(msg.Body)
	if err != nil {
		return err
	}
	s.at.msg, s.at.body = msg, string(body)
	if err := call(s.box.data); err != nil {
		if errors.Is(err, net.ErrClosed) {
			_ = s.conn.Conn().Close()
		}
		return err
	}
	s.box.mu.Lock()
	s.box.mails = append(s.box.mails, s.at)
	s.box.mu.Unlock()
	if s.box.end != nil {
		s.box.end()
	}
	return nil
}

// serve starts the server and returns its URL.
func (m *mailbox) serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return &session{box: m, conn: c}, nil }))
	srv.ErrorLog = log.New(io.Discard, "", 0)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		require.NoError(t, <-done)
	})
	return "smtp://" + l.Addr().String()
}

func mailer(t *testing.T, url string) sender {
	t.Helper()
	s, err := newSender(url, nil)
	require.NoError(t, err)
	return s
}

// The Message-ID derives from the key, so that a repeat is recognized (rule 38).
func TestMailSays(t *testing.T) {
	box := &mailbox{}
	s := mailer(t, box.serve(t)+"?domain=shop.example&from=hello@shop.example")
	n := sample
	require.NoError(t, s.Send(t.Context(), n, "key-1"))
	n.Data = map[string]any{"email": "ada@home.example", "name": "Ada\r\nBcc: everyone@shop.example"}
	require.NoError(t, s.Send(t.Context(), n, "key-2"))
	n.Type, n.UserID, n.Data = "sms", "grace@home.example", nil
	require.NoError(t, s.Send(t.Context(), n, "key-3"))

	mails := box.list()
	require.Len(t, mails, 3)
	first := mails[0].msg.Header
	require.Equal(t, "<key-1@shop.example>", first.Get("Message-Id"))
	require.Equal(t, "key-1", first.Get("Idempotency-Key"))
	require.Equal(t, "Welcome, Ada", first.Get("Subject"))
	require.Equal(t, "email", first.Get("X-Notification-Channel"))
	require.Contains(t, mails[0].body, "Your account is ready.")
	require.Equal(t, "hello@shop.example", mails[0].from)
	require.Equal(t, "u1@shop.example", mails[0].to)
	require.Equal(t, "ada@home.example", mails[1].to)
	require.Empty(t, mails[1].msg.Header.Get("Bcc"), "what comes with the data is no header")
	require.Equal(t, "grace@home.example", mails[2].to)
	require.Equal(t, "sms", mails[2].msg.Header.Get("X-Notification-Channel"))
}

func refuse(code int) func() error {
	return func() error { return &smtp.SMTPError{Code: code, Message: "no"} }
}

func TestMailAnswers(t *testing.T) {
	// At most once: only failures without any effect are retried (rule 5).
	atMostOnce := idem.WhenUncertain(idem.DeadLetterUncertain)
	for name, c := range map[string]struct {
		box  *mailbox
		want settled
	}{
		"taken":                {&mailbox{}, settled{1, ""}},
		"no such user":         {&mailbox{rcpt: refuse(550)}, settled{1, idem.ClassPermanent}},
		"sender refused":       {&mailbox{mail: refuse(553)}, settled{1, idem.ClassPermanent}},
		"content refused":      {&mailbox{data: refuse(554)}, settled{1, idem.ClassPermanent}},
		"greylisted":           {&mailbox{rcpt: refuse(450)}, settled{3, idem.ClassFailed}},
		"busy at the end":      {&mailbox{data: refuse(451)}, settled{3, idem.ClassFailed}},
		"broken while sending": {&mailbox{data: func() error { return net.ErrClosed }}, settled{1, idem.ClassFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, settle(t, mailer(t, c.box.serve(t)), atMostOnce))
		})
	}
	t.Run("refused connection", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		requireAway(t, mailer(t, "smtp://"+l.Addr().String()))
	})
	t.Run("unknown template", func(t *testing.T) {
		box := &mailbox{}
		s := mailer(t, box.serve(t))
		wrong := senderFunc(func(ctx context.Context, n notification, key string) error {
			n.Template = "birthday"
			return s.Send(ctx, n, key)
		})
		require.Equal(t, settled{1, idem.ClassPermanent}, settle(t, wrong))
		require.Empty(t, box.list())
	})
}

type senderFunc func(context.Context, notification, string) error

func (f senderFunc) Send(ctx context.Context, n notification, key string) error {
	return f(ctx, n, key)
}

// A mail that the server has accepted counts as sent, even if the connection breaks afterwards. To
// send it again would be a needless repeat.
func TestMailIsSentOnceTheServerHasIt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	done := make(chan string, 1)
	go func() { done <- rudeServer(l) }()
	require.NoError(t, mailer(t, "smtp://"+l.Addr().String()).Send(t.Context(), sample, "k"))
	require.Contains(t, <-done, "Message-ID: <k@notifier.example>")
}

// rudeServer accepts one mail and disconnects without waiting for QUIT.
func rudeServer(l net.Listener) (data string) {
	conn, err := l.Accept()
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	say := func(s string) { _, _ = io.WriteString(conn, s+"\r\n") }
	say("220 rude")
	buf := make([]byte, 4096)
	for inData := false; ; {
		n, err := conn.Read(buf)
		if err != nil {
			return data
		}
		in := string(buf[:n])
		switch {
		case inData:
			data += in
			if strings.HasSuffix(data, "\r\n.\r\n") {
				say("250 taken")
				return data
			}
		case strings.HasPrefix(in, "DATA"):
			inData = true
			say("354 go")
		default:
			say("250 ok")
		}
	}
}

func TestMailEndsWithItsContext(t *testing.T) {
	box := &mailbox{}
	reached, hold := make(chan struct{}), make(chan struct{})
	box.data = func() error {
		close(reached)
		<-hold
		return net.ErrClosed
	}
	s := mailer(t, box.serve(t))
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() { sent <- s.Send(ctx, sample, "k") }()
	<-reached
	cancel()
	select {
	case err := <-sent:
		require.Error(t, err)
	case <-time.After(5 * time.Second):
		t.Fatal("the mail sender ignores its context")
	}
	close(hold)
}

func TestMailOptions(t *testing.T) {
	for url, ok := range map[string]bool{
		"smtp://mail.example":                                   true,
		"smtps://user:secret@mail.example":                      true,
		"smtp://user:secret@mail.example:587?tls=opportunistic": true,
		"smtp://mail.example?tls=none":                          true,
		"smtp://mail.example?from=not an address":               false,
	} {
		_, err := newSender(url, nil)
		require.Equal(t, ok, err == nil, "%s: %v", url, err)
	}
	policy, err := tlsPolicy("", true)
	require.NoError(t, err)
	require.Equal(t, "TLSMandatory", policy.String(), "a password is not sent in the clear (G-07)")
}
