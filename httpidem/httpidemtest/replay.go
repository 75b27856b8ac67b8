package httpidemtest

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
	"github.com/stretchr/testify/require"
)

var replayCases = []testCase{
	{name: "replay", run: replay},
	{name: "replay over a connection", run: replayServed},
	{name: "an answer without a body", run: emptyAnswer},
	{name: "another payload", run: anotherPayload},
	{name: "a body that something in front has read", run: consumedBody},
	{name: "missing and invalid keys", run: badKeys},
	{name: "a large answer", run: largeAnswer},
	{name: "the largest answers that are stored", run: largestAnswers},
	{name: "a large request", run: largeRequest},
	{name: "untouched requests", run: untouched},
	{name: "a key that was given up", run: givenUp},
}

func replay(k *kit) {
	h := k.middleware().Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "session=1") // belongs to this one answer (H-13)
		k.created(w, r)
	}))
	first := send(h, order("a"))
	k.executed(first, "a", false)
	require.Equal(k, "session=1", first.header.Get("Set-Cookie"),
		"the first answer is that of the handler")
	k.observed(httpidem.Executed, http.StatusCreated)
	for range 3 {
		again := send(h, order("a"))
		k.executed(again, "a", true)
		require.Empty(k, again.header.Values("Set-Cookie"))
		k.observed(httpidem.Replayed, http.StatusCreated)
	}
	k.once("a")
	k.executed(send(h, order("b")), "b", false) // another key is another request
	k.once("b")
}

// replayServed sends a body of all bytes through a real connection.
func replayServed(k *kit) {
	body := make([]byte, 64<<10)
	for i := range body {
		body[i] = byte(i * 31)
	}
	s := k.serve(k.middleware().Handler(k.handler(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.WriteHeader(http.StatusAccepted)
		for part := range slices.Chunk(body, 1000) {
			_, _ = w.Write(part)
		}
	})))
	for i := range 3 {
		r, err := ask(s, order("a"))
		require.NoError(k, err)
		require.Equal(k, http.StatusAccepted, r.status)
		require.Equal(k, i > 0, r.replayed)
		require.True(k, bytes.Equal(body, []byte(r.body)), "body of answer %d", i)
		require.Equal(k, "application/octet-stream", r.header.Get("Content-Type"))
		require.NotEmpty(k, r.header.Get("Date"))
	}
	k.once("a")
}

