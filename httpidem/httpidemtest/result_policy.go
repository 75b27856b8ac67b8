package httpidemtest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/idem-go/idem/httpidem"
	"github.com/stretchr/testify/require"
)

var fateCases = []testCase{
	{name: "kept results under a claim (rule 19)", ways: claimed, run: keptClaimed},
	{name: "kept results in a transaction (rule 20)", ways: transactional, run: keptTx},
	{name: "answers that ask to come again", run: comeAgain},
	{name: "not applied", run: notApplied},
	{name: "a refused request comes again, corrected (H-11)", run: corrected},
	{name: "a result policy of one's own", run: ownFate},
	{name: "statuses that are not kept (H-11)", run: forgetStatus},
	{name: "a handler that takes too long", run: tooLong},
	{name: "an answer that is not held back", ways: claimed, run: streamed},
	{name: "an answer too large to be held back", run: overflow},
}

// answers sends a key twice to a handler that answers with a status, and returns the key and
// whether the second answer was a replay.
func (k *kit) answers(
	h http.Handler, status int, change ...func(*call),
) (key string, replayed bool) {
	k.Helper()
	c := order(fmt.Sprint("status-",
		status)).with(func(c *call) { c.target = fmt.Sprint("/?status=", status) })
	for _, f := range change {
		f(&c)
	}
	require.Equal(k, status, send(h, c).status)
	r := send(h, c)
	require.Equal(k, status, r.status)
	return c.key, r.replayed
}

// answerByQuery answers with the status in the query.
func answerByQuery(w http.ResponseWriter, r *http.Request) {
	var status int
	_, _ = fmt.Sscan(r.URL.Query().Get("status"), &status)
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		fmt.Fprint(w, "that is ", status)
	}
}

// keptClaimed: every answer of a handler under a claim is stored, since the effect may have
// happened, also with 5xx (H-10).
func keptClaimed(k *kit) {
	h := k.middleware().Handler(k.handler(answerByQuery))
	for _, status := range []int{200, 201, 204, 303, 400, 401, 403, 404, 409, 422, 500, 502, 503,
		504} {
		key, replayed := k.answers(h, status)
		require.True(k, replayed, "status %d", status)
		k.once(key)
	}
}

// keptTx: below 400 with effects, 4xx without; 5xx roll back and are forgotten.
func keptTx(k *kit) {
	h := k.middleware().Handler(k.handler(answerByQuery))
	for _, status := range []int{200, 201, 204, 303, 400, 401, 403, 404, 409, 422, 500, 502, 503,
		504} {
		key, replayed := k.answers(h, status)
		require.Equal(k, status < 500, replayed, "status %d", status)
		switch {
		case status < 400:
			k.had(key, 1, 1)
		case status < 500:
			k.had(key, 1, 0)
		default:
			k.had(key, 2, 0)
			k.observed(httpidem.Forgotten, status)
		}
	}
}

func comeAgain(k *kit) {
	h := k.middleware().Handler(k.handler(answerByQuery))
	for _, status := range []int{307, 308, 408, 425, 429} {
		key, replayed := k.answers(h, status)
		require.False(k, replayed, "status %d", status)
		require.Equal(k, 2, k.ran(key))
		k.observed(httpidem.Forgotten, status)
		if k.tx {
			k.had(key, 2, 0)
		}
	}
}

// notApplied: The handler declares that no change was applied, and the next request runs (H-11).
// A transaction is rolled back.
func notApplied(k *kit) {
	first := true
	h := k.middleware().Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		if first {
			httpidem.NotApplied(r.Context())
			answerByQuery(w, r)
			return
		}
		k.created(w, r)
	}))
	for _, status := range []int{200, 400, 500} {
		key := fmt.Sprint("status-", status)
		c := order(key).with(func(c *call) { c.target = fmt.Sprint("/?status=", status) })
		first = true
		r := send(h, c)
		require.Equal(k, status, r.status)
		require.Equal(k, fmt.Sprint("that is ", status), r.body)
		k.observed(httpidem.Forgotten, status)
		first = false
		require.Equal(k, http.StatusCreated, send(h, c).status)
		require.True(k, send(h, c).replayed)
		require.Equal(k, 2, k.ran(key))
		if k.tx {
			k.had(key, 2, 1)
		}
	}
}

// corrected: a request that the handler refused without an effect may be corrected and sent again
// with the same key (H-11).
func corrected(k *kit) {
	h := k.middleware().Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("amount") == "" {
			httpidem.NotApplied(r.Context())
			http.Error(w, "no amount", http.StatusBadRequest)
			return
		}
		k.created(w, r)
	}))
	wrong := order("mended")
	right := wrong.with(func(c *call) { c.target = "/?amount=1" })
	require.Equal(k, http.StatusBadRequest, send(h, wrong).status)
	require.Equal(k, http.StatusCreated, send(h, right).status)
	require.Equal(k, http.StatusUnprocessableEntity, send(h, wrong).status,
		"the payload that ran is the key's")
	require.True(k, send(h, right).replayed)
	require.Equal(k, 2, k.ran("mended"))
}

