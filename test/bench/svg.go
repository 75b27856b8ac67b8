package main

import (
	"fmt"
	"html"
	"strings"
)

// The chart has a bar for each wanted ratio. All bars share one scale: measured over wanted.

const (
	chartWidth  = 860
	chartLabel  = 360 // width of the names
	chartBars   = 340 // width of the longest bar
	chartTop    = 56  // height above the bars
	chartRow    = 26
	chartBottom = 34
	chartMost   = 2.0 // longer bars are cut; their figures are not
)

// chartStyle has the colors of both modes. The background belongs to the chart, so the text is
// readable on any page.
const chartStyle = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.back { fill: #ffffff; } .muted { fill: #59636e; font-size: 12px; } .title { font-weight: 600; }
.yes { fill: #1a7f37; } .no { fill: #bc4c00; } .goal { stroke: #1f2328; stroke-dasharray: 4 3; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.back { fill: #0d1117; } .muted { fill: #9198a1; }
.yes { fill: #3fb950; } .no { fill: #f0883e; } .goal { stroke: #f0f6fc; }
}
</style>
`

// ratioChart draws the ratios as an SVG. Equal ratios and captions give equal text.
func ratioChart(list []verdict, caption string) string {
	var b strings.Builder
	bottom := chartTop + chartRow*len(list)
	height := bottom + chartBottom
	fmt.Fprintf(
		&b,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"title\">\n",
		chartWidth, height,
	)
	b.WriteString("<title id=\"title\">Measured ratios over wanted ratios</title>\n" + chartStyle)
	fmt.Fprintf(&b, "<rect class=\"back\" width=\"%d\" height=\"%d\"/>\n", chartWidth, height)
	chartText(&b, 12, 24, "title", "Ratios of rates: measured, of the wanted ones")
	if len(list) == 0 {
		chartText(&b, 12, 44, "muted", "No wanted ratio was measured.")
	}
	for i, v := range list {
		chartBar(&b, chartTop+chartRow*i, v)
	}
	if len(list) > 0 {
		at := chartLabel + chartBars/chartMost
		fmt.Fprintf(
			&b,
			"<line class=\"goal\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n",
			at, chartTop-6, at, bottom,
		)
		chartText(&b, int(at)-22, chartTop-12, "muted", "wanted")
	}
	chartText(&b, 12, height-12, "muted", caption)
	b.WriteString("</svg>\n")
	return b.String()
}

// chartBar draws one ratio. Its color and its text show whether the wanted ratio is reached.
func chartBar(b *strings.Builder, y int, v verdict) {
	class, sign := "yes", "✓"
	if !v.Reached {
		class, sign = "no", "✗"
	}
	length := chartBars * max(0, min(chartMost, v.Measured/v.Wanted)) / chartMost
	chartText(b, 12, y+15, "", v.Row+" / "+v.Against)
	fmt.Fprintf(
		b,
		"<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"16\" rx=\"2\"/>\n",
		class, chartLabel, y+2, length,
	)
	chartText(
		b, chartLabel+chartBars+12, y+15, "",
		fmt.Sprintf("%s %.2f of %.2f", sign, v.Measured, v.Wanted),
	)
}

func chartText(b *strings.Builder, x, y int, class, text string) {
	if class != "" {
		class = fmt.Sprintf(" class=\"%s\"", class)
	}
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y, class, html.EscapeString(text))
}
