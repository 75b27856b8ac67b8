package runner

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClass is the table of all decisions about a class (K-11, K-21, K-25).
func TestClass(t *testing.T) {
	err := errors.New("of the client")
	for class, want := range map[Class]struct {
		ends                 bool
		as                   error
		denied, lost, commit bool
	}{
		Transient:      {},
		UnknownMember:  {lost: true, commit: true},
		OldGeneration:  {lost: true},
		FencedInstance: {ends: true, as: ErrFenced, lost: true, commit: true},
		DeniedTopic:    {ends: true, as: ErrUnauthorized, denied: true, commit: true},
		DeniedGroup:    {ends: true, as: ErrUnauthorized, denied: true, commit: true},
		DeniedCluster:  {ends: true, as: ErrUnauthorized},
		BadLogin:       {ends: true, as: ErrUnauthorized},
		StaleLogin:     {ends: true, as: ErrUnauthorized},
		Invalid:        {ends: true, as: err},
		UnknownGroup:   {},
	} {
		end := fatal(err, class)
		if want.ends {
			require.ErrorIs(t, end, err)
			require.ErrorIs(t, end, want.as)
		} else {
			require.NoError(t, end)
		}
		require.Equal(t, want.denied, denied(err, class), class)
		require.Equal(t, want.lost, class.Lost(), class)
		require.Equal(t, want.commit, class.FinalCommit(), class)
	}
	require.NoError(t, fatal(nil, BadLogin))
	for _, own := range []error{&GapError{}, &OffsetsLostError{}, ErrUnauthorized} {
		require.ErrorIs(t, fatal(fmt.Errorf("x: %w", own), Transient), own)
	}
	require.True(t, denied(ErrUnauthorized, Transient))
}

// TestRetrier_Fatal: missing rights end a start. Rights that are withdrawn later are waited for.
func TestRetrier_Fatal(t *testing.T) {
	class := DeniedTopic
	r := NewRetrier(good(), "client", func(error) Class { return class },
		func(err error) error { return fmt.Errorf("explained: %w", err) })
	err := errors.New("of the client")
	require.ErrorContains(t, r.Fatal(err), "explained")
	r.Serving()
	require.NoError(t, r.Fatal(err))
	require.NoError(t, r.Fatal(fmt.Errorf("x: %w", ErrUnauthorized)))
	class = StaleLogin
	require.NoError(t, r.Fatal(err), "the next credentials may be known")
	for _, class = range []Class{BadLogin, DeniedCluster, FencedInstance, Invalid} {
		require.ErrorContains(t, r.Fatal(err), "explained", class)
	}
	class = BadLogin
	require.Error(t, r.Fatal(fmt.Errorf("%w: %w", ErrUnauthorized, err)), "no person can grant it meanwhile")
	require.NoError(t, r.Fatal(nil))
}

// TestTrouble_G04: one line when consuming begins to fail, one in each minute of failures, one when
// it works again, and each detail once a minute. The texts quote no data.
func TestTrouble_G04(t *testing.T) {
	_, quoting := strconv.Atoi("canary")
	setup := func(t *testing.T) (*Retrier, *strings.Builder) {
		var lines strings.Builder
		cfg := good()
		cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		cfg.ErrorText = func(error) string { return "hidden" }
		t.Cleanup(func() { require.NotContains(t, lines.String(), "canary") })
		return NewRetrier(cfg, "client", func(error) Class { return Transient }, func(err error) error { return err }), &lines
	}
	t.Run("lasts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, lines := setup(t)
			var back Backoff
			// A pause is at most 10 s, so that the fifth repetition comes within 350 s, the sixth
			// after 360 s.
			for began := time.Now(); time.Since(began) < 355*time.Second; {
				said := lines.String()
				require.NoError(t, r.Wait(t.Context(), &back, quoting))
				if time.Since(began) < time.Minute && said != "" {
					require.Equal(t, said, lines.String(), "no repetition within the first minute")
				}
			}
			require.Equal(t, 1, strings.Count(lines.String(), `msg="cannot consume, will go on trying" error=hidden`), lines)
			require.Equal(t, 5, strings.Count(lines.String(), `msg="still cannot consume, will go on trying" for=`), lines)
			require.Equal(t, 6, strings.Count(lines.String(), "\n"), lines)
			require.Contains(t, lines.String(), " for=1m", lines)
			r.Serving()
			r.Serving()
			require.Equal(t, 1, strings.Count(lines.String(), `msg="consuming again" after=`), lines)
			r.Begin(quoting)
			r.Begin(quoting)
			require.Equal(t, 2, strings.Count(lines.String(), `msg="cannot consume`), "another outage")
			require.Equal(t, 8, strings.Count(lines.String(), "\n"), lines)
		})
	})
	t.Run("ends unseen", func(t *testing.T) { // franz-go connects again, and no record comes
		synctest.Test(t, func(t *testing.T) {
			r, lines := setup(t)
			r.Begin(quoting)
			time.Sleep(time.Hour)
			r.Begin(quoting)
			require.Equal(t, 2, strings.Count(lines.String(), `msg="cannot consume`), lines)
			require.NotContains(t, lines.String(), "still")
		})
	})
	t.Run("details", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, lines := setup(t)
			for range 10 {
				r.Detail(quoting, "topic", "orders")
				time.Sleep(10 * time.Second)
			}
			require.Equal(t, 2, strings.Count(lines.String(), `msg=client error=hidden topic=orders`), lines)
		})
	})
}
