// Package safetext turns errors into texts for logs, dead letters and stores that quote no data (G-04).
//
// What a program says about a failure in its own words stays, since an operator needs it. What drivers, decoders and
// servers put into their errors is replaced by its kind: they quote what they were given, be it a column of somebody's
// account or the password of a database. Errors are known by their types and methods, wherever they are in a chain; a
// second look at the text finds the best known of them where they were flattened to text before, and passwords in
// addresses.
//
// docs/decisions/secrets.md says what is taken out, what stays, and why.
package safetext

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

const (
	// maxNodes bounds how many errors of a tree are looked at, and maxDepth how deep they may lie.
	maxNodes = 256
	maxDepth = 64
	// maxPaths bounds how often a tree is walked through when it is asked for its text: an error may share its causes, so that
	// its text grows exponentially with its size.
	maxPaths = 1024
	// maxText is how much of a text is looked at, and the most that is returned.
	maxText = 4 << 10
)

// Text returns what err says, without what others have quoted in it. It is empty for nil, and at most 4 KiB. It takes time
// in proportion to the texts in err's tree, whose size is bounded; a tree that is larger than that is named by its first
// errors.
func Text(err error) string {
	if err == nil {
		return ""
	}
	var w walk
	n := w.visit(err, 0)
	return scrub(cut(w.text(n)))
}

// MaxLine is how long a text may be in a log line, a dead letter or a store.
const MaxLine = 1 << 10

// Line is [Text], cut to [MaxLine] bytes of valid UTF-8.
func Line(err error) string {
	text := Text(err)
	return strings.ToValidUTF8(text[:min(len(text), MaxLine)], "")
}

// Strict returns what is known of err, and nothing in words that are not ours: errors of decoders speak of nothing but the
// data. The empty text for nil.
func Strict(err error) string {
	if err == nil {
		return ""
	}
	var w walk
	w.visit(err, 0)
	for _, n := range w.nodes {
		if n.known {
			return cut(n.safe)
		}
	}
	return fmt.Sprintf("%T", err)
}

// swap is a part of a text and what to write in its place.
type swap struct{ raw, safe string }

// node is an error that was looked at.
type node struct {
	err    error
	known  bool
	safe   string // if known
	swaps  []swap // parts of what it says
	causes []*node
	paths  int // from it down; maxPaths+1 if there are more, or if not all could be looked at
}

// walk is a bounded walk over the tree of an error. Errors that can be compared are visited once.
type walk struct {
	nodes []*node
	seen  map[error]*node
}

// visit returns nil for an error that is out of bounds.
func (w *walk) visit(err error, depth int) *node {
	same := reflect.ValueOf(err).Comparable()
	if same && w.seen[err] != nil {
		return w.seen[err]
	}
	if depth >= maxDepth || len(w.nodes) >= maxNodes {
		return nil
	}
	n := &node{err: err, paths: maxPaths + 1} // meanwhile: an error may contain itself
	w.nodes = append(w.nodes, n)
	if same {
		if w.seen == nil {
			w.seen = make(map[error]*node)
		}
		w.seen[err] = n
	}
	paths := 1
	if n.safe, n.swaps, n.known = knownText(err); !n.known {
		for _, c := range causes(err) {
			inner := w.visit(c, depth+1)
			if inner == nil {
				paths = maxPaths + 1
				break
			}
			n.causes = append(n.causes, inner)
			paths = min(paths+inner.paths, maxPaths+1)
		}
	}
	n.paths = paths
	return n
}

var joinType = reflect.TypeOf(errors.Join(errors.New("")))

// text of an error: its own words around those of its causes.
func (w *walk) text(n *node) string {
	switch {
	case n.known:
		return n.safe
	case n.paths <= maxPaths:
		return w.replaced(message(n.err))
	}
	// It must not be asked for its text, which may be longer than any memory.
	var b strings.Builder
	if reflect.TypeOf(n.err) != joinType {
		fmt.Fprintf(&b, "%T: ", n.err)
	}
	for i, inner := range w.firsts(n) {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(w.text(inner))
	}
	b.WriteString("\n…")
	return b.String()
}

// firsts are the first errors below n, or further down, that may be asked for their text.
func (w *walk) firsts(n *node) []*node {
	for range maxDepth {
		var list []*node
		for _, c := range n.causes {
			if c.paths <= maxPaths {
				list = append(list, c)
			}
		}
		if len(list) > 0 || len(n.causes) == 0 {
			return list[:min(len(list), 16)]
		}
		n = n.causes[0]
	}
	return nil
}

// replaced puts what is known of the errors of the tree in the place of what they say, the longest first: one may
// contain another.
func (w *walk) replaced(text string) string {
	var swaps []swap
	for _, n := range w.nodes {
		if n.known {
			swaps = append(swaps, swap{message(n.err), n.safe})
		}
		swaps = append(swaps, n.swaps...)
	}
	swaps = slices.DeleteFunc(swaps, func(s swap) bool { return s.raw == s.safe || s.raw == "" })
	if len(swaps) == 0 {
		return text
	}
	slices.SortStableFunc(swaps, func(a, b swap) int { return len(b.raw) - len(a.raw) })
	args := make([]string, 0, 2*len(swaps))
	for _, s := range swaps {
		args = append(args, s.raw, s.safe)
	}
	return strings.NewReplacer(args...).Replace(text)
}

// causes of an error that are not nil.
func causes(err error) (list []error) {
	defer func() {
		if recover() != nil { // a nil pointer in an interface
			list = nil
		}
	}()
	switch e := err.(type) { //nolint:errorlint // the tree is walked here
	case interface{ Unwrap() error }:
		list = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		list = e.Unwrap()
	}
	return slices.DeleteFunc(slices.Clone(list), func(err error) bool { return err == nil })
}

// message is what err says by itself.
func message(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T that has no text", err)
		}
	}()
	return err.Error()
}

// cut shortens a text to what is looked at.
func cut(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
		// Where an address is cut off, nobody can tell a password from a host.
		if at := strings.LastIndex(s, "://"); at >= 0 && !strings.ContainsAny(s[at:], " \n\t@") {
			s = s[:at]
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
