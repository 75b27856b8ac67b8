package dashboards

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// external labels are Prometheus' own.
var external = []string{"job", "instance", "le"}

// queries are all expressions of the files, by where they are, with Grafana's variables filled in.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for name, rule := range alerts(t) {
		all["alert "+name] = rule.Expr
	}
	for _, p := range dashboard(t).Panels {
		for _, q := range p.Targets {
			all["panel "+p.Title+" "+q.RefID] = fillIn(q.Expr)
		}
	}
	values := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	for _, v := range dashboard(t).Templating.List {
		if v.Type == "query" {
			m := values.FindStringSubmatch(v.Definition)
			require.NotNil(t, m, v.Definition)
			all["variable "+v.Name] = "count by (" + m[2] + ") (" + fillIn(m[1]) + ")"
		}
	}
	require.Greater(t, len(all), 50)
	return all
}

func fillIn(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$job", ".*", "$group", ".*", "$topic", ".*").Replace(expr)
}

// board has the parts of docs/dashboards/grafana.json that the tests look at.
type board struct {
	Panels []struct {
		Title, Type string
		Targets     []struct{ Expr, LegendFormat, RefID string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func dashboard(t *testing.T) (b board) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "grafana.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &b))
	require.NotEmpty(t, b.Panels)
	return b
}

// Every metric, every label and every value of a label of ours that is named is one that is
// measured.
func TestQueries_NameWhatIsMeasured(t *testing.T) {
	list, seen := listed(t), observed(t)
	for where, text := range queries(t) {
		expr, err := promQL.ParseExpr(text)
		require.NoError(t, err, where)
		assert.NotContains(t, text, "$", "%s: a variable that is not there", where)
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			switch n := node.(type) {
			case *parser.VectorSelector:
				checkSelector(t, where, n, list, seen)
			case *parser.AggregateExpr:
				checkGrouping(t, where, n, list)
			}
			return nil
		})
	}
}

// names are the metrics that a selector chooses.
func names(s *parser.VectorSelector) []string {
	for _, m := range s.LabelMatchers {
		if m.Name == model.MetricNameLabel {
			return strings.Split(m.Value, "|")
		}
	}
	return nil
}

func checkSelector(t *testing.T, where string, s *parser.VectorSelector, list, seen series) {
	t.Helper()
	for _, name := range names(s) {
		if !assert.True(t, list.has(name), "%s: no metric %s", where, name) {
			continue
		}
		for _, m := range s.LabelMatchers {
			if m.Name == model.MetricNameLabel || slices.Contains(external, m.Name) {
				continue
			}
			if !assert.True(t, list.label(name, m.Name), "%s: no label %s{%s}", where, name, m.Name) || m.Value == ".*" || m.Value == "" || m.Type == labels.MatchNotRegexp {
				continue
			}
			for value := range strings.SplitSeq(m.Value, "|") {
				assert.True(t, seen[name][m.Name][value], "%s: %s{%s} is never %s", where, name, m.Name, value)
			}
		}
	}
}

// checkGrouping has each label of a grouping looked for in all metrics below it.
func checkGrouping(t *testing.T, where string, a *parser.AggregateExpr, list series) {
	t.Helper()
	assert.False(t, a.Without, where)
	parser.Inspect(a.Expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			for _, name := range names(s) {
				for _, label := range a.Grouping {
					if !slices.Contains(external, label) {
						assert.True(t, list.label(name, label), "%s: %s cannot be grouped by %s", where, name, label)
					}
				}
			}
		}
		return nil
	})
}

// The query keeps the labels that its legend names.
func TestGrafana_LegendsNameWhatIsThere(t *testing.T) {
	label := regexp.MustCompile(`\{\{(\w*)\}\}`)
	for _, p := range dashboard(t).Panels {
		for _, q := range p.Targets {
			expr, err := promQL.ParseExpr(fillIn(q.Expr))
			require.NoError(t, err, p.Title)
			var kept []string
			parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
				if a, ok := node.(*parser.AggregateExpr); ok {
					kept = append(kept, a.Grouping...)
				}
				return nil
			})
			for _, m := range label.FindAllStringSubmatch(q.LegendFormat, -1) {
				assert.Contains(t, kept, m[1], p.Title)
			}
			for _, l := range kept {
				assert.True(t, l == "le" || p.Type == "stat" || strings.Contains(q.LegendFormat, "{{"+l+"}}"), "%s: series that differ by %s have one name", p.Title, l)
			}
		}
	}
}

// The series of the plays are measured ones. Otherwise a rule might fire only for a metric that
// does not exist.
func TestPlays_AreOfWhatIsMeasured(t *testing.T) {
	list := listed(t)
	for _, p := range plays {
		for line := range strings.Lines(strings.TrimPrefix(p.series(), "load 1m\n")) {
			end := strings.LastIndexByte(line, '}') + 1
			metric, err := promQL.ParseMetric(strings.TrimSpace(line[:end]))
			require.NoError(t, err, line)
			name := metric.Get(model.MetricNameLabel)
			if !assert.True(t, list.has(name), "%s: no metric %s", p.alert, name) {
				continue
			}
			metric.Range(func(l labels.Label) {
				if l.Name != model.MetricNameLabel && !slices.Contains(external, l.Name) {
					assert.True(t, list.label(name, l.Name), "%s: no label %s{%s}", p.alert, name, l.Name)
				}
			})
		}
	}
}

// Every metric is on the dashboard.
func TestGrafana_ShowsEverything(t *testing.T) {
	shown := make(map[string]bool)
	for _, text := range queries(t) {
		expr, err := promQL.ParseExpr(text)
		require.NoError(t, err)
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok {
				for _, name := range names(s) {
					shown[family(name)] = true
				}
			}
			return nil
		})
	}
	for name := range listed(t) {
		assert.True(t, shown[family(name)], "%s is in no panel and in no alert", name)
	}
}

// family is the name without the suffix of a histogram.
func family(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}
