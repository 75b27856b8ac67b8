package classify

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/idem-go/idem/internal/mark"
)

// HTTP marks errors by the status code of an HTTP response. An error has the code as a
// [StatusError] (see [CheckResponse]), or as a method HTTPStatusCode() int or StatusCode() int, as
// the errors of cloud SDKs have.
//
//	status                                                      mark
//	502, 503, 504                                               Unavailable
//	429 with Retry-After, at most 24 hours                      RetryAfter
//	400 of a StatusError                                        Permanent
//	405, 406, 410, 411, 413, 414, 415, 416, 417, 422, 431,      Permanent
//	451, 501, 505
//	others, such as 401, 403, 404, 408, 409, 429, 500           none
//
// A 401 or a 403 has no mark, since wrong credentials would dead-letter every event at once. The
// same holds for a 400 from a method: AWS answers 400 to a throttled request and to an expired
// token.
func HTTP(err error) error {
	if err == nil {
		return nil
	}
	code, after, own := statusOf(err)
	switch ofStatus(code, own) {
	case down:
		return mark.New(mark.Unavailable, 0, err)
	case hopeless:
		return mark.New(mark.Permanent, 0, err)
	case unsure:
	}
	if code == http.StatusTooManyRequests && after > 0 {
		return mark.New(mark.RetryAfter, after, err)
	}
	return err
}

// ofStatus returns the meaning of a status code. own is true for the code of a StatusError.
func ofStatus(code int, own bool) meaning {
	switch code {
	case http.StatusBadRequest:
		if own {
			return hopeless
		}
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return down
	case http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusGone,
		http.StatusLengthRequired, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusUnsupportedMediaType,
		http.StatusRequestedRangeNotSatisfiable, http.StatusExpectationFailed,
		http.StatusUnprocessableEntity, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusUnavailableForLegalReasons, http.StatusNotImplemented,
		http.StatusHTTPVersionNotSupported:
		return hopeless
	}
	return unsure
}

// statusOf returns the status code in err, or zero, and the time of Retry-After. own is true if the
// code is that of a StatusError.
func statusOf(err error) (code int, after time.Duration, own bool) {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Code, status.RetryAfter, true
	}
	anyOf(err, func(err error) bool {
		switch e := err.(type) { //nolint:errorlint // anyOf walks the tree
		case interface{ HTTPStatusCode() int }:
			code = e.HTTPStatusCode()
		case interface{ StatusCode() int }:
			code = e.StatusCode()
		}
		return code != 0
	})
	return code, 0, false
}

// StatusError is an HTTP response with a status code of 400 or above.
type StatusError struct {
	Code int
	// RetryAfter is the time of the header Retry-After, at most 24 hours. Zero without a valid
	// header.
	RetryAfter time.Duration
}

// Error returns the status code and the standard text of that code.
func (e *StatusError) Error() string {
	return fmt.Sprintf("HTTP status %d %s", e.Code, http.StatusText(e.Code))
}

// CheckResponse returns a [*StatusError] for a response with a status code of 400 or above, and nil
// for any other. CheckResponse neither reads nor closes the body.
func CheckResponse(resp *http.Response) error {
	if resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	return &StatusError{resp.StatusCode, retryAfter(resp.Header.Get("Retry-After"), time.Now())}
}

// maxRetryAfter limits the wait that a server asks for. Some servers send the time since 1970
// instead of a number of seconds, and the event would wait for decades.
const maxRetryAfter = 24 * time.Hour

// retryAfter returns the time of a header Retry-After, in seconds or as a date (RFC 9110, 10.2.3).
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
