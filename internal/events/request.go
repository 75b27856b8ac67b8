package events

import (
	"fmt"

	"github.com/idem-go/idem/dedup"
)

// IsRequest reports whether a key belongs to an HTTP request: httpidem uses one type for all of
// them. Only the client sends a request again.
func IsRequest(k dedup.Key) bool { return k.Type == "http" }

// nextOfRequest describes the answer to a client that sends the request again.
func nextOfRequest(r dedup.Record) string {
	const doubt = "copies get 409 unknown_outcome, unless the handler has Rerun: find out whether the effect happened, then idem event release or skip"
	switch r.State {
	case dedup.Finished:
		return "its answer is replayed to its copies"
	case dedup.GivenUp:
		return "copies of the request get 409 given_up"
	case dedup.Claimed:
		if Stuck(r) {
			return fmt.Sprintf(
				"its holder has not spoken for %s beyond its lease: %s", Short(-r.Lease), doubt,
			)
		}
		return fmt.Sprintf("it is at work: its holder's lease lasts for %s more", Short(r.Lease))
	case dedup.Released:
		if r.Doubtful {
			return doubt
		}
		return "runs when its client sends the request again"
	default: // requests have no later attempts
		return "not known to this release"
	}
}
