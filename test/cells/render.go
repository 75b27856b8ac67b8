package cells

import (
	"fmt"
	"slices"
	"strings"
)

// page has the part of docs/proof.md about one run of all cells.
type page struct {
	ran  string                 // when, where and how long, in one line
	came map[combination]string // the outcome as text
}

// unexpected marks an outcome that is not the expected one.
const unexpected = " UNEXPECTED"

// expected counts the cells that came as expected.
func (p page) expected() (n int) {
	for _, text := range p.came {
		if !strings.HasSuffix(text, unexpected) {
			n++
		}
	}
	return n
}

// row is a line of a table: the steps of a fault with the same expectation and the same outcomes.
type row struct {
	fault  fault
	steps  []step
	want   string
	fields []string // by store
}

// columns returns the stores that have cells of a kind.
func columns(k kind) (some []store) {
	for _, s := range stores {
		if slices.ContainsFunc(cells(), func(c combination) bool { return c.kind == k && c.store == s }) {
			some = append(some, s)
		}
	}
	return some
}

// rows returns the lines of the table of a kind, with a field for each of its columns.
func rows(k kind, in []store, came map[combination]string) (all []row) {
	for _, f := range faults {
		from := len(all)
	next:
		for _, s := range steps {
			byWant := make(map[string][]store)
			var order []string
			for _, at := range in {
				c := combination{k, s, at, f}
				if reason(c) == "" {
					w := expect(c).String()
					if byWant[w] == nil {
						order = append(order, w)
					}
					byWant[w] = append(byWant[w], at)
				}
			}
			for _, w := range order {
				r := row{fault: f, steps: []step{s}, want: w}
				for _, at := range in {
					field := "-"
					if c := (combination{k, s, at, f}); reason(c) == "" && expect(c).String() == w {
						field = came[c]
					}
					r.fields = append(r.fields, field)
				}
				for i := from; i < len(all); i++ {
					if all[i].want == w && strings.Join(all[i].fields, "|") == strings.Join(r.fields, "|") {
						all[i].steps = append(all[i].steps, s)
						continue next
					}
				}
				all = append(all, r)
			}
		}
	}
	return all
}

const intro = `# The crash matrix

For readers of [the guarantees](guarantees.md) who want to see them tested. A cell is a kind of
handler or the relay of an outbox, a step, a store and a fault. ` + "`make cells`" + ` runs every cell with
worker processes on real servers, and writes this page. A test compares the cells of this page with
the table in ` + "`test/cells`" + `, and runs a share of the cells at each change. The share has no restart of
a server.

A cell has one event, one key, or the rows of one outbox. The fault strikes once, at its step.
Afterwards a second worker, or the first one if it lives, finishes the work. Kafka is kfake, a broker
inside the test. The expected number is that of the effects; each entry is what came:

* **1**: one effect. The offset is committed, or the caller has the result.
* **1 + repeat**: the window of ` + "`On`" + `, and of calls with ` + "`Rerun`" + `, between effect and completion.
  The second effect has the same idempotency key. The expected number is 2 then, or 1-2.
* **0** or **1** with **unknown outcome**: the caller learns that the outcome is unknown, in place of a repeat.
* **0** or **1** with **dead letter**: a person decides about the event, in place of a repeat.
* **panic told**, **failure told**: the caller gets the stored answer of the one run.
* Of an outbox, **1**: each row was published once. **1 + repeat**: rows were published again, with the
  same ID and content.
* **-**: no cell, [for a reason](#combinations-that-are-no-cells).

| fault | what happens |
|---|---|
| kill -9 | The process ends at the step. "End without answer": the server acted, the process did not learn it |
| panic | The handler panics once |
| hang | The handler ignores its context until an operator ends the process |
| SIGSTOP beyond the lease | The process stands still until another one has finished, and then goes on |
| cut before the server acts | The request is not delivered; in a handler, all connections end |
| cut after the server acted | The answer to the claim, or to the end, is lost |
| server restarted | A crash of the server (SIGKILL) and a start on its data |
| rebalance | The member is expelled, and another member gets the partition |
| Kafka restarted | Kafka is away for a second, and starts on its data. Its groups keep their members |
| copy elsewhere | Another worker gets a copy of the event, or a call with the key, at the same moment; or a second relay runs |
| cut before the broker acts | The messages of a relay do not reach Kafka |
| cut after the broker acted | The acknowledgement of Kafka is lost |

A restart of Kafka cuts every connection, and loses the sessions of fetches. Records, offsets,
members of groups and numbers of producers are kept. kfake imitates that. ` + "`TestOutages`" + ` in
` + "`test/chaos`" + ` crashes and freezes a real Kafka under load. ` + "`test/drills`" + ` kills brokers of a real
cluster.

"With Rerun" sets ` + "`Rerun`" + ` of ` + "`dedup.GuardConfig`" + ` or ` + "`httpidem.Config`" + `: a call whose run was cut
short runs again, and no outcome is unknown. ` + "`DoTx`" + ` takes a guard with ` + "`Rerun`" + `, and acts as
without.

"The end" is the completion of a claim, or COMMIT of a transaction. For a relay, the claim is the fetch
of rows, the effect is their publication, and the end is their settlement. "Effect without answer":
the broker acted, the relay did not learn it. The outbox is that of ` + "`pgoutbox`" + ` or ` + "`sqloutbox/mysql`" + `.

No row of an outbox is lost. The first publications of an aggregate are in the order of commits. A
consumer with Idem handles each event once. Rows are added after the fault too.

The history of each claimed cell is checked too. A fence only grows, and belongs to one worker. Each
effect and each completion has a claim that its worker was granted before. One claim is completed,
and none is granted after that.

The caller that meets the fault is checked too, unless it dies. It may get errors by which it calls
again. In the end it gets an answer that the last caller may get, or the result. A result is always
that of the run that had the effect.
`

