package safetext_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/safetext"
)

// lazy makes its text on each call of Error, as joined errors do.
type lazy struct{ err error }

func (e *lazy) Error() string { return "lazy: " + e.err.Error() }
func (e *lazy) Unwrap() error { return e.err }

// Joined errors may share causes, so that the text doubles with every level: Error must not be
// called.
func TestText_SharedCauses(t *testing.T) {
	_, leaf := strconv.Atoi(canary)
	for _, levels := range []int{3, 12, 60, 200, 5000} {
		err := leaf
		for range levels {
			err = &lazy{errors.Join(err, err)}
		}
		began := time.Now()
		text := safetext.Text(fmt.Errorf("%w", &lazy{leaf}))
		require.Equal(t, "lazy: strconv.Atoi: invalid syntax", text)
		text = safetext.Text(err)
		require.Less(t, time.Since(began), 5*time.Second)
		require.False(t, leaks(text))
		require.NotEmpty(t, text)
		require.LessOrEqual(t, len(text), 4<<10)
		require.NotEmpty(t, safetext.Strict(err))
	}
}

func TestText_WideAndLong(t *testing.T) {
	_, leaf := strconv.Atoi(canary)
	var many []error
	for i := range 10_000 {
		many = append(many, fmt.Errorf("part %d: %w", i, leaf))
	}
	text := safetext.Text(errors.Join(many...))
	require.True(t, strings.HasPrefix(text, "part 0: strconv.Atoi: invalid syntax\npart 1: "),
		text[:60])
	require.False(t, leaks(text))

	text = safetext.Text(fmt.Errorf("%s%w", strings.Repeat("é", 5<<20), leaf))
	require.LessOrEqual(t, len(text), 4<<10)
	require.True(t, utf8.ValidString(text))

	err := leaf
	for range 300 { // deeper than the bound: the errors below are unknown
		err = &lazy{err}
	}
	require.False(t, leaks(safetext.Text(err)), safetext.Text(err))

	// A cut may remove the end that identifies a password. The password then extends to the cut.
	text = safetext.Text(errors.New(strings.Repeat("x", 4080) + " password='" +
		strings.Repeat(canary, 100)))
	require.False(t, leaks(text))
}

type slices []error

func (s slices) Error() string   { return fmt.Sprintf("%d of %v", len(s), []error(s)) }
func (s slices) Unwrap() []error { return s }

type itself struct{}

func (*itself) Error() string   { return "around" }
func (e *itself) Unwrap() error { return e }

type broken struct{ text string }

func (e *broken) Error() string { return e.text }

type typedNil struct{ text string }

func (e *typedNil) Error() string    { return e.text }
func (e *typedNil) SQLState() string { return e.text }
func (e *typedNil) Unwrap() error    { return errors.New(e.text) }

// A broken error must not panic in Text.
func TestText_OddErrors(t *testing.T) {
	_, leaf := strconv.Atoi(canary)
	text := safetext.Text(slices{leaf, slices{leaf}}) // not comparable
	require.False(t, leaks(text), text)
	require.Contains(t, text, "2 of [")
	require.NotEmpty(t, safetext.Text(&itself{}))
	require.NotEmpty(t, safetext.Text((*broken)(nil)))
	require.NotEmpty(t, safetext.Text((*typedNil)(nil)))
	require.NotEmpty(t, safetext.Text(fmt.Errorf("x: %w", (*typedNil)(nil))))
	require.NotEmpty(t, safetext.Text(errors.Join(nil, (*typedNil)(nil), leaf)))
	require.True(t, utf8.ValidString(safetext.Text(errors.New("\xff\xfe"+canary[:3]))))
}

// A value that a decoder quotes is never part of the text, for all text around it.
func FuzzText(f *testing.F) {
	f.Add("order 12", "secret")
	f.Add(`"`, `\"`)
	f.Add("", "a\nb")
	f.Fuzz(func(t *testing.T, words, value string) {
		if len(value) < 6 ||
			strings.Contains("strconv.Atoi: invalid syntax value out of range "+words, value) {
			return
		}
		_, err := strconv.Atoi(value)
		if err == nil {
			return
		}
		if quoted := strings.Trim(strconv.Quote(value), `"`); strings.Contains(words, quoted) {
			return
		}
		text := safetext.Text(&lazy{fmt.Errorf("%s: %w", words, err)})
		// words that look like an error or an address
		if strings.Contains(words, "strconv") || strings.Contains(text, "xxxxx") {
			return
		}
		require.NotContains(t, text, value)
	})
}

func BenchmarkText(b *testing.B) {
	_, leaf := strconv.Atoi(canary)
	own := errors.New("card declined")
	for name, err := range map[string]error{"own": own,
		"wrapped": fmt.Errorf("order 12: %w", leaf)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				safetext.Text(err)
			}
		})
	}
}
