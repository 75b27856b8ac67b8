package httpidem

import (
	"io"
	"mime"
	"net/http"
	"strconv"
)

// bodyState reports whether the middleware has the whole body that the client sent (H-03).
type bodyState uint8

const (
	// bodyWhole: no sign of a missing part.
	bodyWhole bodyState = iota
	// bodyConsumed: something in front has read all or a part of the body, and has not restored the
	// body.
	bodyConsumed
	// bodyUnclear: the body is empty, without a length, and without a Content-Type that would prove
	// a body.
	bodyUnclear
)

// stateOfBody compares the n bytes read from original with the headers of r. Two consumed bodies
// look equal, so that one payload would get the answer to another one.
//
// A body that is longer than announced was replaced, for example by a decompressor, and counts as
// whole. So does a shorter body with a Content-Encoding. In a body of unknown length, a part that
// was read in front cannot be detected, unless the rest is empty.
func stateOfBody(r *http.Request, original io.ReadCloser, n int64) bodyState {
	switch {
	case n == 0 && formParsed(r):
		return bodyWhole // the fields are compared instead
	case n == 0:
		return stateOfEmptyBody(r, original)
	case r.MultipartForm != nil && r.ContentLength < 0: // the rest of the body, or all of it
		return bodyConsumed
	case n < r.ContentLength && r.Header.Get("Content-Encoding") == "":
		return bodyConsumed
	default:
		return bodyWhole
	}
}

func stateOfEmptyBody(r *http.Request, original io.ReadCloser) bodyState {
	announced, err := strconv.ParseInt(r.Header.Get("Content-Length"), 10, 64)
	switch {
	case r.ContentLength > 0 || err == nil && announced > 0:
		return bodyConsumed
	case r.ContentLength == 0 && len(r.TransferEncoding) == 0:
		return bodyWhole
	// A server sets another body for an unknown length.
	case original == nil || original == http.NoBody:
		return bodyConsumed
	case r.Header.Get("Content-Type") != "":
		return bodyConsumed
	default:
		return bodyUnclear
	}
}

// formParsed reports whether the body was parsed in front as a form without files, so that its
// fields are the whole body. A form of another type, or without a field, does not prove that.
func formParsed(r *http.Request) bool {
	if len(r.PostForm) == 0 {
		return false
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/x-www-form-urlencoded"
}