// render returns the page.
func render(p page) string {
	var b strings.Builder
	b.WriteString(intro)
	fmt.Fprintf(&b, "\n%d cells ran, and %d came as expected.\n%s\n"+
		"The share of a change has the day as its seed (`IDEM_CELLS_SEED`).\n", len(p.came), p.expected(), p.ran)
	for _, k := range kinds {
		in := columns(k)
		if len(in) == 0 {
			continue // the list of reasons has it
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s", k, head)
		for _, s := range in {
			fmt.Fprintf(&b, " %s |", s)
		}
		fmt.Fprintf(&b, "\n|---|---|---|%s\n", strings.Repeat("---|", len(in)))
		for _, r := range rows(k, in, p.came) {
			var names []string
			for _, s := range r.steps {
				names = append(names, string(s))
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.fault, strings.Join(names, "; "), r.want,
				strings.Join(r.fields, " | "))
		}
	}
	b.WriteString(renderReasons())
	return b.String()
}

// renderReasons counts the combinations that are no cells.
func renderReasons() string {
	counts := make(map[string]int)
	var order []string
	for _, c := range product() {
		if r := reason(c); r != "" {
			if counts[r] == 0 {
				order = append(order, r)
			}
			counts[r]++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Combinations that are no cells\n\n%d of %d combinations are no cells. The first reason counts.\n",
		len(product())-len(cells()), len(product()))
	b.WriteString("\n| reason | combinations |\n|---|---|\n")
	for _, r := range order {
		fmt.Fprintf(&b, "| %s | %d |\n", r, counts[r])
	}
	return b.String()
}

// ranOf returns the line with the time of the run of a page.
func ranOf(text string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, ranPrefix) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

const ranPrefix = "Run on "

// head begins the first line of each table of cells.
const head = "| fault | step | expected |"

// parse returns the outcomes that a page lists, by cell.
func parse(text string) (map[combination]string, error) {
	came := make(map[combination]string)
	var k kind
	var in []store // nil outside the tables of cells
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fields := strings.Split(strings.Trim(line, "|"), "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		switch {
		case strings.HasPrefix(line, "## "):
			k = kind(line[len("## "):])
		case strings.HasPrefix(line, head):
			for _, name := range fields[3:] {
				in = append(in, store(name))
			}
		case line == "":
			in = nil
		case in == nil || strings.HasPrefix(line, "|---"):
		case len(fields) != 3+len(in):
			return nil, fmt.Errorf("%s: a line of %d fields", k, len(fields))
		default:
			if err := parseLine(k, in, fields, came); err != nil {
				return nil, err
			}
		}
	}
	return came, nil
}

// parseLine adds the cells of one line.
func parseLine(k kind, in []store, fields []string, came map[combination]string) error {
	for s := range strings.SplitSeq(fields[1], "; ") {
		for i, at := range in {
			if fields[3+i] == "-" {
				continue
			}
			c := combination{k, step(s), at, fault(fields[0])}
			if _, twice := came[c]; twice {
				return fmt.Errorf("%s is listed twice", c)
			}
			if w := expect(c).String(); w != fields[2] {
				return fmt.Errorf("%s: the page expects %q, the table %q", c, fields[2], w)
			}
			came[c] = fields[3+i]
		}
	}
	return nil
}
