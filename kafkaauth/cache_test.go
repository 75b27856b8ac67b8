package kafkaauth

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errTest = errors.New("connection refused")

// server is a source with numbered tokens.
type server struct {
	life  time.Duration
	takes time.Duration
	fails error
	calls atomic.Int32
	busy  atomic.Int32
	most  atomic.Int32
}

func (s *server) token(ctx context.Context) (Token, error) {
	s.most.Store(max(s.most.Load(), s.busy.Add(1)))
	defer s.busy.Add(-1)
	n := s.calls.Add(1)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return Token{}, ctx.Err()
	}
	if s.fails != nil {
		return Token{}, s.fails
	}
	t := Token{Value: strconv.Itoa(int(n))}
	if s.life != 0 {
		t.Expires = time.Now().Add(s.life)
	}
	return t, nil
}

func value(t *testing.T, source TokenSource) string {
	t.Helper()
	token, err := source(t.Context())
	require.NoError(t, err)
	return token.Value
}

func TestCached_KeepsAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{life: 100 * time.Second}
		source := Cached(s.token)
		require.Equal(t, "1", value(t, source))
		time.Sleep(79 * time.Second)
		require.Equal(t, "1", value(t, source))
		time.Sleep(time.Second)
		require.Equal(t, "2", value(t, source), "after four fifths of its life")

		s.fails = errTest
		time.Sleep(94 * time.Second)
		require.Equal(t, "2", value(t, source), "an outage, and the old token is good")
		calls := s.calls.Load()
		time.Sleep(900 * time.Millisecond)
		require.Equal(t, "2", value(t, source))
		require.Equal(t, calls, s.calls.Load(), "a pause follows a failure")
		time.Sleep(100 * time.Millisecond)
		_, err := source(t.Context())
		require.ErrorIs(t, err, errTest, "no token is used in the last seconds of its life, and no pause outlives it")
		require.Equal(t, calls+1, s.calls.Load())
		_, err = source(t.Context())
		require.ErrorIs(t, err, errTest)
		require.Equal(t, calls+1, s.calls.Load(), "callers share a failure")
		s.fails = nil
		time.Sleep(time.Second)
		require.Equal(t, strconv.Itoa(int(calls+2)), value(t, source))
	})
}

func TestCached_PausesLongerWithAGoodToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{life: time.Hour}
		source := Cached(s.token)
		require.Equal(t, "1", value(t, source))
		s.takes = time.Hour // hangs
		time.Sleep(50 * time.Minute)
		began := time.Now()
		require.Equal(t, "1", value(t, source))
		require.Equal(t, 5*time.Second, time.Since(began), "the fetch is bounded")
		time.Sleep(9 * time.Second)
		require.Equal(t, "1", value(t, source))
		require.EqualValues(t, 2, s.calls.Load())
		time.Sleep(time.Second)
		require.Equal(t, "1", value(t, source))
		require.EqualValues(t, 3, s.calls.Load())
	})
}

func TestCached_UnknownEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := Cached((&server{}).token)
		require.Equal(t, "1", value(t, source))
		time.Sleep(4*time.Minute - time.Second)
		require.Equal(t, "1", value(t, source))
		time.Sleep(time.Second)
		require.Equal(t, "2", value(t, source))
	})
}

func TestCached_OneFetchAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{life: time.Hour, takes: 2 * time.Second}
		source := Cached(s.token)
		ask := func(n int, want string, took time.Duration) {
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					began := time.Now()
					token, err := source(t.Context())
					if err != nil || token.Value != want || time.Since(began) > took {
						t.Errorf("%q, %v after %s", token.Value, err, time.Since(began))
					}
				})
			}
			all.Wait()
		}
		ask(20, "1", 2*time.Second)
		require.EqualValues(t, 1, s.calls.Load())

		time.Sleep(50 * time.Minute) // time for the next token
		done := make(chan string, 1)
		go func() {
			token, err := source(t.Context())
			done <- token.Value
			if err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		ask(20, "2", 2*time.Second) // no caller gets a token that ends soon
		require.Equal(t, "2", <-done)
		require.EqualValues(t, 2, s.calls.Load())
		require.EqualValues(t, 1, s.most.Load())
	})
}

