package dashboards

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	root = "../.."
	docs = root + "/docs/dashboards"
)

// promQL is Prometheus' parser as it is without any feature flag.
var promQL = parser.NewParser(parser.Options{})

// alerts are the rules of docs/dashboards/alerts.yaml, checked as promtool does.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(docs, "alerts.yaml"), false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	all := make(map[string]rulefmt.Rule)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			require.NotEmpty(t, r.Alert, "%s: there are no recording rules", r.Record)
			require.NotContains(t, all, r.Alert, "twice")
			all[r.Alert] = r
		}
	}
	return all
}

// play evaluates a rule each minute, from the begin of its series to their end, and returns the
// alerts that fire then, and whether any ever did.
func play(t *testing.T, r rulefmt.Rule, load string, until time.Duration) (firing []*rules.Alert, ever bool) {
	t.Helper()
	store := promqltest.LoadedStorage(t, load)
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery)
	expr, err := promQL.ParseExpr(r.Expr)
	require.NoError(t, err)
	rule := rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor), labels.FromMap(r.Labels),
		labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	query := rules.EngineQueryFunc(engine, store)
	for at := time.Duration(0); at <= until; at += time.Minute {
		_, err := rule.Eval(t.Context(), 0, time.Unix(0, 0).Add(at), query, nil, 0)
		require.NoError(t, err)
		firing = nil
		for _, a := range rule.ActiveAlerts() {
			if a.State == rules.StateFiring {
				firing, ever = append(firing, a), true
			}
		}
	}
	return firing, ever
}

func TestAlerts_Play(t *testing.T) {
	all := alerts(t)
	fired, quiet := map[string]bool{}, map[string]bool{}
	for _, p := range plays {
		t.Run(p.alert+"/"+p.name, func(t *testing.T) {
			rule, ok := all[p.alert]
			require.True(t, ok, "no such alert")
			firing, ever := play(t, rule, p.series(), p.until)
			if p.says == never || p.says == nowOver {
				quiet[p.alert] = true
				assert.Empty(t, firing)
				assert.Equal(t, p.says == nowOver, ever, "whether it ever fired")
				return
			}
			fired[p.alert] = true
			if !assert.Len(t, firing, 1) {
				return
			}
			summary, description := firing[0].Annotations.Get("summary"), firing[0].Annotations.Get("description")
			assert.Equal(t, p.says, summary+": "+description)
		})
	}
	for name := range all {
		assert.True(t, fired[name], "%s: no series that it must fire for", name)
		assert.True(t, quiet[name], "%s: no series that it must not fire for", name)
	}
}

// An alert has the facts for the person that it wakes: words, the severity, and the place of the
// remedy in the docs.
func TestAlerts_SayWhatToDo(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	require.NoError(t, err)
	anchors := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.+)$`).FindAllStringSubmatch(string(text), -1) {
		anchors[strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")] = true
	}
	for name, r := range alerts(t) {
		assert.Regexp(t, `^Idem[A-Z]\w+$`, name)
		assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], name)
		assert.NotEmpty(t, r.Annotations["summary"], name)
		assert.NotEmpty(t, r.Annotations["description"], name)
		page, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		assert.Equal(t, "https://github.com/idem-go/idem/blob/main/docs/operations.md", page, name)
		assert.Equal(t, strings.ToLower(name), anchor, name)
		assert.True(t, anchors[anchor], "docs/operations.md has no section %s", name)
		delete(anchors, anchor)
	}
	for anchor := range anchors {
		assert.False(t, strings.HasPrefix(anchor, "idem") && !strings.Contains(anchor, "-"), "docs/operations.md: there is no alert %s", anchor)
	}
}

func TestPrometheusConfig(t *testing.T) {
	c, err := config.LoadFile(filepath.Join(docs, "prometheus.yaml"), false, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	assert.Len(t, c.RuleFiles, 1)
	assert.Equal(t, "alerts.yaml", filepath.Base(c.RuleFiles[0]))
	require.Len(t, c.ScrapeConfigs, 1)
	assert.Equal(t, 5*time.Second, time.Duration(c.ScrapeConfigs[0].ScrapeInterval))
}
