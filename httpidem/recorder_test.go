package httpidem

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
)

func ask(t *testing.T, s *httptest.Server) *seen {
	t.Helper()
	return (&differential{}).ask(t, s, "/k", &program{})
}

func neverEarly(*answer) error { panic("left early") }

func record(
	w http.ResponseWriter, buffer int, streamOnFlush bool, early func(*answer) error,
) *recorder {
	return newRecorder(w, httptest.NewRequest(http.MethodPost, "/", nil), buffer, streamOnFlush,
		early)
}

func TestRecorder_HoldsBack_H23(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("X-Front", "1")
	rec := record(w, 100, false, neverEarly)
	require.Equal(t, "1", rec.Header().Get("X-Front"))
	rec.Header().Del("X-Front")
	rec.Header().Set("Etag", "1")
	rec.WriteHeader(http.StatusAccepted)
	rec.WriteHeader(http.StatusTeapot)
	rec.Header().Set("Etag", "2")
	_, err := rec.WriteString("hello")
	require.NoError(t, err)
	rec.Flush()
	require.False(t, w.Flushed)
	require.Equal(t, http.Header{"X-Front": {"1"}}, w.Header(), "another answer may take its place")
	a, streamed := rec.finish()
	require.False(t, streamed)
	require.Equal(t, "hello", string(a.body))
	require.Equal(t, http.Header{"Etag": {"1"}, "Content-Type": {"text/plain; charset=utf-8"}},
		a.header)
	require.Equal(t, http.StatusAccepted, a.status)
	require.Equal(t, http.StatusAccepted, rec.status())
	require.Empty(t, w.Body.String())
	rec.send()
	require.Equal(t, http.StatusAccepted, w.Code)
	require.Equal(t, "hello", w.Body.String())
	require.Equal(t, "1", w.Result().Header.Get("Etag"))
	require.Empty(t, w.Result().Header.Get("X-Front"))
}

// H-16: 1xx are sent at once with the headers of that moment, and are no part of the stored answer
// or of another one.
func TestRecorder_Informational_H16(t *testing.T) {
	w := &informed{ResponseWriter: httptest.NewRecorder()}
	rec := record(w, 100, false, neverEarly)
	rec.Header().Set("Link", "</a.css>; rel=preload")
	rec.WriteHeader(http.StatusEarlyHints)
	require.Equal(t, []int{http.StatusEarlyHints}, w.codes)
	require.Equal(t, "</a.css>; rel=preload", w.last.Get("Link"))
	require.Empty(t, w.Header())
	a, _ := rec.finish()
	require.Equal(t, http.StatusOK, a.status)
}

type informed struct {
	http.ResponseWriter
	codes []int
	last  http.Header
}

func (w *informed) WriteHeader(code int) {
	w.codes, w.last = append(w.codes, code), w.Header().Clone()
}

func TestRecorder_RefusesStatuses_H16(t *testing.T) {
	for _, code := range []int{-1, 0, 99, 101, 1000} {
		require.Panics(t, func() {
			record(httptest.NewRecorder(), 0, false, neverEarly).WriteHeader(code)
		}, "%d", code)
	}
}

// H-14.
func TestRecorder_Hijack_H14(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := newRecorder(w, r, 100, false, neverEarly)
		_, _, err := http.NewResponseController(rec).Hijack()
		if !errors.Is(err, http.ErrNotSupported) {
			w.WriteHeader(http.StatusTeapot)
		}
		if err := rec.Push("/", nil); !errors.Is(err, http.ErrNotSupported) {
			w.WriteHeader(http.StatusTeapot)
		}
		rec.finish()
		rec.send()
	}))
	defer s.Close()
	require.Equal(t, http.StatusOK, ask(t, s).status)
}