func TestCached_CallersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{life: time.Hour, takes: time.Hour} // hangs
		source := Cached(s.token)
		first := make(chan error, 1)
		go func() {
			_, err := source(t.Context())
			first <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := source(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began), "a waiting caller")
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(began))

		s.takes = 0
		time.Sleep(time.Second)
		s.takes = 3 * time.Second
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = source(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		began = time.Now()
		require.Equal(t, "2", value(t, source), "the fetch goes on without its caller")
		require.Equal(t, 2*time.Second, time.Since(began))

		time.Sleep(50 * time.Minute) // time for the next token
		s.takes = time.Hour
		go func() { _, err := source(t.Context()); first <- err }()
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		token, err := source(ctx)
		require.NoError(t, err)
		require.Equal(t, "2", token.Value, "the old token is good")
		require.NoError(t, <-first)
	})
}

func TestCached_RefusesBadTokens(t *testing.T) {
	for name, bad := range map[string]Token{
		"is empty":        {},
		"byte 0x01":       {Value: "a\x01auth=b"},
		"byte 0x20":       {Value: "a b"},
		"byte 0x0a":       {Value: "a\n"},
		"byte 0xc3":       {Value: "ä"},
		"expired already": {Value: "a", Expires: time.Now().Add(-time.Minute)},
	} {
		_, err := Cached(func(context.Context) (Token, error) { return bad, nil })(t.Context())
		require.ErrorContains(t, err, name)
	}
}

// The pause after a failure with a good token is longer than the rest of its life. It ends with the
// token.
func TestCached_PauseEndsWithTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{life: 20 * time.Second}
		source := Cached(s.token)
		require.Equal(t, "1", value(t, source))
		time.Sleep(17 * time.Second)
		s.fails = errTest
		require.Equal(t, "1", value(t, source), "good for another second")
		s.fails = nil
		time.Sleep(time.Second)
		require.Equal(t, "3", value(t, source))
	})
}

// While the source hangs, callers that give up early start no fetch each.
func TestCached_ImpatientCallersOfASourceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: time.Hour}
		source := Cached(s.token)
		began := time.Now()
		for time.Since(began) < 33*time.Second { // each fetch takes 10 s, and the pause 1 s
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := source(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(100 * time.Millisecond)
		}
		require.EqualValues(t, 3, s.calls.Load())
		require.EqualValues(t, 1, s.most.Load())
		time.Sleep(fetchTimeout)
	})
}

// A caller that gives up after the end of the old token gets no token.
func TestCached_NoTokenAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{life: 20 * time.Second} // a token is used for 18 s
		source := Cached(s.token)
		require.Equal(t, "1", value(t, source))
		s.takes = time.Hour
		time.Sleep(17 * time.Second)
		ask := func(limit time.Duration) (Token, error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return source(ctx)
		}
		token, err := ask(500 * time.Millisecond)
		require.NoError(t, err)
		require.Equal(t, "1", token.Value)
		_, err = ask(time.Second) // the end is in between
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = ask(time.Minute) // the fetch fails after the end
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 2, s.calls.Load())
		calls := s.calls.Load()
		_, err = ask(time.Minute)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, calls, s.calls.Load(), "the pause after a failure without a token")
	})
}

// A context that has ended begins no fetch.
func TestCached_ContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{life: 100 * time.Second}
		source := Cached(s.token)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := source(ended)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, s.calls.Load())
		require.Equal(t, "1", value(t, source))
		time.Sleep(85 * time.Second) // time for the next token
		token, err := source(ended)
		require.NoError(t, err)
		require.Equal(t, "1", token.Value)
		require.EqualValues(t, 1, s.calls.Load())
	})
}
