package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

const secretText = "CANARY7f3a"

func quoting() error {
	_, err := strconv.Atoi(secretText)
	return fmt.Errorf("charge declined: %w", err)
}

func (b *bench) reason(t *testing.T, id string) string {
	t.Helper()
	records, err := b.store.Inspect(t.Context(), dedup.Key{Scope: "g", Type: "paid", ID: id})
	require.NoError(t, err)
	require.NotEmpty(t, records)
	return records[0].Reason
}

// G-04: data that a decoder quotes in a handler's error is not in the log, the dead letter or the
// store. The words of the handler are.
func TestErrorText_DeadLetterLogStore_G04(t *testing.T) {
	var seen error
	b := newBench(t)
	b.cfg.Observers = []observe.Observer{handled(func(e observe.HandledEvent) { seen = e.Err })}
	b.on(failing(3, quoting()), idem.Retry(idem.RetryPolicy{MaxAttempts: 2, MinBackoff: 1, MaxBackoff: 1}))
	p := b.start()
	require.NoError(t, p.Handle(t.Context(), message("e1", 1)))
	require.NoError(t, p.Close())

	const want = "charge declined: strconv.Atoi: invalid syntax"
	require.Equal(t, want, headerOf(b.sent.deadLetters()[0], deadletter.HeaderError))
	require.Equal(t, "failed: "+want, b.reason(t, "e1"))
	require.Equal(t, 2, strings.Count(b.log.String(), want), b.log)
	require.NotContains(t, b.log.String(), secretText)
	require.ErrorContains(t, seen, secretText, "observers get the error as it is")
}

type handled func(observe.HandledEvent)

func (h handled) ObserveHandled(_ context.Context, e observe.HandledEvent) { h(e) }

// Config.ErrorText makes the text, of at most 1 KiB. A panic there does no harm.
func TestConfigErrorText(t *testing.T) {
	for name, c := range map[string]struct {
		text func(error) string
		want string
	}{
		"own":    {func(err error) string { return "<" + err.Error() + ">" }, "<permanent: boom>"},
		"long":   {func(error) string { return strings.Repeat("é", 1000) }, strings.Repeat("é", 511)},
		"panics": {func(error) string { panic("no") }, "*mark.Error, for which Config.ErrorText panicked"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.cfg.ErrorText = c.text
			b.on(failing(1, idem.Permanent(errors.New("boom"))))
			p := b.start()
			require.NoError(t, p.Handle(t.Context(), message("e1", 1)))
			require.NoError(t, p.Close())
			require.Equal(t, c.want, headerOf(b.sent.deadLetters()[0], deadletter.HeaderError))
			require.True(t, strings.HasPrefix("permanent: "+c.want, b.reason(t, "e1")))
			require.Contains(t, b.log.String(), c.want)
		})
	}
}

// A permanent error says that it is one, and so does the class before it in a reason: once is
// enough.
func TestReason_NamesItsClassOnce(t *testing.T) {
	b := newBench(t)
	b.on(failing(1, idem.Permanent(errors.New("boom"))))
	p := b.start()
	require.NoError(t, p.Handle(t.Context(), message("e1", 1)))
	require.NoError(t, p.Close())
	require.Equal(t, "permanent: boom", b.reason(t, "e1"))
}

// G-04: the text for an undecodable value names the mistake. For an unknown decoder it has only the
// type of the error.
func TestDecodeError_G04(t *testing.T) {
	b := newBench(t)
	b.on(succeed, idem.ID(idem.FromKey()), idem.Type(idem.Fixed("paid")))
	p := b.start()
	for i, value := range []string{`{"amount":"` + secretText + `"}`, secretText, `{"amount":777777777777777777777}`} {
		m := message("e", int64(i))
		m.Key, m.Value = fmt.Appendf(nil, "e%d", i), []byte(value)
		require.NoError(t, p.Handle(t.Context(), m))
	}
	require.NoError(t, p.Close())
	require.Equal(t, "decode into idem_test.payload: json: cannot unmarshal string at byte 22 into Go struct field payload.amount of type int",
		headerOf(b.sent.deadLetters()[0], deadletter.HeaderError))
	for _, l := range b.sent.deadLetters() {
		require.Equal(t, string(idem.ClassUndecodable), headerOf(l, deadletter.HeaderErrorClass))
		require.NotContains(t, headerOf(l, deadletter.HeaderError), secretText)
		require.NotContains(t, headerOf(l, deadletter.HeaderError), "7777")
	}
	require.NotContains(t, b.log.String(), secretText)

	inner := errors.New("no such currency: " + secretText)
	err := error(&idem.DecodeError{Into: "order", Err: fmt.Errorf("line 1: %w", inner)})
	require.Equal(t, "decode into order: *fmt.wrapError", idem.ErrorText(err))
	require.Equal(t, idem.ErrorText(err), err.Error())
	require.ErrorIs(t, err, inner, "all of it for who asks")
}

// A panic with the event itself must not be the way into the log (G-04).
func TestPanicError_ShowsNoData_G04(t *testing.T) {
	for want, value := range map[string]any{
		"handler panicked with a idem_test.payload":                       payload{EventID: secretText},
		"handler panicked with a json.RawMessage":                         json.RawMessage(secretText),
		"handler panicked: no order 7":                                    "no order 7",
		"handler panicked: charge declined: strconv.Atoi: invalid syntax": quoting(),
		"handler called runtime.Goexit or panicked with nil":              nil,
	} {
		require.Equal(t, want, idem.ErrorText(&idem.PanicError{Value: value, Stack: []byte(secretText)}))
	}
}

func TestErrorText_Bounds(t *testing.T) {
	require.Empty(t, idem.ErrorText(nil))
	text := idem.ErrorText(errors.New(strings.Repeat("é", 10_000)))
	require.LessOrEqual(t, len(text), 1<<10)
	require.True(t, utf8.ValidString(text))
}

// Messages and events show their place, not their content (G-04).
func TestLogValue_G04(t *testing.T) {
	m := message("e1", 7)
	m.Value, m.Key, m.Headers = []byte(secretText), []byte(secretText), []idem.Header{{Key: secretText, Value: []byte(secretText)}}
	var log strings.Builder
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("x", "message", m, "none", (*idem.Message)(nil), "event", idem.Event[payload]{ID: "e1", Data: payload{EventID: secretText}, Message: m})
	}
	require.NotContains(t, log.String(), secretText)
	require.Contains(t, log.String(), "offset=7")
}