func emptyAnswer(k *kit) {
	h := k.middleware().Handler(k.handler(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	for i := range 2 {
		r := send(h, order("a"))
		require.Equal(k, http.StatusNoContent, r.status)
		require.Empty(k, r.body)
		require.Equal(k, i > 0, r.replayed)
	}
	silent := k.middleware(func(c *httpidem.Config) {
		c.Scope = "silent"
	}).Handler(k.handler(func(http.ResponseWriter, *http.Request) {}))
	for i := range 2 {
		r := send(silent, order("b"))
		require.Equal(k, http.StatusOK, r.status)
		require.Equal(k, i > 0, r.replayed)
	}
	k.once("a")
	k.once("b")
}

// anotherPayload is H-03: another request with a used key is a mistake of the client.
func anotherPayload(k *kit) {
	h := k.middleware().Handler(k.handler(k.created))
	k.executed(send(h, order("a")), "a", false)
	for name, change := range map[string]func(*call){
		"body":   func(c *call) { c.body = `{"amount":8}` },
		"space":  func(c *call) { c.body = `{"amount": 7}` },
		"none":   func(c *call) { c.body = "" },
		"path":   func(c *call) { c.target = "/refunds" },
		"query":  func(c *call) { c.target = "/orders?test=1" },
		"method": func(c *call) { c.method = http.MethodPatch },
	} {
		r := send(h, order("a").with(change))
		require.Equal(k, http.StatusUnprocessableEntity, r.status, name)
		k.refused(r, http.StatusUnprocessableEntity, "request_signature_mismatch")
		k.observed(httpidem.Mismatch, http.StatusUnprocessableEntity)
	}
	k.executed(send(h, order("a")), "a", true)
	k.once("a")
}

// consumedBody is H-03: a body of which something in front has read all or a part cannot be
// compared. No handler runs, no answer is replayed, and the key stays usable.
func consumedBody(k *kit) {
	h := k.middleware().Handler(k.handler(k.created))
	for name, size := range map[string]int{"a part": 5, "all": 1 << 10} {
		for _, amount := range []string{"7", "99999"} {
			for _, length := range []bool{true, false} {
				if size == 5 && !length { // the missing part cannot be detected
					continue
				}
				req := order("a").with(func(c *call) {
					c.body = `{"amount":` + amount + `}`
				}).request()
				if !length {
					req.ContentLength, req.TransferEncoding = -1, []string{"chunked"}
				}
				_, _ = io.CopyN(io.Discard, req.Body, int64(size))
				w := writer{header: make(http.Header, 8)}
				h.ServeHTTP(&w, req)
				r := newReply(w.status, w.header, string(w.body))
				require.Equal(k, http.StatusInternalServerError, r.status, "%s, announced: %t",
					name, length)
				k.refused(r, http.StatusInternalServerError, "body_consumed")
				k.observed(httpidem.Refused, http.StatusInternalServerError)
			}
		}
	}
	k.had("a", 0, 0)
	k.executed(send(h, order("a")), "a", false)
	k.executed(send(h, order("a")), "a", true)
	k.once("a")
}

// badKeys is H-01 and H-02: no handler runs, and the store stays empty.
func badKeys(k *kit) {
	h := k.middleware().Handler(k.handler(k.created))
	k.refused(send(h, order("")), http.StatusBadRequest, "idempotency_key_missing")
	k.observed(httpidem.Refused, http.StatusBadRequest)
	for name, values := range map[string][]string{
		"empty": {""}, "empty string": {`""`}, "two lines": {`"a"`, `"a"`},
		"control": {"\"a\x01\""}, "not ASCII": {`"ü"`},
		"too long": {strings.Repeat("a", 256)}, "two lines, joined": {"a, a"}, "null": {"null"},
		"undefined": {`"undefined"`}, "zero": {"0"},
		"nil UUID": {"00000000-0000-0000-0000-000000000000"},
	} {
		r := send(h,
			order("").with(func(c *call) { c.header = http.Header{"Idempotency-Key": values} }))
		require.Equal(k, http.StatusBadRequest, r.status, name)
		k.refused(r, http.StatusBadRequest, "idempotency_key_invalid")
		require.Contains(k, r.header.Get("Link"), "describedby")
	}
	k.executed(send(h, order("a")), "a", false)
	k.once("a")
	bare := order("").with(func(c *call) { c.header = http.Header{"Idempotency-Key": {"a"}} })
	k.executed(send(h, bare), "a", true) // the same key without quotes
	k.once("a")
}

// largeAnswer is H-06: an answer that cannot be stored is never a reason to run again.
func largeAnswer(k *kit) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 10<<16)
	h := k.middleware().Handler(k.handler(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(body)
	}))
	first := send(h, order("a"))
	require.Equal(k, http.StatusOK, first.status)
	require.True(k, bytes.Equal(body, []byte(first.body)), "the first client gets all of it")
	k.observed(httpidem.Executed, http.StatusOK)
	for range 2 {
		r := send(h, order("a"))
		k.refused(r, http.StatusConflict, "not_replayable")
		require.Contains(k, r.body, `"original_status":200`)
		k.observed(httpidem.NotReplayable, http.StatusConflict)
	}
	k.once("a")
}

// largestAnswers is H-06: an answer of MaxResponse bytes is replayed. A store with a limit of its
// own keeps what the limit promises, and of a larger answer the status. No answer leaves an unknown
// outcome.
func largestAnswers(k *kit) {
	const usual, head = httpidem.DefaultMaxResponse, 16 << 10 // head: for status and headers
	sizes := map[string]int{"largest": usual, "small": 1}
	most := usual
	if l, ok := k.store.(dedup.ResultLimiter); ok {
		most = min(usual, max(0, l.MaxResult()-head))
		sizes["of the store"] = most
	}
	body := make([]byte, usual)
	for i := range body {
		body[i] = byte(i * 31)
	}
	h := k.middleware().Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body[:sizes[httpidem.KeyFrom(r.Context())]])
	}))
	for key, size := range sizes {
		for i := range 3 {
			r := send(h, order(key))
			if i > 0 && size > most {
				k.refused(r, http.StatusConflict, "not_replayable")
				require.Contains(k, r.body, `"original_status":201`)
				continue
			}
			require.Equal(k, http.StatusCreated, r.status, "answer %d, %d bytes: %s", i, size, r.code())
			require.Equal(k, i > 0, r.replayed, "answer %d, %d bytes: %s", i, size, r.code())
			require.True(k, bytes.Equal(body[:size], []byte(r.body)), "answer %d, %d bytes: has %d",
				i, size, len(r.body))
		}
		k.once(key)
	}
}

