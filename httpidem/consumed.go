package httpidem

import (
	"io"
	"mime"
	"net/http"
	"strconv"
)

// bodyState says whether the middleware has the whole body that the client sent (H-03).
type bodyState uint8

const (
	// bodyWhole: nothing says that a part is missing.
	bodyWhole bodyState = iota
	// bodyConsumed: something in front has read all of the body, or a part, and has not put it back.
	bodyConsumed
	// bodyUnclear: the body is empty, its length was not announced, and no Content-Type says that there was one.
	bodyUnclear
)

// stateOfBody compares the n bytes that were read from original with what r says about them. Two consumed bodies are the same body, so
// that one payload would get the answer to another one.
//
// A body that is longer than announced was replaced, as by a decompressor, and counts as whole; so does a shorter one with a
// Content-Encoding. What was read of a body of unknown length before the middleware cannot be seen, unless nothing is left of it.
func stateOfBody(r *http.Request, original io.ReadCloser, n int64) bodyState {
	switch {
	case n == 0 && formParsed(r):
		return bodyWhole // its fields are compared instead
	case n == 0:
		return stateOfEmptyBody(r, original)
	case r.MultipartForm != nil && r.ContentLength < 0: // the rest of it, or all of it
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
	case original == nil || original == http.NoBody: // a server has none where the length is unknown
		return bodyConsumed
	case r.Header.Get("Content-Type") != "":
		return bodyConsumed
	default:
		return bodyUnclear
	}
}

// formParsed reports whether the body was read in front as a form without files, whose fields are all that was in it. A form of another
// type, or without a field, says nothing about the body.
func formParsed(r *http.Request) bool {
	if len(r.PostForm) == 0 {
		return false
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/x-www-form-urlencoded"
}
