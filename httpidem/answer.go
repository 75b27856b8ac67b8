package httpidem

import (
	"net/http"

	"github.com/idem-go/idem/dedup"
)

// maxHead is how many bytes status and headers of a kept answer take at most.
const maxHead = 16 << 10

// answer is what a handler answered.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    []byte
	omitted bool // the body was too large to be kept: there is nothing to replay
}

// result is what is kept of it: status, those headers that keep says yes to, and the body if it has at most max bytes.
func (a *answer) result(keep func(name string) bool, max int) dedup.Result { panic("TODO") }

// readAnswer reads what result wrote. An unknown schema is an error: it says that the handler ran.
func readAnswer(r dedup.Result) (*answer, error) { panic("TODO") }

// replay sends a kept answer.
func (a *answer) replay(w http.ResponseWriter) { panic("TODO") }

// DefaultReplayHeaders are the response headers that are replayed, those of [Config].ReplayHeaders beside them. What belongs to one answer
// only, such as Date, Set-Cookie, trace IDs and hop-by-hop headers, is not (H-13).
func DefaultReplayHeaders() []string { panic("TODO") }

// replayed is the set of response headers that are replayed, by canonical name.
func replayed(more []string) map[string]bool { panic("TODO") }
