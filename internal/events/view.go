package events

import (
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/jsontime"
)

// View is a record for people and scripts. Times are those of the server. A time that
// JSON does not have is left out. Texts of producers and
// handlers are unchanged (G-04).
type View struct {
	Store         string `json:"store"`
	Scope         string `json:"scope"`
	Type          string `json:"type"`
	Tenant        string `json:"tenant,omitempty"`
	ID            string `json:"event_id"`
	Transactional bool   `json:"transactional"`
	State         string `json:"state"`
	Settled       bool   `json:"settled"`
	Discarded     bool   `json:"discarded,omitempty"`
	Doubtful      bool   `json:"doubtful,omitempty"`
	Stuck         bool   `json:"stuck,omitempty"`
	Reason        string `json:"reason,omitempty"`
	Compared      string `json:"compared,omitempty"` // how the content of copies is compared
	// Conflicts has the noted copies with another content, at most [MaxConflicts]. Left out if the
	// store keeps no notes.
	Conflicts  []*Origin     `json:"conflicts,omitzero"`
	Failures   uint32        `json:"failures"`
	Takeovers  uint32        `json:"takeovers"`
	Fence      uint64        `json:"fence"`
	Generation uint32        `json:"generation"`
	Retry      uint32        `json:"retry"`
	Lease      string        `json:"lease,omitempty"`
	Origin     *Origin       `json:"origin,omitempty"`
	Created    *time.Time    `json:"created,omitempty"`
	Changed    *time.Time    `json:"changed,omitempty"`
	Expires    *time.Time    `json:"expires,omitempty"`
	Deferred   *DeferredView `json:"deferred,omitempty"`
	Next       string        `json:"next,omitempty"`
}

// Origin is where a record of a topic was.
type Origin struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Offset    int64      `json:"offset"`
	Time      *time.Time `json:"time,omitempty"`
}

// DeferredView is the place of an event in a queue.
type DeferredView struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Queue     string `json:"queue"`
	Head      bool   `json:"head"`
	HeadID    string `json:"head_id"`
	Blocked   bool   `json:"blocked"`
	Wait      string `json:"wait,omitempty"`
	Others    int    `json:"others"` // other events in the queue; -1: not known
}

// Views returns the records of the event. For an event without a record, the result is one view of
// the deferral.
func (e *Event) Views() []View {
	if len(e.Records) == 0 && e.Deferred != nil {
		return []View{
			e.View(
				dedup.Record{
					Key: e.Key, First: e.Deferred.Event.Origin, Position: e.Deferred.Event.Position,
				},
			),
		}
	}
	var all []View
	for _, r := range e.Records {
		all = append(all, e.View(r))
	}
	return all
}

// View is one record of the event.
func (e *Event) View(r dedup.Record) View {
	v := View{
		Store: e.Store.Name, Scope: r.Key.Scope, Type: r.Key.Type, Tenant: r.Key.Tenant, ID: r.Key.ID, Transactional: r.Tx,
		State: r.State.String(), Settled: r.Settled(), Discarded: r.Discarded(), Doubtful: r.Doubtful, Stuck: Stuck(r),
		Reason: r.Reason, Failures: r.Failures, Takeovers: r.Takeovers, Fence: r.Fence,
		Generation: r.Position.Generation, Retry: r.Position.Retry,
		Origin: originOf(r.First), Created: jsontime.Pointer(r.Created),
		Changed: jsontime.Pointer(r.Changed), Expires: jsontime.Pointer(r.Expires),
		Next: e.Next(r),
	}
	if r.State != 0 {
		v.Compared = r.Compared.String()
		if e.Conflicts != nil {
			v.Conflicts = []*Origin{}
		}
		for _, o := range e.Conflicts {
			v.Conflicts = append(v.Conflicts, originOf(o))
		}
	}
	if r.State == dedup.Claimed {
		v.Lease = Short(r.Lease)
	}
	if p := e.Deferred; p != nil {
		v.Deferred = &DeferredView{
			Topic: p.Partition.Topic, Partition: p.Partition.Partition, Queue: p.Event.Queue, Head: p.IsHead(), HeadID: p.Head.Key.ID,
			Blocked: p.Head.Blocked, Others: p.Behind,
		}
		if p.Head.Wait > 0 {
			v.Deferred.Wait = Short(p.Head.Wait)
		}
	}
	return v
}

func originOf(o dedup.Origin) *Origin {
	if o == (dedup.Origin{}) {
		return nil
	}
	return &Origin{o.Topic, o.Partition, o.Offset, jsontime.Pointer(o.Time)}
}

// ContentText describes how the contents of copies are compared with a record, and which copies
// differed. Empty without a record.
func (v *View) ContentText() string {
	switch {
	case v.Compared == "" || v.Compared == dedup.NotCompared.String():
		return v.Compared
	case v.Conflicts == nil:
		return "compared by " + v.Compared
	case len(v.Conflicts) == 0:
		return "compared by " + v.Compared + ", no copy that differs was noted in the last day"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "compared by %s, copies that differ:", v.Compared)
	for i, o := range v.Conflicts {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s/%d offset %d", o.Topic, o.Partition, o.Offset)
	}
	if len(v.Conflicts) == MaxConflicts {
		b.WriteString(", and maybe more")
	}
	return b.String()
}
