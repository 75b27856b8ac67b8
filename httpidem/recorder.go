package httpidem

import "net/http"

// recorder is the ResponseWriter of a keyed request: it holds back what the handler writes until that is stored.
type recorder struct {
	w http.ResponseWriter
	// early is called once, when an answer must leave before its handler has ended (a Flush that streams, or more than buffer
	// bytes): it stores that the answer was given. If it returns an error nothing leaves, and Write returns that error.
	early func(*answer) error
}

// newRecorder returns a recorder that holds back at most buffer bytes.
func newRecorder(w http.ResponseWriter, r *http.Request, buffer int, streamOnFlush bool, early func(*answer) error) *recorder {
	panic("TODO")
}

func (rec *recorder) Header() http.Header         { panic("TODO") }
func (rec *recorder) WriteHeader(status int)      { panic("TODO") }
func (rec *recorder) Write(b []byte) (int, error) { panic("TODO") }

// finish ends the recording and returns what the handler answered. streamed says that it has left already.
func (rec *recorder) finish() (a *answer, streamed bool) { panic("TODO") }

// send gives the client what the handler answered, as it would have looked without the recorder. Nothing if it was streamed.
func (rec *recorder) send() { panic("TODO") }

// status that the handler answered; 200 if it said none.
func (rec *recorder) status() int { panic("TODO") }
