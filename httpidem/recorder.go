package httpidem

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
)

// errEnded is what a goroutine gets that writes when its handler has returned (H-05, H-09).
var errEnded = errors.New("httpidem: the handler has returned, its answer is complete")

// recorder is the ResponseWriter of a keyed request: it holds back what the handler writes until that is stored. Handler and client see
// what they would see without it, but that a Flush sends nothing, that a panic leaves nothing of the answer, and that Hijack and
// 101 are refused.
//
// The handler has a map of headers of its own: it may run twice, and its answer may be replaced.
type recorder struct {
	w http.ResponseWriter
	r *http.Request
	// early is called once, when an answer must leave before its handler has ended (a Flush that streams, or more than buffer
	// bytes): it stores that the answer was given. If it returns an error nothing leaves, and Write returns that error.
	early         func(*answer) error
	buffer        int
	streamOnFlush bool
	base          http.Header // of w before the handler ran

	mu        sync.Mutex // against goroutines that the handler has left behind
	header    http.Header
	code      int         // of WriteHeader; 0: the handler has not written
	sent      http.Header // the header as WriteHeader found it
	length    int64       // declared; -1: none
	written   int64       // what the handler has tried to write, as net/http counts it
	body      []byte
	mark      mark
	streaming bool
	failed    error // of early
	final     *answer
	trailing  http.Header // the header as the handler left it
}

// mark is the first thing the handler did that makes net/http send the headers: it decides whether there is a Content-Length, and how
// much of the body the Content-Type is guessed from. send repeats it.
type mark struct {
	kind markKind
	at   int // bytes before it
}

type markKind uint8

const (
	noMark markKind = iota
	flushMark
	readFromMark
)

// sniffLen is how much net/http looks at to guess a Content-Type, and what its ReadFrom copies before it sends headers.
const sniffLen = 512

// newRecorder returns a recorder that holds back at most buffer bytes.
func newRecorder(w http.ResponseWriter, r *http.Request, buffer int, streamOnFlush bool, early func(*answer) error) *recorder {
	base := cloneHeader(w.Header())
	return &recorder{w: w, r: r, early: early, buffer: buffer, streamOnFlush: streamOnFlush, base: base, header: cloneHeader(base), length: -1}
}

// Header is what middleware in front has set and the handler may change. When the handler has returned it is nobody's.
func (rec *recorder) Header() http.Header {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.final != nil {
		return http.Header{}
	}
	return rec.header
}

// WriteHeader sends 1xx at once, as net/http does: they are no part of the answer.
func (rec *recorder) WriteHeader(status int) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.writeHeader(status)
}

func (rec *recorder) writeHeader(status int) {
	if rec.code != 0 || rec.final != nil { // superfluous
		return
	}
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case status == http.StatusSwitchingProtocols:
		panic("httpidem: a request with an idempotency key cannot switch protocols")
	case status < 200:
		setHeader(rec.w, rec.header)
		rec.w.WriteHeader(status)
		setHeader(rec.w, rec.base)
		return
	}
	rec.code, rec.sent = status, cloneHeader(rec.header)
	if rec.length = declared(rec.header); rec.length < 0 && rec.header.Get("Content-Length") != "" && rec.r.ProtoMajor < 2 {
		rec.header.Del("Content-Length")
	}
}

// declared is the Content-Length of h; -1: it has none that is one.
func declared(h http.Header) int64 {
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

// Write holds b back, or fails as net/http's does.
func (rec *recorder) Write(b []byte) (int, error) { return write(rec, b) }

// WriteString is Write.
func (rec *recorder) WriteString(s string) (int, error) { return write(rec, s) }

func write[T []byte | string](rec *recorder, b T) (int, error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.final != nil {
		return 0, errEnded
	}
	if rec.code == 0 {
		rec.writeHeader(http.StatusOK)
	}
	switch {
	case len(b) == 0 && rec.r.ProtoMajor < 2:
		return 0, nil
	case noBody(rec.code):
		return 0, http.ErrBodyNotAllowed
	}
	rec.written += int64(len(b))
	if rec.length >= 0 && rec.written > rec.length {
		return 0, http.ErrContentLength
	}
	if !rec.streaming && rec.failed == nil && len(rec.body)+len(b) > rec.buffer {
		rec.leave()
	}
	switch {
	case rec.failed != nil:
		return 0, rec.failed
	case rec.streaming:
		return rec.w.Write([]byte(b))
	}
	rec.body = append(rec.body, b...)
	return len(b), nil
}

// ReadFrom is Write for io.Copy.
func (rec *recorder) ReadFrom(src io.Reader) (int64, error) {
	rec.mu.Lock()
	at := len(rec.body)
	rec.mu.Unlock()
	n, err := io.Copy(writerOnly{rec}, src)
	if _, ok := rec.w.(io.ReaderFrom); ok && n >= sniffLen {
		rec.mu.Lock()
		rec.note(readFromMark, at)
		rec.mu.Unlock()
	}
	return n, err
}

// writerOnly hides ReadFrom from io.Copy.
type writerOnly struct{ io.Writer }

func (rec *recorder) note(kind markKind, at int) {
	if rec.mark.kind == noMark {
		rec.mark = mark{kind, at}
	}
}

// Flush is FlushError.
func (rec *recorder) Flush() { _ = rec.FlushError() }

// FlushError sends nothing, unless the answer is streamed (H-14).
func (rec *recorder) FlushError() error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.final != nil {
		return errEnded
	}
	if rec.code == 0 {
		rec.writeHeader(http.StatusOK)
	}
	rec.note(flushMark, len(rec.body))
	if rec.streamOnFlush && !rec.streaming && rec.failed == nil {
		rec.leave()
	}
	if rec.streaming {
		return http.NewResponseController(rec.w).Flush()
	}
	return rec.failed
}

