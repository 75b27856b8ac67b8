package httpidemtest

import (
	"net/http"
	"time"

	"github.com/idem-go/idem/httpidem"
	"github.com/stretchr/testify/require"
)

var processCases = []testCase{
	{name: "two processes", run: twoProcesses},
}

// twoProcesses: Two processes share running keys and answers.
func twoProcesses(k *kit) {
	begun := make(chan struct{})
	open, release := k.barrier()
	peer := k.Peer(k, k.store)
	slow := k.handler(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-open
		k.created(w, r)
	})
	here := k.middleware().Handler(slow)
	there := k.middleware(func(c *httpidem.Config) { c.Store = peer }).Handler(k.handler(k.created))
	waits := k.middleware(func(c *httpidem.Config) {
		c.Store, c.Wait, c.Poll = peer, eventLimit, 5*time.Millisecond
	}).Handler(k.handler(k.created))

	first, waited := make(chan reply, 1), make(chan reply, 1)
	go func() { first <- send(here, order("a")) }()
	k.wait(begun, "the handler begins")
	for _, h := range []http.Handler{here, there} {
		k.inFlight(send(h, order("a")))
		k.observed(httpidem.InFlight, http.StatusConflict)
	}
	go func() { waited <- send(waits, order("a")) }()
	k.executed(send(there, order("b")), "b", false) // other keys do not wait
	release()
	k.executed(<-first, "a", false)
	k.executed(<-waited, "a", true)
	k.executed(send(there, order("a")), "a", true)
	k.executed(send(here, order("b")), "b", true)
	other := order("a").with(func(c *call) { c.body = "{}" })
	k.refused(send(there, other), http.StatusUnprocessableEntity, "request_signature_mismatch")
	require.Len(k, k.results(), 4)
	k.once("a")
	k.once("b")
}
