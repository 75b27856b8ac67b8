package idemtest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// storyLines is the length of a story.
const storyLines = 60

// report describes a broken run.
func report(s schedule, clean, broken outcomeOf, again repetition) string {
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
	if len(broken.dead) > 0 {
		fmt.Fprintf(&b, "dead letters: %s\n", strings.Join(broken.dead, ", "))
	}
	for at, list := range broken.repeated {
		fmt.Fprintf(&b, "%q for event %q had its effect %d times: %s\n", at.what, at.event, len(list), advice(list))
	}
	if len(s) > 0 {
		fmt.Fprintf(&b, "repeat with the option idemtest.Only(%q):\n\n%s", s, again.code(s))
	}
	return b.String()
}

// list describes answers, each different one once.
func list(answers []any) string {
	var texts []string
	for _, a := range answers {
		if text := fmt.Sprintf("%+v", a); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", then ")
}

// advice explains why a call had its effect again.
func advice(list []call) string {
	if slices.ContainsFunc(list, func(c call) bool { return c.key != "" }) {
		return "its idempotency key differs from run to run; make it from the event or the caller's key"
	}
	return "it has no idempotency key; pass one made from the event or the caller's key, or accept it " +
		"with AcceptRepeats"
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
