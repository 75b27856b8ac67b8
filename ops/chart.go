package ops

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/words"
)

// This file draws charts as plain SVG on the server. The style sheet has the colours. Words stand
// beside the drawing, and a table has the figures of every chart.

const (
	chartWidth  = 600
	chartHeight = 120
)

// series is one of the figures of a chart.
type series struct {
	Name   string
	Class  string // of the style sheet: c1 to c4
	Values []float64
	Path   string // of the line, or of the bars
	Area   string // below the line; empty for bars
	Last   string // the last value, in words
	Sum    string
}

// chart is ready to be drawn.
type chart struct {
	ID, Title, Unit string
	Bars            bool
	Series          []series
	Top             string // the highest value of the scale
	From            string // label of the left edge: "10 min ago"
	Empty           bool   // zeros only
	Label           string // for screen readers
	Table           []chartRow
}

type chartRow struct {
	When  string
	Cells []string
}

// chartTable is how many rows the figures of a chart have: neighbours are joined.
const chartTable = 12

// lineChart draws lines. interval is the time between two values.
func lineChart(id, title, unit string, interval time.Duration, all ...series) chart {
	return draw(chart{ID: id, Title: title, Unit: unit, Series: all}, interval)
}

// barChart draws bars, one series upon the other.
func barChart(id, title, unit string, interval time.Duration, all ...series) chart {
	return draw(chart{ID: id, Title: title, Unit: unit, Bars: true, Series: all}, interval)
}

func draw(c chart, interval time.Duration) chart {
	n := len(c.Series[0].Values)
	top := c.highest(n)
	c.Empty = top == 0
	scale := niceTop(top)
	c.Top = short(scale)
	c.From = span(time.Duration(n)*interval) + " ago"
	below := make([]float64, n)
	for i := range c.Series {
		s := &c.Series[i]
		if c.Bars {
			s.Path = bars(s.Values, below, scale)
		} else {
			s.Path, s.Area = line(s.Values, scale)
		}
		s.Last, s.Sum = short(s.Values[n-1]), short(sum(s.Values))
	}
	c.Table = c.table(interval)
	c.Label = c.describe(top)
	return c
}

func (c *chart) highest(n int) (top float64) {
	for i := range n {
		v := 0.0
		for _, s := range c.Series {
			if c.Bars {
				v += s.Values[i]
			} else {
				v = max(v, s.Values[i])
			}
		}
		top = max(top, v)
	}
	return top
}

func (c *chart) describe(top float64) string {
	if c.Empty {
		return c.Title + ": no events in this time"
	}
	parts := make([]string, len(c.Series))
	for i, s := range c.Series {
		parts[i] = s.Name + " " + s.Last
	}
	return c.Title + ", " + c.Unit + ", since " + c.From + ": highest " + short(
		top,
	) + "; now " + strings.Join(parts, ", ")
}

// table joins neighbours: means for lines, sums for bars. Newest first.
func (c *chart) table(interval time.Duration) (rows []chartRow) {
	n := len(c.Series[0].Values)
	width := max(1, (n+chartTable-1)/chartTable)
	for end := n; end > 0; end -= width {
		begin := max(0, end-width)
		row := chartRow{
			When: span(
				time.Duration(n-begin)*interval,
			) + " to " + span(
				time.Duration(n-end)*interval,
			) + " ago",
		}
		if end == n {
			row.When = "the last " + span(time.Duration(n-begin)*interval)
		}
		for _, s := range c.Series {
			v := sum(s.Values[begin:end])
			if !c.Bars {
				v /= float64(end - begin)
			}
			row.Cells = append(row.Cells, short(v))
		}
		rows = append(rows, row)
	}
	return rows
}

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

// niceTop is the upper end of a scale: 1, 2 or 5 times a power of ten.
func niceTop(v float64) float64 {
	if v <= 0 {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*p {
			return m * p
		}
	}
	return 10 * p
}

func short(v float64) string {
	switch {
	case v == math.Trunc(v) || v >= 100:
		return words.Number(int64(math.Round(v)))
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// line returns the path through the values, and the path around the area below.
func line(values []float64, top float64) (stroke, area string) {
	var b strings.Builder
	for i, v := range values {
		if i == 0 {
			b.WriteByte('M')
		} else {
			b.WriteByte('L')
		}
		x := 0.0
		if len(values) > 1 {
			x = float64(i) / float64(len(values)-1) * chartWidth
		}
		point(&b, x, chartHeight*(1-v/top))
	}
	stroke = b.String()
	b.WriteByte('L')
	point(&b, chartWidth, chartHeight)
	b.WriteByte('L')
	point(&b, 0, chartHeight)
	b.WriteByte('Z')
	return stroke, b.String()
}

// bars returns the bars of values on top of below, and adds the values to below.
func bars(values, below []float64, top float64) string {
	var b strings.Builder
	width := chartWidth / float64(len(values))
	gap := math.Min(2, width/4)
	for i, v := range values {
		if v <= 0 {
			continue
		}
		height := math.Max(v/top*chartHeight, 1)
		base := chartHeight * (1 - below[i]/top)
		b.WriteByte('M')
		point(&b, float64(i)*width+gap/2, base)
		b.WriteByte('v')
		coordinate(&b, -height)
		b.WriteByte('h')
		coordinate(&b, width-gap)
		b.WriteByte('v')
		coordinate(&b, height)
		b.WriteByte('Z')
		below[i] += v
	}
	return b.String()
}

func point(b *strings.Builder, x, y float64) {
	coordinate(b, x)
	b.WriteByte(' ')
	coordinate(b, y)
}

func coordinate(b *strings.Builder, v float64) {
	b.WriteString(strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64))
}

// spark is a small line without scale.
func spark(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	path, _ := line(values, niceTop(top))
	return path
}