// H-05, H-09: a goroutine that outlives its handler cannot change the answer, nor the next one on
// the same connection.
func TestRecorder_LeftBehind_H05_H09(t *testing.T) {
	for _, stream := range []bool{false, true} {
		w := httptest.NewRecorder()
		rec := record(w, 1<<20, stream, func(*answer) error { return nil })
		var late sync.WaitGroup
		for range 4 {
			late.Go(func() {
				for { // until the handler has returned
					if _, err := rec.WriteString("x"); err != nil {
						return
					}
					rec.WriteHeader(http.StatusTeapot)
					rec.Flush()
				}
			})
		}
		a, streamed := rec.finish()
		rec.send()
		sent := w.Body.Len()
		late.Wait()
		require.Equal(t, stream && streamed, streamed)
		require.Equal(t, sent, w.Body.Len())
		if !streamed {
			require.Len(t, a.body, sent)
		}
		rec.Header().Set("X-Late", "1")
		rec.WriteHeader(http.StatusTeapot)
		require.NotContains(t, w.Header(), "X-Late")
		_, err := rec.WriteString("late")
		require.ErrorIs(t, err, errEnded)
		_, err = rec.ReadFrom(strings.NewReader("late"))
		require.ErrorIs(t, err, errEnded)
		require.ErrorIs(t, rec.FlushError(), errEnded)
		require.ErrorIs(t, rec.Push("/", nil), http.ErrNotSupported)
		b, again := rec.finish()
		require.Same(t, a, b)
		require.Equal(t, streamed, again)
	}
}

// H-06: an answer that is too large for the buffer is recorded as not replayable, and then sent
// whole.
func TestRecorder_Overflow_H06(t *testing.T) {
	w := httptest.NewRecorder()
	var early []*answer
	rec := record(w, 10, false, func(a *answer) error {
		require.Empty(t, w.Body.String())
		early = append(early, a)
		return nil
	})
	rec.Header().Set("Etag", "1")
	rec.Header().Set("Trailer", "X-Sum")
	rec.WriteHeader(http.StatusCreated)
	for range 10 {
		n, err := rec.WriteString("12345")
		require.NoError(t, err)
		require.Equal(t, 5, n)
	}
	rec.Flush()
	require.True(t, w.Flushed, "nothing is held back any more")
	rec.Header().Set("X-Sum", "1")
	a, streamed := rec.finish()
	require.True(t, streamed)
	require.True(t, a.omitted)
	require.Empty(t, a.body)
	rec.send()
	require.Equal(t, strings.Repeat("12345", 10), w.Body.String())
	require.Equal(t, http.StatusCreated, w.Code)
	require.Equal(t, "1", w.Result().Trailer.Get("X-Sum"))
	require.Len(t, early, 1)
	require.True(t, early[0].omitted)
	require.Equal(t, http.StatusCreated, early[0].status)
	require.Equal(t, "1", early[0].header.Get("Etag"))
}

// If early fails, no byte is sent, and the client does not mistake a part of an answer for all of
// it.
func TestRecorder_OverflowRefused_H06(t *testing.T) {
	full := errors.New("full")
	for name, do := range map[string]func(rec *recorder) error{
		"Write": func(rec *recorder) error {
			_, err := rec.Write(make([]byte, 20))
			return err
		},
		"WriteString": func(rec *recorder) error {
			_, err := rec.WriteString("12345678901")
			return err
		},
		"ReadFrom": func(rec *recorder) error {
			_, err := rec.ReadFrom(&readerOnly{make([]byte, 20)})
			return err
		},
		"Flush": func(rec *recorder) error { rec.streamOnFlush = true; return rec.FlushError() },
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			calls := 0
			rec := record(w, 10, false, func(*answer) error { calls++; return full })
			_, err := rec.WriteString("123")
			require.NoError(t, err)
			for range 3 {
				require.ErrorIs(t, do(rec), full)
			}
			require.Equal(t, 1, calls)
			a, streamed := rec.finish()
			require.False(t, streamed)
			require.True(t, a.omitted)
			require.PanicsWithValue(t, http.ErrAbortHandler, rec.send)
			require.Empty(t, w.Body.String())
			require.False(t, w.Flushed)
		})
	}
}

