package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// faults lists the faults that soaks have found. People write the file.
//
//go:embed faults.md
var faults string

// render returns the section without its heading. ran is the time and the place of the run.
func (r results) render(ran string) string {
	var b strings.Builder
	var all row
	commits := 0
	for _, x := range r.rows {
		all.events += x.events
		all.kills += x.kills
		all.cuts += x.cuts
		if strings.Contains(x.test, "Tx ") {
			commits += x.cuts
		}
	}
	fmt.Fprintf(&b, "\n`make soak` disturbs workers that handle events: a kill -9 of a worker at work, or the loss of a\n"+
		"request to the store or of its answer; in transactions, of a COMMIT. Each event has its effect. In\n"+
		"transactions there is no repeat, and elsewhere each repeat has its key again. The offsets that the group\n"+
		"commits, and the history of each claim, are checked too. %s\n\n", ran)
	fmt.Fprintf(&b, "**%s events**, %s kills, %s cuts, of them %s of a COMMIT.\n",
		thousands(all.events), thousands(all.kills), thousands(all.cuts), thousands(commits))
	if len(r.failed) == 0 {
		fmt.Fprintf(&b, "All tests passed.\n")
	} else {
		slices.Sort(r.failed)
		fmt.Fprintf(&b, "These tests or packages failed: %s.\n",
			strings.Join(slices.Compact(r.failed), ", "))
	}
	b.WriteString("\n| test | seed | events | kills | cuts | outcome |\n|---|---|---|---|---|---|\n")
	for _, x := range r.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", cell(x.test), x.seed, thousands(x.events),
			thousands(x.kills), thousands(x.cuts), cell(x.outcome))
	}
	b.WriteString("\n" + faults)
	return b.String()
}

// cell escapes a text for a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "_", `\_`, "<", "&lt;").Replace(text)
}

// thousands writes a number with a comma before each three digits.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
