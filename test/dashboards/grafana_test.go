package dashboards

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/dashboards/grafana.json anew")

func TestGrafana_IsWhatIsCheckedIn(t *testing.T) {
	want, err := Grafana()
	require.NoError(t, err)
	file := filepath.Join(docs, "grafana.json")
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "go test -run TestGrafana ./... -update")
}

func TestGrafana_PanelsSayWhatTheyShow(t *testing.T) {
	units := []string{number, seconds, share, perSecond}
	for _, r := range rows {
		seen := map[string]bool{}
		for _, p := range r.panels {
			assert.NotEmpty(t, p.title)
			assert.False(t, seen[p.title], "%s: twice", p.title)
			seen[p.title] = true
			assert.Regexp(t, `^[A-Z0-9].*\.$`, p.about, p.title)
			assert.Contains(t, units, p.unit, p.title)
			assert.NotEmpty(t, p.targets, p.title)
			for _, q := range p.targets {
				assert.Equal(t, p.stat, q.legend == "", "%s: a graph has a legend, a number has none", p.title)
			}
			assert.False(t, p.bad > 0 && p.warn > p.bad, p.title)
		}
	}
}