// H-14: with StreamOnFlush the first byte arrives before the handler has ended.
func TestRecorder_StreamOnFlush_H14(t *testing.T) {
	seen := make(chan struct{})
	stored := make(chan *answer, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := newRecorder(w, r, 1<<20, true, func(a *answer) error { stored <- a; return nil })
		rec.Header().Set("Content-Type", "text/event-stream")
		_, _ = rec.WriteString("data: 1\n\n")
		if err := http.NewResponseController(rec).Flush(); err != nil {
			panic(err)
		}
		select {
		case <-seen:
		case <-r.Context().Done():
		}
		_, _ = rec.WriteString("data: 2\n\n")
		rec.finish()
		rec.send()
	}))
	defer s.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	first := make([]byte, len("data: 1\n\n"))
	_, err = io.ReadFull(resp.Body, first)
	require.NoError(t, err)
	require.True(t, (<-stored).omitted, "stored before the first byte")
	close(seen)
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "data: 1\n\ndata: 2\n\n", string(first)+string(rest))
}

// If a handler has not written, middleware in front may set headers until the handler returns.
func TestRecorder_NothingWritten_H16(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := newRecorder(w, r, 100, false, neverEarly)
		rec.Header().Set("Etag", "1")
		a, _ := rec.finish()
		rec.send()
		w.Header().Set("X-After", a.header.Get("Etag"))
	}))
	defer s.Close()
	got := ask(t, s)
	require.Equal(t, "1", got.header.Get("X-After"))
	require.Equal(t, "1", got.header.Get("Etag"))
	require.EqualValues(t, 0, got.length)
}

func passing(tb testing.TB) (http.Handler, *http.Request) {
	m, err := New(Config{
		Store: memstore.New(), Scope: "test", Public: true, AnyPayload: true, Optional: true,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(tb, err)
	tb.Cleanup(m.Close)
	r := httptest.NewRequest(http.MethodPost, "/", nil).WithContext(context.Background())
	return m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), r
}

// A request without a key allocates no memory if the key is optional.
func TestHandler_WithoutAKeyAllocatesNothing(t *testing.T) {
	h, r := passing(t)
	w := httptest.NewRecorder()
	require.Zero(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }))
}

func BenchmarkHandler_WithoutAKey(b *testing.B) {
	h, r := passing(b)
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

// BenchmarkRecorder measures holding an answer back, without the store.
func BenchmarkRecorder(b *testing.B) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	body := make([]byte, 1<<10)
	b.ReportAllocs()
	for b.Loop() {
		rec := newRecorder(httptest.NewRecorder(), r, DefaultMaxBuffer, false, neverEarly)
		rec.Header().Set("Content-Type", "application/json")
		_, _ = rec.Write(body)
		a, _ := rec.finish()
		a.result(keepAll, DefaultMaxResponse)
		rec.send()
	}
}

// A write beyond the announced length fails as a whole, and so do all later ones, as in net/http. A
// body fails too if the status allows no body.
func TestRecorder_RefusesBodies_H16(t *testing.T) {
	rec := record(httptest.NewRecorder(), 100, false, neverEarly)
	rec.Header().Set("Content-Length", "5")
	_, err := rec.WriteString("123")
	require.NoError(t, err)
	for range 2 {
		n, err := rec.WriteString("456")
		require.ErrorIs(t, err, http.ErrContentLength)
		require.Zero(t, n)
	}
	a, _ := rec.finish()
	require.True(t, a.omitted, "the client waits for more than there is")
	require.Equal(t, "123", string(rec.body))

	for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
		rec := record(httptest.NewRecorder(), 100, false, neverEarly)
		rec.WriteHeader(status)
		_, err := rec.WriteString("x")
		require.ErrorIs(t, err, http.ErrBodyNotAllowed)
		a, _ := rec.finish()
		require.Empty(t, a.body)
	}
}