// leave stores that the request was answered, then lets go what was held back.
func (rec *recorder) leave() {
	if rec.failed = rec.early(&answer{status: rec.code, header: rec.sent, omitted: true}); rec.failed != nil {
		return
	}
	rec.streaming = true
	rec.emit()
	rec.body = nil
}

// emit gives w what was written so far, so that it comes to the same headers as if it had been there all the time.
func (rec *recorder) emit() {
	if rec.code == 0 { // middleware in front may still add to the headers
		return
	}
	setHeader(rec.w, rec.sent)
	rec.w.WriteHeader(rec.code)
	rest := rec.body
	if rec.mark.kind != noMark {
		rec.put(rest[:rec.mark.at])
		rest = rest[rec.mark.at:]
	}
	switch from, _ := rec.w.(io.ReaderFrom); {
	case rec.mark.kind == flushMark:
		_ = http.NewResponseController(rec.w).Flush()
	case rec.mark.kind == readFromMark && from != nil:
		_, _ = from.ReadFrom(&readerOnly{rest})
		return
	}
	rec.put(rest)
}

func (rec *recorder) put(b []byte) {
	if len(b) > 0 {
		_, _ = rec.w.Write(b) // the answer is stored: a client that has gone finds it when it asks again
	}
}

// readerOnly reads bytes. A bytes.Reader would be asked to write instead.
type readerOnly struct{ rest []byte }

func (r *readerOnly) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// finish ends the recording and returns what the handler answered. streamed says that it has left already.
func (rec *recorder) finish() (a *answer, streamed bool) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.final != nil {
		return rec.final, rec.streaming
	}
	rec.trailing = cloneHeader(rec.header)
	a = &answer{status: http.StatusOK, header: rec.trailing, body: rec.body, omitted: rec.streaming || rec.failed != nil || rec.short()}
	if rec.code != 0 {
		a.status, a.header = rec.code, rec.sent
	}
	a.trailer = trailers(a.header, rec.trailing)
	if a.omitted {
		a.body = nil
	}
	a.header = rec.guessed(a)
	rec.final = a
	if rec.streaming {
		setHeader(rec.w, rec.trailing) // for the trailers
	}
	return a, rec.streaming
}

// short reports whether there is less of the body than was announced: its client sees a broken answer, which must not be whole in a replay.
func (rec *recorder) short() bool {
	length := rec.length
	if rec.code == 0 {
		length = declared(rec.header)
	} else if noBody(rec.code) {
		return false
	}
	return int64(len(rec.body)) < length && rec.r.Method != http.MethodHead
}

// send gives the client what the handler answered, as it would have looked without the recorder. Nothing if it was streamed. An answer
// of which a part was refused must not pass for a whole one: the connection is broken.
func (rec *recorder) send() {
	switch {
	case rec.streaming:
		return
	case rec.failed != nil:
		panic(http.ErrAbortHandler)
	}
	rec.emit()
	setHeader(rec.w, rec.trailing)
}

// status that the handler answered; 200 if it said none.
func (rec *recorder) status() int {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.code == 0 {
		return http.StatusOK
	}
	return rec.code
}

// setHeader makes the header of w equal to h. It changes the map, since that is what others hold.
func setHeader(w http.ResponseWriter, h http.Header) {
	out := w.Header()
	clear(out)
	maps.Copy(out, h)
}

func cloneHeader(h http.Header) http.Header {
	if h == nil {
		return http.Header{}
	}
	return h.Clone()
}
