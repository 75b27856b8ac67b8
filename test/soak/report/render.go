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

// render returns the section without its heading. ran tells when and where.
func (r results) render(ran string) string {
	var b strings.Builder
	var all row
	for _, x := range r.rows {
		all.events += x.events
		all.kills += x.kills
		all.cuts += x.cuts
		all.rebalances += x.rebalances
	}
	fmt.Fprintf(&b, "\n`make soak` runs the long forms of all tests, and writes this section. %s\n\n", ran)
	fmt.Fprintf(&b, "**%s events**, %s kills, %s lost requests or connections, %s rebalances by the tests.\n",
		thousands(all.events), thousands(all.kills), thousands(all.cuts), thousands(all.rebalances))
	if len(r.failed) == 0 {
		fmt.Fprintf(&b, "All tests of %d packages passed.\n", r.passed)
	} else {
		slices.Sort(r.failed)
		fmt.Fprintf(&b, "%d packages passed. These tests or packages failed: %s.\n", r.passed,
			strings.Join(slices.Compact(r.failed), ", "))
	}
	b.WriteString("\n| test | seed | events | kills | cuts | rebalances | outcome |\n|---|---|---|---|---|---|---|\n")
	for _, x := range r.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", cell(x.test), x.seed, thousands(x.events),
			thousands(x.kills), thousands(x.cuts), thousands(x.rebalances), cell(x.outcome))
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
