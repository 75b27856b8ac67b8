package httpidem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/idem-go/idem/dedup"
)

// answerSchema is the version of the encoding below. The encoding is binary: header values may be
// no valid UTF-8, and the body must not grow.
//
//	uvarint status, byte flags, headers, trailers, body
//
// Headers begin with their number. Each one is its name, its number of values + 1 (0: nil), and its
// values. Numbers are uvarints. A text is its length and its bytes.
const answerSchema = 1

// flagOmitted means that the answer itself was not kept.
const flagOmitted = 1

func (a *answer) appendHead(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(a.status))
	flags := byte(0)
	if a.omitted {
		flags |= flagOmitted
	}
	return appendHeader(appendHeader(append(b, flags), a.header), a.trailer)
}

func appendHeader(b []byte, h http.Header) []byte {
	b = binary.AppendUvarint(b, uint64(len(h)))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		b = appendText(b, name)
		values := h[name]
		if values == nil { // a nil value keeps net/http from adding the header
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(values))+1)
		for _, v := range values {
			b = appendText(b, v)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errAnswer = errors.New("stored answer cannot be read")

// readAnswer decodes the result of answer.result. An unknown schema is an error: the handler has
// run, and must not run again.
func readAnswer(r dedup.Result) (*answer, error) {
	if r.Schema != answerSchema {
		return nil, fmt.Errorf(
			"stored answer has schema %d, not %d: it comes from another release, or from dedup.Do",
			r.Schema, answerSchema,
		)
	}
	d := decoder{rest: r.Data}
	a := &answer{status: d.number(999)}
	flags := d.take(1)
	a.header, a.trailer = d.header(), d.header()
	if d.failed || a.status < 200 || flags[0]&^flagOmitted != 0 {
		return nil, errAnswer
	}
	a.omitted, a.body = flags[0]&flagOmitted != 0, d.rest
	return a, nil
}

// decoder decodes an answer. After a failure the results are invalid.
type decoder struct {
	rest   []byte
	failed bool
}

// number reads a number of at most max. The counted items take at least one byte each, so that max
// bounds the allocation.
func (d *decoder) number(max int) int {
	n, size := binary.Uvarint(d.rest)
	if d.failed || size <= 0 || n > uint64(max) {
		d.failed = true
		return 0
	}
	d.rest = d.rest[size:]
	return int(n)
}

func (d *decoder) take(n int) []byte {
	if d.failed || n > len(d.rest) {
		d.failed = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) text() string { return string(d.take(d.number(len(d.rest)))) }

func (d *decoder) header() http.Header {
	h := http.Header{}
	for range d.number(len(d.rest)) {
		name := d.text()
		n := d.number(len(d.rest) + 1)
		if d.failed {
			return nil
		}
		var values []string
		if n > 0 {
			values = []string{}
		}
		for i := 1; i < n && !d.failed; i++ {
			values = append(values, d.text())
		}
		h[name] = values
	}
	return h
}
