package deadletter

import (
	"slices"
	"strings"

	"github.com/idem-go/idem/idemtype"
)

// The headers that Idem adds to a dead letter and to a copy in a retry topic. All headers of the
// original record are kept. A header of the original record that begins with [HeaderPrefix] is
// renamed: [HeaderOriginal] takes the place of the prefix.
const (
	HeaderPrefix   = "idem-"
	HeaderOriginal = "idem-original-"

	HeaderTopic     = "idem-origin-topic"
	HeaderPartition = "idem-origin-partition"
	HeaderOffset    = "idem-origin-offset"
	// HeaderTime is the time of the original record: RFC 3339 with milliseconds, or milliseconds
	// since 1970 if the year is beyond 9999.
	HeaderTime  = "idem-origin-time"
	HeaderGroup = "idem-group"

	// HeaderScope is set only if the event has an identity.
	HeaderScope = "idem-scope"
	// HeaderTenant is set only if the event has a tenant.
	HeaderTenant    = "idem-tenant"
	HeaderEventID   = "idem-event-id"
	HeaderEventType = "idem-event-type"

	HeaderAttempts     = "idem-attempts"
	HeaderFirstFailure = "idem-first-failure"
	HeaderLastFailure  = "idem-last-failure"
	HeaderErrorClass   = "idem-error-class"
	// HeaderError is the text of the last error, at most 1 KiB.
	HeaderError = "idem-error"

	// HeaderValueOmitted is the size of a value that was too large for the dead letter. The origin
	// headers have the place of the original record.
	HeaderValueOmitted = "idem-value-omitted"
	// HeaderHeadersOmitted is the number of headers that were left out together with the value.
	HeaderHeadersOmitted = "idem-headers-omitted"

	// HeaderEdited is the SHA-256 of the original value, in hex. It is set only if an operator has
	// edited the value.
	HeaderEdited = "idem-edited"

	// HeaderGeneration counts how often the event was reopened for a replay.
	HeaderGeneration = "idem-generation"
	// HeaderReplays counts how often the event was replayed. It is set only if that is more often
	// than HeaderGeneration, as for an event without identity.
	HeaderReplays = "idem-replays"
	// HeaderRetry counts the delayed retries since the event was reopened.
	HeaderRetry = "idem-retry"
	// HeaderDue is the earliest time of the attempt for which a copy was made.
	HeaderDue = "idem-due"
	// HeaderNotBefore is a later time than HeaderDue, for an error that asked for a longer wait
	// than the delay of the retry topic.
	HeaderNotBefore = "idem-not-before"
)

// kept returns the headers of the original record for a dead letter or a copy. Headers of the
// record with our prefix are never trusted and are renamed (G-03, rule 44). If a dead letter is
// published once more, they replace those that were renamed before. So dead letters of dead letters
// do not grow (T-04).
func kept(headers []idemtype.Header) []idemtype.Header {
	renamed := make(map[string]bool)
	for _, h := range headers {
		if foreign(h.Key) {
			renamed[HeaderOriginal+h.Key] = true
		}
	}
	out := make([]idemtype.Header, 0, len(headers)+16)
	for _, h := range headers {
		switch {
		case renamed[h.Key]:
			continue
		case foreign(h.Key):
			h.Key = HeaderOriginal + h.Key
		}
		out = append(out, h)
	}
	return out
}

func foreign(name string) bool {
	return strings.HasPrefix(name, HeaderPrefix) && !strings.HasPrefix(name, HeaderOriginal)
}

// restored returns the headers of the original record of a dead letter or a copy.
func restored(headers []idemtype.Header) []idemtype.Header {
	var out []idemtype.Header
	for _, h := range headers {
		switch {
		case strings.HasPrefix(h.Key, HeaderOriginal+HeaderPrefix):
			h.Key = strings.TrimPrefix(h.Key, HeaderOriginal)
		case strings.HasPrefix(h.Key, HeaderOriginal):
		case strings.HasPrefix(h.Key, HeaderPrefix):
			continue
		}
		out = append(out, h)
	}
	return out
}

// headerOf returns the last header with that name, because our headers follow those of the record.
func headerOf(m *idemtype.Message, name string) (value string, ok bool) {
	for _, h := range slices.Backward(m.Headers) {
		if h.Key == name {
			return string(h.Value), true
		}
	}
	return "", false
}
