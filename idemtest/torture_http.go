package idemtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/idem-go/idem/dedup"
)

// TortureHTTP is [Torture] for HTTP handlers behind the middleware of package httpidem.
//
// server makes the handler of one process: the middleware with this store, around the handler under
// test. stop ends that handler, by Close of the middleware. request returns the request, with the
// same content and the same Idempotency-Key each time. The request reaches the handler without a
// network.
//
// If the process dies or the handler panics, the client gets no answer. Then the client sends the
// request again, ten seconds later and for half an hour at most, or twelve leases if that is
// longer. The client does the same after the statuses 408, 425, 429 and 5xx, and after 409 with
// Retry-After. All other statuses are answers. At the end the client sends the request once more,
// and gets the kept answer.
//
// The state of each run must be that of the run without faults, and so must status and body of each
// answer. Neither may differ between two runs without faults, so let the body have no time.
// ReplayWith200 of the middleware changes the status of an
// answer.
//
// The option [TxStore] names the store for httpidem.NewTx. [Records] and [Guard] have no effect.
func TortureHTTP[W any](
	t *testing.T, setup func(testing.TB, *Faults) W,
	server func(s dedup.Store, world W) (h http.Handler, stop func()),
	request func() *http.Request, state func(W) any, opts ...TortureOption,
) {
	t.Helper()
	text, broken := SearchHTTP(t, setup, server, request, state, opts...)
	verdict(t, text, broken)
}

// SearchHTTP is [TortureHTTP] for a handler that may break, as [Search] is for handlers of events.
func SearchHTTP[W any](
	t *testing.T, setup func(testing.TB, *Faults) W,
	server func(s dedup.Store, world W) (h http.Handler, stop func()),
	request func() *http.Request, state func(W) any, opts ...TortureOption,
) (text string, broken bool) {
	t.Helper()
	s := newSearch("TortureHTTP", opts, argument{"setup", setup}, argument{"server", server},
		argument{"request", request}, argument{"state", state})
	return look(t, s, setup, func(_ *testing.T, w W, open opener) job {
		return newCallsJob(func(p *process) client {
			h, stop := server(open(p), w)
			return client{stop: stop, call: func() reply {
				return send(h, request().WithContext(p.ctx))
			}}
		})
	}, state)
}

// httpAnswer has the parts of an answer that a client keeps.
type httpAnswer struct {
	Status int
	Body   string
}

// send sends a request. A panic of the handler cuts the connection, as in a server.
func send(h http.Handler, r *http.Request) (got reply) {
	w := httptest.NewRecorder()
	defer func() {
		if reason := recover(); reason != nil {
			got = reply{
				again: fmt.Errorf("the connection is cut, since the handler panicked: %v", reason),
			}
		}
	}()
	h.ServeHTTP(w, r)
	return replyOfHTTP(w.Code, w.Header(), w.Body.String())
}

// replyOfHTTP classifies an answer for its client.
func replyOfHTTP(status int, header http.Header, body string) reply {
	var problem struct{ Code string } // RFC 9457, with the member of package httpidem
	if json.Unmarshal([]byte(body), &problem) != nil {
		problem.Code = ""
	}
	conflict := status == http.StatusConflict
	switch {
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		status == http.StatusTooManyRequests, conflict && header.Get("Retry-After") != "":
		text := cmp.Or(problem.Code, strings.TrimSpace(body))
		return reply{again: fmt.Errorf("%d %s", status, text)}
	}
	return reply{
		answer: httpAnswer{status, body}, text: fmt.Sprintf("%d %q", status, body),
		unknown: conflict && problem.Code == "unknown_outcome",
	}
}
