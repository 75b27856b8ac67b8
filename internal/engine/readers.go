package engine

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/decoded"
)

// readers has the health of each Decoder. An outage is reported once, not once per event.
type readers struct {
	mu  sync.Mutex
	all map[any]*health
}

// of returns the health of a decoder. Decoders that cannot be compared share a health by name.
func (r *readers) of(d idemtype.Decoder, report *reporter) *health {
	var key any = d
	if !reflect.ValueOf(d).Comparable() {
		key = decoded.Name(d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.all[key]
	if h == nil {
		if r.all == nil {
			r.all = make(map[any]*health)
		}
		h = &health{name: decoded.Name(d), report: report}
		r.all[key] = h
	}
	return h
}

// each calls fn for the health of each decoder that was ever unavailable.
func (r *readers) each(fn func(*health)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.all {
		fn(h)
	}
}

// readerAnswered notes that a decoder has asked another service with success.
func (p *Processor) readerAnswered(d idemtype.Decoder, began time.Time) {
	p.readers.of(d, p.reporter).up(context.Background(), began)
}

// readerDown notes that the event waits for its decoder. ok is false if another function failed.
func (p *Processor) readerDown(ctx context.Context, t *task, err error) (ok bool) {
	var of *decoded.Error
	if !errors.As(err, &of) || t.memo == nil {
		return false
	}
	t.reader = p.readers.of(of.Decoder, p.reporter)
	t.reader.down(ctx, t.memo.Began, err)
	return true
}

// readerLeft ends the report of an outage that this event does not wait for any longer. If other
// events still wait, their next failure begins another report.
func (t *task) readerLeft() {
	if t.reader != nil {
		t.reader.close()
		t.reader = nil
	}
}

// pingWait limits one ping of the service of a decoder.
const pingWait = 2 * time.Second

// readerAnswers reports whether the service of the failed decoder answers. While that service is
// down, no event is the cause.
func readerAnswers(ctx context.Context, o outcome) bool {
	var of *decoded.Error
	if !o.unbegun || !errors.As(o.err, &of) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	return decoded.Ping(ctx, of.Decoder)
}
