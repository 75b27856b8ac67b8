package engine

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tableRow is one row of a decision table. The first row that fits an input decides.
type tableRow[I any, W comparable] struct {
	id   string
	when func(*I) bool
	want func(*I) W
	words
}

// words has the place of a row in docs/guarantees.md: a line of its own, the line of another row,
// or no line.
type words struct {
	lines  []pageLine
	sameAs string // id of the row with the same line
	absent string // why the page does not say it
}

// pageLine is a line of a table of the page: input, condition, result.
type pageLine struct {
	table string
	cells []string
}

// decisionTable is every case of one pure function.
type decisionTable[I any, W comparable] []tableRow[I, W]

// first returns the index of the first row from that fits in, or -1.
func (rows decisionTable[I, W]) first(in *I, from int) int {
	for i := from; i < len(rows); i++ {
		if rows[i].when(in) {
			return i
		}
	}
	return -1
}

// decide returns the result of the table for an input.
func (rows decisionTable[I, W]) decide(in *I) (want W, ok bool) {
	i := rows.first(in, 0)
	if i < 0 {
		return want, false
	}
	return rows[i].want(in), true
}

// maxProblems is how many disagreements a test prints.
const maxProblems = 3

// check compares the table with the function. agrees returns the difference, or an empty text.
// Every input must have a row, every row must decide an input, and no row may be one that the rows
// behind it make superfluous.
func (rows decisionTable[I, W]) check(t *testing.T, walk func(yield func(*I)), agrees func(in *I, want W) string) {
	t.Helper()
	rows.checkWords(t)
	reached, needed := make([]int, len(rows)), make([]bool, len(rows))
	inputs, problems := 0, 0
	report := func(format string, args ...any) {
		if problems++; problems <= maxProblems {
			t.Errorf(format, args...)
		}
	}
	walk(func(in *I) {
		inputs++
		i := rows.first(in, 0)
		if i < 0 {
			report("no row for %+v", *in)
			return
		}
		want := rows[i].want(in)
		if problem := agrees(in, want); problem != "" {
			report("row %s: %s\ninput %+v", rows[i].id, problem, *in)
		}
		reached[i]++
		if !needed[i] {
			next := rows.first(in, i+1)
			needed[i] = next < 0 || rows[next].want(in) != want
		}
	})
	for i, r := range rows {
		if reached[i] == 0 {
			t.Errorf("row %s: no input reaches it", r.id)
		} else if !needed[i] {
			t.Errorf("row %s: the rows behind it say the same", r.id)
		}
	}
	t.Logf("%d inputs, %d rows, %d disagreements", inputs, len(rows), problems)
}

// checkWords looks for rows with the same id, and for rows that neither the page says nor a reason
// keeps from it.
func (rows decisionTable[I, W]) checkWords(t *testing.T) {
	t.Helper()
	lines := map[string]bool{}
	for i, r := range rows {
		require.NotEmpty(t, r.id, "row %d", i)
		_, twice := lines[r.id]
		require.False(t, twice, "two rows %s", r.id)
		lines[r.id] = len(r.lines) > 0
		given := 0
		for _, has := range []bool{len(r.lines) > 0, r.sameAs != "", r.absent != ""} {
			if has {
				given++
			}
		}
		require.Equal(t, 1, given, "row %s: a line, the row that has its line, or why there is none", r.id)
	}
	for _, r := range rows {
		if r.sameAs != "" {
			require.True(t, lines[r.sameAs], "row %s: there is no line of row %s", r.id, r.sameAs)
		}
	}
}

// page makes a table of docs/guarantees.md from the rows.
func (rows decisionTable[I, W]) page(name string, head ...string) pageTable {
	p := pageTable{name: name, head: head}
	for _, r := range rows {
		for _, l := range r.lines {
			if l.table == name {
				p.lines = append(p.lines, l.cells)
			}
		}
	}
	return p
}

func line(table string, cells ...string) words { return words{lines: []pageLine{{table, cells}}} }

// and adds a line of another table.
func (w words) and(table string, cells ...string) words {
	w.lines = append(w.lines, pageLine{table, cells})
	return w
}

func sameAs(id string) words { return words{sameAs: id} }

func absent(why string) words { return words{absent: why} }

// always fits every input that comes so far.
func always[I any](*I) bool { return true }

func constant[I, W any](w W) func(*I) W { return func(*I) W { return w } }

// pageTable is a table of docs/guarantees.md that is made from rows.
type pageTable struct {
	name  string
	head  []string
	lines [][]string
}

func (p *pageTable) String() string {
	var b strings.Builder
	write := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	write(p.head)
	b.WriteString(strings.Repeat("|---", len(p.head)) + "|\n")
	for _, l := range p.lines {
		write(l)
	}
	return b.String()
}

func guaranteesTables() []pageTable {
	return []pageTable{
		verdictTable.page("verdict", "answer", "condition", "Idem"),
		verdictTable.page("conflict", "the other event", "`WhenConflict`", "Idem"),
		classifyTable.page("classify", "the handler", "result", "class of a dead letter"),
		batchTable.page("batch", "the handler returns", "events", "result"),
		decideTable.page("decide", "result", "condition", "Idem", "`On` records"),
		triesTable.page("tries", "event", "condition", "then"),
		noteTable.page("outage", "outage", "condition", "counts as"),
		decideTable.page("delayed", "order mode", "condition", "Idem"),
	}
}

var pageMarker = regexp.MustCompile(`(?s)<!-- table:(\w+) -->\n(.*?)<!-- /table -->`)

// The tables of docs/guarantees.md have the content of the decision tables. IDEM_UPDATE_DOCS=1
// writes them.
func TestGuarantees(t *testing.T) {
	const path = "../../docs/guarantees.md"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	tables := guaranteesTables()
	var found []string
	wanted := pageMarker.ReplaceAllStringFunc(string(page), func(block string) string {
		name := pageMarker.FindStringSubmatch(block)[1]
		found = append(found, name)
		i := slices.IndexFunc(tables, func(p pageTable) bool { return p.name == name })
		if i < 0 {
			t.Errorf("%s: there is no table %s", path, name)
			return block
		}
		require.NotEmpty(t, tables[i].lines, name)
		for _, l := range tables[i].lines {
			require.Len(t, l, len(tables[i].head), "table %s: %v", name, l)
		}
		return "<!-- table:" + name + " -->\n" + tables[i].String() + "<!-- /table -->"
	})
	for _, p := range tables {
		require.Contains(t, found, p.name, "%s has no markers <!-- table:%s --> and <!-- /table -->", path, p.name)
	}
	if os.Getenv("IDEM_UPDATE_DOCS") != "" {
		require.NoError(t, os.WriteFile(path, []byte(wanted), 0o644))
		return
	}
	if wanted == string(page) {
		return
	}
	is := pageMarker.FindAllString(string(page), -1)
	for i, want := range pageMarker.FindAllString(wanted, -1) {
		if is[i] != want {
			t.Errorf("%s differs from the decision tables, which say:\n%s\nIDEM_UPDATE_DOCS=1 go test -run TestGuarantees . writes it", path, want)
		}
	}
}
