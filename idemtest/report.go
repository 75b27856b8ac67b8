package idemtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// storyLines is the length of a story.
const storyLines = 60

// report describes a broken run.
func report(s schedule, clean, broken outcomeOf, of *search) string {
	var b strings.Builder
	if len(s) == 0 {
		b.WriteString("idemtest: the handler does not survive a repetition without any fault\n\n")
	} else {
		fmt.Fprintf(&b, "idemtest: the handler does not survive the schedule %q\n\n", s)
	}
	fmt.Fprintf(&b, "%s\n", story(broken.trace))
	if broken.err != nil {
		fmt.Fprintf(&b, "the work did not end: %v\n", broken.err)
	}
	fmt.Fprintf(&b, "state without faults: %+v\nstate now:            %+v\n", clean.state, broken.state)
	if len(clean.answers) > 0 {
		fmt.Fprintf(&b, "answer without faults: %+v\nanswers now:           %s\n",
			clean.answers[0], list(broken.answers))
	}
	if len(clean.dead)+len(broken.dead) > 0 {
		fmt.Fprintf(&b, "dead letters without faults: %s\ndead letters now:            %s\n",
			events(clean.dead), events(broken.dead))
	}
	for _, d := range more(broken, clean) {
		fmt.Fprintf(&b, "%q%s had its effect %s, and %s without faults: %s\n",
			d.what, forEvent(d), times(len(d.calls)), times(d.fewer), advice(d, clean))
	}
	for _, d := range lost(clean, broken) {
		fmt.Fprintf(&b, "%q%s had its effect %s, and %s without faults: an effect is lost\n",
			d.what, forEvent(d), times(d.fewer), times(len(d.calls)))
	}
	if len(s) > 0 {
		fmt.Fprintf(&b, "repeat with the option idemtest.Only(%q)", s)
		if of.only == "" {
			fmt.Fprintf(&b, ", found with seed %d", of.seed)
		}
		fmt.Fprintf(&b, ":\n\n%s", of.again.code(s))
	}
	return b.String()
}

// list describes answers, each different one once.
func list(answers []any) string { return strings.Join(different(answers), ", then ") }

// events describes dead letters, each different one once.
func events(dead []deadLetter) string {
	return cmp.Or(strings.Join(different(dead), ", "), "none")
}

// different returns the texts of values, each different one once.
func different[T any](values []T) (texts []string) {
	for _, v := range values {
		if text := fmt.Sprintf("%+v", v); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}

// forEvent names the event of a call, if there is one.
func forEvent(d difference) string {
	if d.event.ID == "" {
		return ""
	}
	return fmt.Sprintf(" for event %q", d.event.ID)
}

func times(n int) string {
	if n == 1 {
		return "1 time"
	}
	return fmt.Sprintf("%d times", n)
}

// advice explains why a call had its effect again.
func advice(d difference, clean outcomeOf) string {
	if d.otherKey() {
		return "its idempotency key differs from run to run; make it from the event or the caller's key"
	}
	if d.fewer == 0 && elsewhere(d, clean) {
		return "the ID of the event differs from run to run; make it from the caller's key, not from the time"
	}
	if d.fewer == 0 {
		return "only a run with a fault makes this call; if it does no harm, accept it with AcceptRepeats"
	}
	return "it has no idempotency key; pass one made from the event or the caller's key, or accept it " +
		"with AcceptRepeats"
}

// elsewhere reports whether the clean run made a call for other events only.
func elsewhere(d difference, clean outcomeOf) (other bool) {
	for at := range clean.calls {
		if at.event == d.event {
			return false
		}
		other = other || at.what == d.what
	}
	return other
}

// story returns the lines of a trace, with the time since the begin of the run. Equal lines that
// follow each other appear once.
func story(trace []told) string {
	var b strings.Builder
	for i, lines := 0, 0; i < len(trace); lines++ {
		if lines == storyLines {
			fmt.Fprintf(&b, "... and %d more lines\n", len(trace)-i)
			break
		}
		same := i + 1
		for same < len(trace) && trace[same].line == trace[i].line {
			same++
		}
		fmt.Fprintf(&b, "%8s  %s", trace[i].after.Round(time.Millisecond), trace[i].line)
		if same > i+1 {
			fmt.Fprintf(&b, " (%d times)", same-i)
		}
		b.WriteByte('\n')
		i = same
	}
	return b.String()
}
