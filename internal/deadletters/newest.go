package deadletters

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/kafkalog"
)

// Page is the newest part of a list.
type Page struct {
	// Rows has the chosen dead letters, the newest first.
	Rows []Row
	// Scanned counts the records that were read.
	Scanned int
	// More reports that older dead letters may match.
	More bool
}

// Last is the place of the last row in the list, for [Filter].After of the next page. Nil without
// rows.
func (p *Page) Last() *Cursor {
	if len(p.Rows) == 0 {
		return nil
	}
	last := &p.Rows[len(p.Rows)-1]
	at, _ := ParsePlace(last.Record) // written by this package
	return &Cursor{last.Failed.Time, at}
}

// Cursor is a place in the list of [Queue.Newest]: that of one dead letter. No two dead letters have
// the same place, also if they failed at the same time.
type Cursor struct {
	// Failed is [Found.Failed] of the dead letter.
	Failed time.Time
	// Place is where the dead letter is in its topic.
	Place Place
}

// compare orders the newest first.
func (c Cursor) compare(other Cursor) int {
	return cmp.Or(
		other.Failed.Compare(c.Failed), cmp.Compare(c.Place.Partition, other.Place.Partition),
		cmp.Compare(other.Place.Offset, c.Place.Offset),
	)
}

// DefaultPage is the default limit of rows of a [Page].
const DefaultPage = 100

// The parts of a partition that are read at a time grow: most filters find little.
const (
	firstPart = 256
	largePart = 8192
)

// Newest returns the newest dead letters that f chooses, at most limit of them, by the time of the
// last failure ([Found.Failed]). A limit of zero or less means [DefaultPage]. Newest reads the
// partitions backwards in parts, so that the first page of a long topic comes quickly. It reads no
// further part of a partition with limit dead letters: those before are taken for older. When ctx
// ends, the result has the newest dead letters that were found, with the error.
func (q *Queue) Newest(ctx context.Context, f Filter, limit int) (Page, error) {
	if limit <= 0 {
		limit = DefaultPage
	}
	n := newest{q: q, f: f, limit: limit}
	for _, s := range f.narrow(q.spans) {
		n.tails = append(n.tails, &tail{Span: s, part: firstPart})
	}
	err := n.read(ctx)
	n.sort()
	page := Page{Scanned: n.scanned, More: n.cut}
	for _, l := range n.found {
		page.Rows = append(page.Rows, l.row)
	}
	for _, t := range n.tails {
		page.More = page.More || t.Begin < t.End
	}
	return page, err
}

// tail is the unread part of a span. Its end moves towards the begin.
type tail struct {
	kafkalog.Span
	part  int64
	found int
}

// dated is a dead letter of a page.
type dated struct {
	Cursor // by which pages are divided
	row    Row
}

type newest struct {
	q       *Queue
	f       Filter
	limit   int
	tails   []*tail
	found   []dated
	scanned int
	cut     bool // a dead letter that was found is left out
}

// read takes one part of each partition in turn, so that all of them are as far when ctx ends.
func (n *newest) read(ctx context.Context) error {
	for open := true; open; {
		open = false
		for _, t := range n.tails {
			if t.Begin >= t.End || t.found >= n.limit {
				continue
			}
			open = true
			if err := n.readPart(ctx, t); err != nil {
				return err
			}
		}
		n.sort()
	}
	return nil
}

// readPart reads the last part of t. The result counts only if the part was read completely, so
// that no gap remains.
func (n *newest) readPart(ctx context.Context, t *tail) error {
	part := t.Span
	part.Begin = max(t.Begin, t.End-t.part)
	before := len(n.found)
	scanned, err := scan(
		ctx,
		n.q.Client,
		[]kafkalog.Span{part},
		chosenBy(n.f, func(l *Found) (bool, error) {
			n.found = append(n.found, dated{Cursor{l.Failed(), l.Place}, l.Row()})
			if len(n.found) >= before+2*n.limit { // rows may be large: few are kept
				n.trim(before)
			}
			return true, nil
		}),
	)
	n.scanned += scanned
	if err != nil {
		n.found = n.found[:before]
		return err
	}
	n.trim(before)
	t.found += len(n.found) - before
	t.End = part.Begin
	t.part = min(2*t.part, largePart)
	return nil
}

// sort keeps the newest.
func (n *newest) sort() { n.trim(0) }

// trim sorts the dead letters from index first on, and keeps no more of them than may be shown: the
// newest.
func (n *newest) trim(first int) {
	slices.SortFunc(n.found[first:], func(a, b dated) int { return a.compare(b.Cursor) })
	if most := first + n.limit; len(n.found) > most {
		clear(n.found[most:]) // for the garbage collector
		n.found, n.cut = n.found[:most], true
	}
}