func ownFate(k *kit) {
	h := k.middleware(func(c *httpidem.Config) {
		c.ResultPolicy = func(r *http.Request, o httpidem.Outcome) httpidem.ResultPolicy {
			if o.Tx != k.tx || o.NotApplied {
				k.Errorf("outcome %+v", o)
			}
			switch o.Status {
			case http.StatusTeapot:
				return httpidem.Forget
			case http.StatusAccepted:
				return httpidem.KeepAnswer
			default:
				return httpidem.Keep
			}
		}
	}).Handler(k.handler(answerByQuery))
	key, replayed := k.answers(h, http.StatusTeapot)
	require.False(k, replayed)
	require.Equal(k, 2, k.ran(key))
	key, replayed = k.answers(h, http.StatusBadGateway)
	require.True(k, replayed)
	k.once(key)
	key, replayed = k.answers(h, http.StatusTooManyRequests)
	require.True(k, replayed)
	k.once(key)
	key, replayed = k.answers(h, http.StatusAccepted)
	require.True(k, replayed)
	if k.tx {
		k.had(key, 1, 0)
	} else {
		k.once(key)
	}
}

// forgetStatus is H-11: answers with these statuses leave the key to the next request, also with
// another payload.
func forgetStatus(k *kit) {
	h := k.middleware(func(c *httpidem.Config) {
		c.ForgetStatus = []int{401, 422}
	}).Handler(k.handler(answerByQuery))
	for _, status := range []int{401, 422} {
		c := order(fmt.Sprint("forget-",
			status)).with(func(c *call) { c.target = fmt.Sprint("/?status=", status) })
		for range 2 {
			r := send(h, c)
			require.Equal(k, status, r.status)
			require.False(k, r.replayed)
			k.observed(httpidem.Forgotten, status)
		}
		corrected := c.with(func(c *call) { c.target = "/?status=201" })
		require.Equal(k, 201, send(h, corrected).status)
		require.True(k, send(h, corrected).replayed)
		require.Equal(k, 422, send(h, c).status, "the payload that ran is the key's")
		require.Equal(k, 3, k.ran(c.key))
		if k.tx {
			k.had(c.key, 3, 1)
		}
	}
	key, replayed := k.answers(h, 403)
	require.True(k, replayed, "any other status is kept")
	require.Equal(k, 1, k.ran(key))
}

// tooLong: the context of the handler ends at Timeout, and a later answer is stored like any
// other. The time of the store before the handler does not count.
func tooLong(k *kit) {
	h := k.middleware(func(c *httpidem.Config) {
		c.Timeout = time.Millisecond
	}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.count(k.runs, httpidem.KeyFrom(r.Context())) // an effect could be too late for the context
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, "out of time")
		case <-time.After(eventLimit):
		}
	}))
	for i := range 2 {
		r := send(h, order("a"))
		require.Equal(k, http.StatusConflict, r.status)
		require.Equal(k, "out of time", r.body)
		require.Equal(k, i > 0, r.replayed)
	}
	require.Equal(k, 1, k.ran("a"))
}

// streamed is H-14: Flush records that there is no answer to replay, and then sends. The handler
// continues.
func streamed(k *kit) {
	next, ended := make(chan struct{}), make(chan error, 1)
	s := k.serve(k.middleware(func(c *httpidem.Config) {
		c.StreamOnFlush = true
	}).Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "one,")
		if err := http.NewResponseController(w).Flush(); err != nil {
			k.Errorf("flush: %v", err)
		}
		select {
		case <-next:
		case <-time.After(eventLimit):
		}
		fmt.Fprint(w, "two")
		ended <- r.Context().Err()
	})))
	type result struct {
		reply
		err error
	}
	first := make(chan result, 1)
	begun := make(chan struct{})
	go func() {
		req := order("a").request()
		req.RequestURI = ""
		req.URL.Scheme, req.URL.Host = "http", s.Listener.Addr().String()
		resp, err := s.Client().Do(req)
		if err != nil {
			first <- result{err: err}
			close(begun)
			return
		}
		part := make([]byte, 4)
		_, err = io.ReadFull(resp.Body, part)
		close(begun)
		rest, restErr := io.ReadAll(resp.Body)
		first <- result{reply{status: resp.StatusCode, body: string(part) + string(rest)},
			errors.Join(err, restErr, resp.Body.Close())}
	}()
	k.wait(begun, "the first bytes of an answer that is flushed")
	r, err := ask(s, order("a"))
	require.NoError(k, err)
	k.refused(r, http.StatusConflict, "not_replayable")
	close(next)
	got := <-first
	require.NoError(k, got.err)
	require.Equal(k, "one,two", got.body)
	require.NoError(k, <-ended, "the context of a handler that streams")
	r, err = ask(s, order("a"))
	require.NoError(k, err)
	k.refused(r, http.StatusConflict, "not_replayable")
	k.once("a")
	require.Eventually(k, func() bool { return k.results()[httpidem.Executed] == 1 }, eventLimit,
		time.Millisecond)
}

// overflow: An answer that is too large to be held back is sent, and not replayed. In a
// transaction such an answer is an error, and rolled back.
func overflow(k *kit) {
	part := make([]byte, 1000)
	h := k.middleware(func(c *httpidem.Config) {
		c.MaxResponse, c.MaxBuffer = 1, 10_000
	}).Handler(k.handler(func(w http.ResponseWriter, r *http.Request) {
		for range 20 {
			_, _ = w.Write(part)
		}
		if err := r.Context().Err(); err != nil {
			k.Errorf("context of the handler: %v", err)
		}
	}))
	r := send(h, order("a"))
	if k.tx {
		k.refused(r, http.StatusInternalServerError, "rolled_back")
		k.had("a", 1, 0)
		return
	}
	require.Equal(k, http.StatusOK, r.status)
	require.Len(k, r.body, 20_000)
	k.observed(httpidem.Executed, http.StatusOK)
	k.refused(send(h, order("a")), http.StatusConflict, "not_replayable")
	k.once("a")
}
