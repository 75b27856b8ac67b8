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

// errEnded is returned to a goroutine that writes after its handler has returned (H-05, H-09).
var errEnded = errors.New("httpidem: the handler has returned, its answer is complete")

// recorder is the ResponseWriter of a keyed request: it holds back the answer until that is stored.
// Handler and client see the behaviour of net/http, with these exceptions: Flush does not send, a
// panic discards the answer, and Hijack and 101 are refused.
//
// The handler has its own header map, since the handler may run twice, and the answer may be
// replaced.
type recorder struct {
	w http.ResponseWriter
	r *http.Request
	// early is called once if the answer must be sent before its handler has ended, by a Flush that
	// streams or by more than buffer bytes. early stores that the answer was given. On an error no
	// byte is sent, and Write returns the error.
	early         func(*answer) error
	buffer        int
	streamOnFlush bool
	base          http.Header // header of w before the handler ran

	mu        sync.Mutex // guards against goroutines that outlive the handler
	header    http.Header
	code      int         // of WriteHeader; 0: not yet written
	sent      http.Header // the header at WriteHeader
	length    int64       // declared length; -1: not declared
	written   int64       // bytes that the handler tried to write, as net/http counts them
	body      []byte
	mark      mark
	streaming bool
	failed    error // error of early
	final     *answer
	trailing  http.Header // the header at the end of the handler
}

// mark is the first action of the handler that makes net/http send the headers. The mark decides
// whether there is a Content-Length, and how many bytes determine the Content-Type. send repeats
// the action.
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

// sniffLen is the number of bytes that net/http uses to guess a Content-Type, and that its ReadFrom
// copies before it sends headers.
const sniffLen = 512

// newRecorder returns a recorder that holds back at most buffer bytes.
func newRecorder(
	w http.ResponseWriter, r *http.Request, buffer int, streamOnFlush bool,
	early func(*answer) error,
) *recorder {
	base := cloneHeader(w.Header())
	return &recorder{
		w: w, r: r, early: early, buffer: buffer, streamOnFlush: streamOnFlush, base: base,
		header: cloneHeader(base), length: -1,
	}
}

// Header returns the header, which includes the headers of middleware in front. After the handler
// has returned it is an unused map.
func (rec *recorder) Header() http.Header {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.final != nil {
		return http.Header{}
	}
	return rec.header
}

// WriteHeader sends 1xx at once, like net/http: they are no part of the answer.
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
	if rec.length = declared(rec.header); rec.length < 0 &&
		rec.header.Get("Content-Length") != "" && rec.r.ProtoMajor < 2 {
		rec.header.Del("Content-Length")
	}
}

// declared returns the Content-Length of h, or -1 if it has no valid one.
func declared(h http.Header) int64 {
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

// Write holds b back, and fails in the same cases as net/http's.
func (rec *recorder) Write(b []byte) (int, error) { return write(rec, b) }

// WriteString implements [io.StringWriter].
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

// ReadFrom implements [io.ReaderFrom].
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

// Flush implements [http.Flusher].
func (rec *recorder) Flush() { _ = rec.FlushError() }

// FlushError does not send, unless the answer is streamed (H-14).
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

// leave records that the request was answered, then sends the bytes that were held back.
func (rec *recorder) leave() {
	if rec.failed = rec.early(&answer{
		status: rec.code, header: rec.sent, omitted: true,
	}); rec.failed != nil {
		return
	}
	rec.streaming = true
	rec.emit()
	rec.body = nil
}

// emit writes the recorded answer to w, with the headers that net/http would have computed for the
// handler.
func (rec *recorder) emit() {
	if rec.code == 0 { // middleware in front may still add headers
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
		_, _ = rec.w.Write(b) // the answer is stored: a client that has gone gets it in a replay
	}
}

// readerOnly reads bytes. io.Copy would call WriteTo of a bytes.Reader.
type readerOnly struct{ rest []byte }

func (r *readerOnly) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// finish ends the recording and returns the answer of the handler. streamed is true if it was sent
// already.
func (rec *recorder) finish() (a *answer, streamed bool) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.final != nil {
		return rec.final, rec.streaming
	}
	rec.trailing = cloneHeader(rec.header)
	a = &answer{
		status: http.StatusOK, header: rec.trailing, body: rec.body, omitted: rec.streaming ||
			rec.failed != nil || rec.short(),
	}
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

// short reports whether the body is shorter than announced. The client sees a broken answer, and a
// replay must not make it whole.
func (rec *recorder) short() bool {
	length := rec.length
	if rec.code == 0 {
		length = declared(rec.header)
	} else if noBody(rec.code) {
		return false
	}
	return int64(len(rec.body)) < length && rec.r.Method != http.MethodHead
}

// send writes the answer to the client, as it would look without the recorder, unless it was
// streamed. If early had failed, send breaks the connection, because the answer is incomplete.
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

// status returns the status of the answer; 200 if the handler set no status.
func (rec *recorder) status() int {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.code == 0 {
		return http.StatusOK
	}
	return rec.code
}

// setHeader makes the header of w equal to h. The map is changed in place, since others hold a
// reference.
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
