package replay

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Plan has the records that a replay reads. The ends are fixed: records that are written later are
// not read. A Plan may be kept as JSON, to continue an interrupted replay with the same ends.
type Plan struct {
	// Scope is the scope of events in the store, for handlers without the option Scope.
	Scope string `json:"scope"`
	// Made is the time of the plan.
	Made time.Time `json:"made"`
	// Partitions are ordered by topic and partition. Partitions without records of the window are
	// listed too.
	Partitions []PartitionPlan `json:"partitions"`
}

// PartitionPlan has the records of one partition.
type PartitionPlan struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// First is the first offset to read, and End the offset behind the last. They are equal if the
	// partition has no record of the window.
	First int64 `json:"first"`
	End   int64 `json:"end"`
	// FirstTime and LastTime are the times of the first and the last record. Zero: the partition
	// has no record of the window, the search near the end found no record, or the time lies
	// outside of the years 1 to 9999, which JSON does not have.
	FirstTime time.Time `json:"first_time,omitzero"`
	LastTime  time.Time `json:"last_time,omitzero"`
	// Deleted is the number of offsets of a window of offsets that Kafka has deleted.
	Deleted int64 `json:"deleted,omitempty"`
	// MaybeDeleted is set if Kafka may have deleted records of a window of time. The beginning of
	// the log is deleted then, and the window begins before the first record that is left.
	MaybeDeleted bool `json:"maybe_deleted,omitempty"`
	// Beyond is the number of offsets of the window that are not written yet. They are not read.
	Beyond int64 `json:"beyond,omitempty"`
	// Open is the number of offsets of the window behind the begin of an open transaction. They are
	// not read.
	Open int64 `json:"open,omitempty"`
}

// Records returns the greatest possible number of records. Markers of transactions, aborted records
// and records that compaction removed have offsets too.
func (p PartitionPlan) Records() int64 { return max(p.End-p.First, 0) }

func (p PartitionPlan) place() place { return place{p.Topic, p.Partition} }

// Records returns the greatest possible number of records of all partitions.
func (p Plan) Records() (n int64) {
	for _, part := range p.Partitions {
		n += part.Records()
	}
	return n
}

// From returns the plan without the records before a position, to continue after [Result].Position.
// An offset outside of the plan of its partition counts as the nearest one inside.
func (p Plan) From(at Position) Plan {
	p.Partitions = slices.Clone(p.Partitions)
	for i := range p.Partitions {
		part := &p.Partitions[i]
		if next, ok := at[part.Topic][part.Partition]; ok {
			part.First = min(max(next, part.First), part.End)
			part.Deleted, part.MaybeDeleted = 0, false
		}
	}
	return p
}

// Position is how far a replay is, by topic and partition: all records before the offset are
// settled. It may be kept as JSON.
type Position map[string]map[int32]int64

func (p Position) set(at place, next int64) {
	if p[at.topic] == nil {
		p[at.topic] = make(map[int32]int64)
	}
	p[at.topic][at.id] = next
}

// Warnings returns a sentence for each part of the window that the replay does not read.
func (p Plan) Warnings() (all []string) {
	for _, part := range p.Partitions {
		add := func(format string, args ...any) {
			all = append(all, part.place().String()+": "+fmt.Sprintf(format, args...))
		}
		if part.Deleted > 0 {
			add("%d offsets of the window are deleted", part.Deleted)
		}
		if part.MaybeDeleted {
			add("the log begins at offset %d, so records of the window may be deleted", part.First)
		}
		if part.Beyond > 0 {
			add("%d offsets of the window are not written yet", part.Beyond)
		}
		if part.Open > 0 {
			add("%d offsets of the window lie behind the begin of an open transaction", part.Open)
		}
	}
	return all
}

// maxRows bounds the rows of a printed plan.
const maxRows = 200

// WriteTo writes the plan as a table, and the warnings, for a person. Of more than 200 partitions
// with records, and of more than 200 warnings, the others are only counted.
func (p Plan) WriteTo(w io.Writer) (int64, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "scope %s: at most %d records\n", p.Scope, p.Records())
	t := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tPARTITION\tFIRST\tEND\tRECORDS AT MOST\tFROM\tTO")
	rows, more := 0, 0
	for _, part := range p.Partitions {
		switch {
		case part.Records() == 0:
			continue
		case rows == maxRows:
			more++
			continue
		}
		rows++
		fmt.Fprintln(t, strings.Join([]string{
			part.Topic, strconv.Itoa(int(part.Partition)), strconv.FormatInt(part.First, 10),
			strconv.FormatInt(part.End, 10), strconv.FormatInt(part.Records(), 10),
			timeText(part.FirstTime), timeText(part.LastTime),
		}, "\t"))
	}
	_ = t.Flush() // a Builder takes everything
	if more > 0 {
		fmt.Fprintf(&text, "and %d partitions more\n", more)
	}
	warnings := p.Warnings()
	for _, line := range warnings[:min(len(warnings), maxRows)] {
		fmt.Fprintf(&text, "warning: %s\n", line)
	}
	if more := len(warnings) - maxRows; more > 0 {
		fmt.Fprintf(&text, "and %d warnings more\n", more)
	}
	n, err := io.WriteString(w, text.String())
	return int64(n), err
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// check returns why a plan must not be run in a scope, by a group that consumes topics.
func (p Plan) check(scope string, topics []string, skipDeleted bool) error {
	if p.Scope != scope {
		return fmt.Errorf("the plan is for scope %q, this replay has scope %q", p.Scope, scope)
	}
	seen := make(map[place]bool)
	deleted := &DeletedError{}
	for _, part := range p.Partitions {
		switch at := part.place(); {
		case !slices.Contains(topics, part.Topic):
			return fmt.Errorf("the plan has the topic %q, which the group does not consume", part.Topic)
		case part.First < 0 || part.End < part.First:
			return fmt.Errorf("the plan has an invalid range of %s: %d to %d", at, part.First, part.End)
		case seen[at]:
			return fmt.Errorf("the plan has %s twice", at)
		case part.Deleted > 0 || part.MaybeDeleted:
			deleted.Partitions = append(deleted.Partitions, part)
		}
		seen[part.place()] = true
	}
	if len(deleted.Partitions) > 0 && !skipDeleted {
		return deleted
	}
	return nil
}