// largeRequest is H-15.
func largeRequest(k *kit) {
	s := k.serve(k.middleware(func(c *httpidem.Config) {
		c.MaxBody = 1000
	}).Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})))
	for i, size := range []int{1001, 100_000} {
		r, err := ask(s, order("a").with(func(c *call) { c.body = strings.Repeat("x", size) }))
		require.NoError(k, err, "request %d", i)
		k.refused(r, http.StatusRequestEntityTooLarge, "body_too_large")
		k.observed(httpidem.Refused, http.StatusRequestEntityTooLarge)
	}
	for range 2 {
		r, err := ask(s, order("a").with(func(c *call) { c.body = strings.Repeat("x", 1000) }))
		require.NoError(k, err)
		require.Equal(k, http.StatusOK, r.status)
		require.Len(k, r.body, 1000, "the handler reads the whole body")
	}
	k.once("a")
}

// untouched is H-19: other methods, upgrades, and requests that may come without a key. Their
// handlers have the server's own writer.
func untouched(k *kit) {
	raw := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, hijacks := w.(http.Hijacker)
		_, kept := httpidem.StoreKey(r.Context())
		if k.count(k.runs, r.Method); !hijacks || kept || httpidem.KeyFrom(r.Context()) != "" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	upgrade := http.Header{"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"}}
	required := k.serve(k.middleware().Handler(raw))
	optional := k.serve(k.middleware(func(c *httpidem.Config) { c.Optional = true }).Handler(raw))
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions,
		http.MethodPut, http.MethodDelete} {
		for range 2 {
			r, err := ask(required,
				order("a").with(func(c *call) { c.method, c.body = method, "" }))
			require.NoError(k, err)
			require.Equal(k, http.StatusOK, r.status, method)
		}
		require.Equal(k, 2, k.ran(method))
	}
	for range 2 {
		r, err := ask(required, order("").with(func(c *call) { c.header = upgrade }))
		require.NoError(k, err)
		require.Equal(k, http.StatusOK, r.status)
		r, err = ask(optional, order(""))
		require.NoError(k, err)
		require.Equal(k, http.StatusOK, r.status)
	}
	require.Equal(k, 4, k.ran(http.MethodPost))
	require.Empty(k, k.results(), "nothing of this is a keyed request")

	// A header does not switch the protection off, and neither does the offer of h2c that some
	// clients send with any request.
	h := k.middleware().Handler(k.handler(k.created))
	k.executed(send(h, order("a").with(func(c *call) { c.header = upgrade })), "a", false)
	k.executed(send(h, order("a").with(func(c *call) { c.header = upgrade })), "a", true)
	k.once("a")
	h2c := http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {"h2c"}}
	k.refused(send(h, order("").with(func(c *call) { c.header = h2c })), http.StatusBadRequest,
		"idempotency_key_missing")
}

// givenUp is a key that an operator has given up.
func givenUp(k *kit) {
	operator, ok := k.store.(dedup.Operator)
	if !ok {
		k.Skip("the store is no dedup.Operator")
	}
	var key dedup.Key
	h := k.middleware().Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		key, _ = httpidem.StoreKey(r.Context())
		httpidem.NotApplied(r.Context())
	}))
	send(h, order("a"))
	require.NoError(k, operator.Discard(k.Context(), key, 1<<40, "of no concern to clients"))
	r := send(h, order("a"))
	k.refused(r, http.StatusConflict, "given_up")
	require.NotContains(k, r.body, "concern", "the operator's reason is internal")
	k.observed(httpidem.GivenUp, http.StatusConflict)
	require.Equal(k, 1, k.ran("a"))
}
