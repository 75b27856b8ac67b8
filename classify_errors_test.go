package idem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/classify"
	"github.com/idem-go/idem/deadletter"
)

// badData is an error of a driver with a SQLSTATE.
type badData struct{}

func (badData) Error() string    { return "bad data" }
func (badData) SQLState() string { return "22003" }

// byText marks the errors with the word "never".
func byText(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "never"):
		return idem.Permanent(err)
	case strings.Contains(text, "panic"):
		panic(text)
	case strings.Contains(text, "nil"):
		return nil
	}
	return err
}

func TestClassifyErrors_EachShape(t *testing.T) {
	inShapes(t, func(t *testing.T, b *bench, shape string) {
		shapes[shape](b, func(context.Context) error { return fmt.Errorf("insert: %w", badData{}) },
			idem.ClassifyErrors(classify.SQL))
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run"))
		require.Equal(t, "permanent", headerOf(b.sent.deadLetters()[0], deadletter.HeaderErrorClass))
	})
}

func TestClassifyErrors(t *testing.T) {
	never := errors.New("never")
	for name, c := range map[string]struct {
		router, handler []idem.Option
		err             error
		runs            int
		class           string
	}{
		"of the router":                {router: []idem.Option{idem.ClassifyErrors(byText)}, err: never, runs: 1, class: "permanent"},
		"the handler's wins":           {[]idem.Option{idem.ClassifyErrors(byText)}, []idem.Option{idem.ClassifyErrors(classify.HTTP)}, never, 2, "failed"},
		"removed":                      {[]idem.Option{idem.ClassifyErrors(byText)}, []idem.Option{idem.ClassifyErrors(nil)}, never, 2, "failed"},
		"another error":                {router: []idem.Option{idem.ClassifyErrors(byText)}, err: errBoom, runs: 2, class: "failed"},
		"a panic of the function":      {router: []idem.Option{idem.ClassifyErrors(byText)}, err: errors.New("panic"), runs: 2, class: "failed"},
		"nil of the function":          {router: []idem.Option{idem.ClassifyErrors(byText)}, err: errors.New("nil"), runs: 2, class: "failed"},
		"a mark of the handler wins":   {router: []idem.Option{idem.ClassifyErrors(byText)}, err: idem.NotApplied(never), runs: 2, class: "failed"},
		"no function: the error as is": {err: never, runs: 2, class: "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.router = idem.NewRouter(append(c.router, idem.Retry(idem.RetryPolicy{MaxAttempts: 2}))...)
				shapes["On"](b, func(context.Context) error { return c.err }, c.handler...)
				require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
				require.Equal(t, c.runs, b.count("run"))
				require.Equal(t, c.class, headerOf(b.sent.deadLetters()[0], deadletter.HeaderErrorClass))
				require.Contains(t, headerOf(b.sent.deadLetters()[0], deadletter.HeaderError), c.err.Error())
			})
		})
	}
}

// Of a batch, each named error is marked, and the others have succeeded.
func TestClassifyErrors_NamedErrors(t *testing.T) {
	for name, wrap := range map[string]func(error) error{
		"as it is": func(err error) error { return err },
		"wrapped":  func(err error) error { return fmt.Errorf("bulk: %w", err) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.onBatch(func(_ context.Context, e []idem.Event[payload]) error {
					if len(e) < 3 {
						return nil
					}
					return wrap(idem.BatchError{0: errors.New("never"), 1: errBoom})
				}, idem.ClassifyErrors(byText))
				_, err := b.start().HandleBatch(t.Context(), series(3))
				require.NoError(t, err)
				require.Len(t, b.sent.deadLetters(), 1)
				require.Zero(t, b.count("batch [e000]"), "permanent: no second run")
				require.Equal(t, 1, b.count("batch [e001]"))
				require.Zero(t, b.count("batch [e002]"))
			})
		})
	}
}

// The errors of middleware are marked too, and a panic keeps its meaning.
func TestClassifyErrors_Middleware(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.router.Use(instead(func(context.Context, *idem.Call, idem.HandlerFunc) error { return errors.New("never") }))
		b.on(succeed, idem.ClassifyErrors(byText))
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, "permanent", headerOf(b.sent.deadLetters()[0], deadletter.HeaderErrorClass))
	})
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(context.Context, idem.Event[payload]) error { panic("never") },
			idem.ClassifyErrors(byText), idem.Retry(idem.RetryPolicy{MaxAttempts: 1}))
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, "panic", headerOf(b.sent.deadLetters()[0], deadletter.HeaderErrorClass))
	})
}
