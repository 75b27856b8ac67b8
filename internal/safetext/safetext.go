// Package safetext turns errors into texts for logs, dead letters and stores. The texts quote no
// data (G-04).
//
// Text that the program wrote itself stays, for the operator. Texts of drivers, decoders and
// servers are replaced by their kind, because they quote input. Examples are a column of a
// customer's row, and the password of a database. An error is recognised by its type and methods,
// anywhere in a chain. A second pass over the text finds the most common of these errors after a
// program has flattened them, and passwords in addresses.
//
// docs/decisions/secrets.md lists the removed and the kept parts, with reasons.
package safetext

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

const (
	// maxNodes bounds the number of errors of a tree that are visited, and maxDepth their depth.
	maxNodes = 256
	maxDepth = 64
	// maxPaths bounds the number of paths through a tree before its text is requested. Errors may
	// share causes, and then the text grows exponentially with the tree.
	maxPaths = 1024
	// maxText bounds the input and the result, in bytes.
	maxText = 4 << 10
)

// Text returns the text of err without quoted data. The result is empty for nil, and at most 4 KiB.
// The time is proportional to the texts in the tree of err, up to a limit. Of a larger
// tree, Text returns the first errors only.
func Text(err error) string {
	if err == nil {
		return ""
	}
	var w walk
	n := w.visit(err, 0)
	return scrub(cut(w.text(n)))
}

// MaxLine is the largest length of a text in a log line, a dead letter or a store, in bytes.
const MaxLine = 1 << 10

// Line returns [Text], cut to [MaxLine] bytes of valid UTF-8.
func Line(err error) string {
	text := Text(err)
	return strings.ToValidUTF8(text[:min(len(text), MaxLine)], "")
}

// Strict returns the safe text of the first known error in the tree of err, and otherwise only the
// type of err. It is for decoders, because their errors consist of data. The result is empty for
// nil.
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

// swap is a part of a text and its replacement.
type swap struct{ raw, safe string }

// node is a visited error.
type node struct {
	err    error
	known  bool
	safe   string // if known
	swaps  []swap // parts of its text to replace
	causes []*node
	// number of paths from here down; maxPaths+1 if there are more, or if some were not visited
	paths int
}

// walk is a bounded walk over the tree of an error. Comparable errors are visited once.
type walk struct {
	nodes []*node
	seen  map[error]*node
}

// visit returns nil for an error beyond the bounds.
func (w *walk) visit(err error, depth int) *node {
	same := reflect.ValueOf(err).Comparable()
	if same && w.seen[err] != nil {
		return w.seen[err]
	}
	if depth >= maxDepth || len(w.nodes) >= maxNodes {
		return nil
	}
	n := &node{err: err, paths: maxPaths + 1} // until it is counted: an error may contain itself
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

// text returns the text of an error: the own words around the texts of the causes.
func (w *walk) text(n *node) string {
	switch {
	case n.known:
		return n.safe
	case n.paths <= maxPaths:
		return w.replaced(message(n.err))
	}
	// Do not call Error: the text may be larger than memory.
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

// firsts returns the nearest errors below n with a text of bounded size.
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

// replaced replaces the texts of the known errors in the tree by their safe texts. Longer texts
// come first, because one text may contain another.
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

// causes returns the non-nil causes of an error.
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

// message returns the text of err alone.
func message(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T that has no text", err)
		}
	}()
	return err.Error()
}

// cut shortens a text to maxText.
func cut(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
		// In an address that is cut off, a password cannot be distinguished from a host.
		if at := strings.LastIndex(s, "://"); at >= 0 && !strings.ContainsAny(s[at:], " \n\t@") {
			s = s[:at]
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
