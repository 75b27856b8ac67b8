package httpidem

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

func keepAll(string) bool { return true }

func keepDefault(name string) bool { return replayed(nil)[name] }

func roundTrip(t *testing.T, a *answer, keep func(string) bool, max int) *answer {
	t.Helper()
	r := a.result(keep, max)
	require.False(t, r.IsZero())
	got, err := readAnswer(r)
	require.NoError(t, err)
	return got
}

func TestAnswer_RoundTrip_H06(t *testing.T) {
	a := &answer{
		status: 201,
		header: http.Header{"Content-Type": nil, "Etag": {}, "Link": {"a", "", "\xff\r\n"},
			"location": {"/1"}},
		trailer: http.Header{"Etag": {"1"}},
		body:    []byte{0, 1, 2, 0xff},
	}
	require.Equal(t, a, roundTrip(t, a, keepAll, 4))
	empty := roundTrip(t, &answer{status: 204}, keepAll, 0)
	require.Equal(t, 204, empty.status)
	require.Empty(t, empty.body)
	require.False(t, empty.omitted)
}

// H-06: of an answer that is too large, the store keeps that it was given.
func TestAnswer_TooLarge_H06(t *testing.T) {
	a := &answer{
		status: 201, header: http.Header{"Location": {"/1"}}, trailer: http.Header{"Etag": {"1"}},
		body: make([]byte, 5),
	}
	got := roundTrip(t, a, keepAll, 4)
	require.Equal(t, &answer{
		status: 201, header: a.header, trailer: http.Header{}, body: []byte{}, omitted: true,
	}, got)
	require.Len(t, a.body, 5, "the first answer is whole")

	a.header["Link"] = []string{strings.Repeat("l", maxHead)}
	got = roundTrip(t, a, keepAll, 10)
	require.Equal(t, &answer{
		status: 201, header: http.Header{}, trailer: http.Header{}, body: []byte{}, omitted: true,
	}, got)

	for links := range 70 { // the bounds hold for any number of links
		a := &answer{
			status: 200, body: make([]byte, 1000),
			header: http.Header{"Link": {strings.Repeat("l", links*300)}},
		}
		require.LessOrEqual(t, len(a.result(keepAll, 1000).Data), maxHead+1000)
	}
}

// An unknown schema is an error, never a reason to run again.
func TestReadAnswer_Refuses(t *testing.T) {
	good := (&answer{status: 200, header: http.Header{"Etag": {"1"}}}).result(keepAll, 0)
	_, err := readAnswer(good)
	require.NoError(t, err)
	for name, r := range map[string]dedup.Result{
		"nothing":          {},
		"another schema":   {Schema: answerSchema + 1, Data: good.Data},
		"cut":              {Schema: answerSchema, Data: good.Data[:4]},
		"status 101":       {Schema: answerSchema, Data: []byte{101, 0, 0, 0}},
		"status 1000":      {Schema: answerSchema, Data: []byte{0xe8, 7, 0, 0, 0}},
		"an unknown flag":  {Schema: answerSchema, Data: []byte{200, 1, 2, 0, 0}},
		"too many headers": {Schema: answerSchema, Data: []byte{200, 1, 0, 100, 0}},
		"too many values": {Schema: answerSchema,
			Data: []byte{200, 1, 0, 1, 1, 'a', 0xff, 0xff, 0xff, 0xff, 0x0f}},
		"a number too large": {
			Schema: answerSchema,
			Data:   []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		},
	} {
		_, err := readAnswer(r)
		require.Error(t, err, name)
	}
}

// H-13: a CORS header that an earlier release has stored does not open a replay to the origin of
// the first answer.
func TestAnswer_KeptCORS_H13(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Access-Control-Allow-Origin", "https://b")
	roundTrip(t, &answer{status: 200, header: http.Header{
		"Access-Control-Allow-Origin": {"https://a"}, "Access-Control-Allow-Credentials": {"true"},
	}}, keepAll, 0).replay(w)
	require.Equal(t, []string{"https://b"}, w.Header()["Access-Control-Allow-Origin"])
	require.NotContains(t, w.Header(), "Access-Control-Allow-Credentials")
}

func FuzzReadAnswer_H06(f *testing.F) {
	f.Add((&answer{
		status: 200, header: http.Header{"Etag": {"1"}, "Link": nil}, body: []byte("b"),
	}).result(keepAll, 9).Data)
	f.Add([]byte{200, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := readAnswer(dedup.Result{Schema: answerSchema, Data: data})
		if err != nil {
			return
		}
		again := a.result(keepAll, len(data))
		b, err := readAnswer(again)
		require.NoError(t, err)
		require.Equal(t, a.status, b.status)
		if !b.omitted {
			require.Equal(t, a.header, b.header)
			require.Equal(t, a.trailer, b.trailer)
			require.Equal(t, string(a.body), string(b.body))
		}
	})
}

// H-13: golden.
func TestAnswer_ReplaysWhatIsAllowed_H13(t *testing.T) {
	a := &answer{status: 201, body: []byte("hello"), header: http.Header{
		"Content-Type": {"text/plain"}, "Location": {"/1"}, "Vary": {"Accept", "origin"},
		"Etag": {`"1"`}, "Content-Length": {"7"}, "Content-Encoding": {"br"},
		"Date": {"then"}, "Set-Cookie": {"session=1"}, "set-cookie": {"session=2"},
		"Connection": {"close"}, "Transfer-Encoding": {"chunked"},
		"Traceparent": {"00-1"}, "X-Request-Id": {"1"}, "Retry-After": {"5"},
		"Access-Control-Allow-Origin": {"https://a"},
	}}
	w := httptest.NewRecorder()
	w.Header().Set("X-Request-Id", "2")
	w.Header().Set("Vary", "Origin")
	w.Header().Set("Cache-Control", "private")
	w.Header().Set("Content-Length", "9")
	roundTrip(t, a, keepDefault, 9).replay(w)
	require.Equal(t, 201, w.Code)
	require.Equal(t, "hello", w.Body.String())
	require.Equal(t, http.Header{
		"Content-Type": {"text/plain"}, "Location": {"/1"}, "Vary": {"Origin", "Accept"},
		"Etag": {`"1"`}, "Content-Length": {"5"}, "Content-Encoding": {"br"},
		"X-Request-Id": {"2"}, "Cache-Control": {"private"},
	}, w.Header())
}

// H-13: a header that must not be replayed is not replayed, even if the Config names it.
func FuzzReplayed_H13(f *testing.F) {
	for _, name := range append(neverReplayed(), "X-Mine", "set-cookie", "SET-COOKIE",
		"Trailer:Set-Cookie", "") {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		kept := replayed([]string{name})
		a := &answer{
			status: 200, header: http.Header{
				name: {"1"}, http.CanonicalHeaderKey(name): {"2"}, strings.ToLower(name): {"3"},
			}, trailer: http.Header{name: {"4"}},
		}
		got := roundTrip(t, a, func(n string) bool { return kept[n] }, 9)
		for _, never := range neverReplayed() {
			for sent := range got.header {
				require.False(t, strings.EqualFold(never, sent), "%q is replayed because of %q",
					sent, name)
			}
			for sent := range got.trailer {
				require.False(t, strings.EqualFold(never, sent), "%q is replayed because of %q",
					sent, name)
			}
		}
		for _, always := range DefaultReplayHeaders() {
			require.True(t, kept[http.CanonicalHeaderKey(always)])
		}
	})
}

func TestDefaultReplayHeaders_H13(t *testing.T) {
	kept := replayed([]string{"x-mine", "Set-Cookie"})
	for _, name := range DefaultReplayHeaders() {
		require.True(t, kept[name], "%s is canonical, and not among those that never are", name)
	}
	require.True(t, kept["X-Mine"])
	require.False(t, kept["Set-Cookie"])
	DefaultReplayHeaders()[0] = "changed"
	require.Equal(t, "Content-Type", DefaultReplayHeaders()[0])
}

// H-16: a part of a representation is replayed with its place, and never as the whole.
func TestAnswer_ReplaysParts_H16(t *testing.T) {
	for _, c := range []struct {
		status int
		want   []string
	}{
		{http.StatusPartialContent, []string{"bytes 0-4/9"}},
		{http.StatusOK, nil},
	} {
		a := &answer{status: c.status, body: []byte("hello"), header: http.Header{
			"Content-Range": {"bytes 0-4/9"},
		}}
		w := httptest.NewRecorder()
		roundTrip(t, a, keepDefault, 9).replay(w)
		require.Equal(t, c.status, w.Code)
		require.Equal(t, c.want, w.Header()["Content-Range"])
	}
}

func TestAnswer_ReplaysStatusesWithoutBody_H16(t *testing.T) {
	for _, status := range []int{204, 304} {
		w := httptest.NewRecorder()
		(&answer{status: status, header: http.Header{"Etag": {"1"}}, body: []byte("no")}).replay(w)
		require.Equal(t, status, w.Code)
		require.Empty(t, w.Body.String())
		require.Equal(t, http.Header{"Etag": {"1"}}, w.Header())
	}
}

func TestAnswer_ReplaysTrailers_H16(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		(&answer{
			status: 200, body: []byte("hello"), trailer: http.Header{"Content-Digest": {"1", "2"}},
		}).replay(w)
	}))
	defer s.Close()
	got := ask(t, s)
	require.Equal(t, "hello", got.body)
	require.Equal(t, http.Header{"Content-Digest": {"1", "2"}}, got.trailer)
}

func TestProblem(t *testing.T) {
	p := &problem{
		Type: "https://docs/#code", Title: "Conflict", Status: 409, Code: "code",
		Detail: "Some <detail>.", Key: "k\"", OriginalStatus: 201,
	}
	w := httptest.NewRecorder()
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Trailer", "X-Sum")
	p.write(w)
	require.Equal(t, 409, w.Code)
	require.Equal(t, http.Header{
		"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"},
		"Retry-After": {"1"}, "Content-Length": {w.Header().Get("Content-Length")},
	}, w.Header())
	var got problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	require.Equal(t, *p, got)

	kept := httptest.NewRecorder()
	roundTrip(t, p.answer(), keepDefault, 1<<10).replay(kept)
	require.Equal(t, w.Code, kept.Code)
	require.Equal(t, w.Body.String(), kept.Body.String())
	require.Equal(t, "no-store", kept.Header().Get("Cache-Control"))
	require.Equal(t, "application/problem+json", kept.Header().Get("Content-Type"))
	require.Equal(t, w.Header().Get("Content-Length"), kept.Header().Get("Content-Length"))
}
