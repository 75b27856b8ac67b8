package compose

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// observability is the only profile that starts Prometheus and Grafana.
const observability = "observability"

func observed(t *testing.T, env ...string) (prometheus, grafana types.ServiceConfig) {
	t.Helper()
	services := loadWith(t, []string{observability}, env...).Services
	require.Contains(t, services, "prometheus")
	require.Contains(t, services, "grafana")
	return services["prometheus"], services["grafana"]
}

func TestObservability_OnRequestOnly(t *testing.T) {
	all, some := loadWith(t, []string{observability}).ServiceNames(), load(t).ServiceNames()
	assert.ElementsMatch(t, append(some, "prometheus", "grafana"), all)
}

func TestObservability_PortsCanBeMoved(t *testing.T) {
	prometheus, grafana := observed(t, "IDEM_PROMETHEUS_PORT=1234", "IDEM_GRAFANA_PORT=1235")
	require.Len(t, prometheus.Ports, 1)
	require.Len(t, grafana.Ports, 1)
	assert.Equal(t, "1234", prometheus.Ports[0].Published)
	assert.Equal(t, "1235", grafana.Ports[0].Published)
}

// Each mounted path is there, is a file, and cannot be changed from inside.
func TestObservability_FilesAreMounted(t *testing.T) {
	prometheus, grafana := observed(t)
	mounted := map[string]string{}
	for _, v := range append(prometheus.Volumes, grafana.Volumes...) {
		assert.Equal(t, types.VolumeTypeBind, v.Type, v.Target)
		assert.True(t, v.ReadOnly, v.Target)
		info, err := os.Stat(v.Source)
		if assert.NoError(t, err) {
			assert.True(t, info.Mode().IsRegular(), v.Source)
		}
		mounted[v.Target] = filepath.Base(v.Source)
	}
	for target, file := range map[string]string{
		"/etc/prometheus/prometheus.yaml":                 "prometheus.yaml",
		"/etc/prometheus/alerts.yaml":                     "alerts.yaml", // beside the file that names it
		"/var/lib/grafana/dashboards/idem.json":           "grafana.json",
		"/etc/grafana/provisioning/datasources/idem.yaml": "datasource.yaml",
		"/etc/grafana/provisioning/dashboards/idem.yaml":  "dashboards.yaml",
	} {
		assert.Equal(t, file, mounted[target], target)
		delete(mounted, target)
	}
	assert.Empty(t, mounted)
	assert.Contains(t, prometheus.Command, "--config.file=/etc/prometheus/prometheus.yaml")
}

// The rules are played by the engine that runs them.
func TestObservability_PrometheusSameAsInTest(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "test", "dashboards", "go.mod"))
	require.NoError(t, err)
	m := regexp.MustCompile(`github\.com/prometheus/prometheus v0\.(\d)(\d\d)\.(\d+)`).FindStringSubmatch(string(b)) // v0.315.0 is Prometheus 3.15.0
	require.NotNil(t, m)
	prometheus, _ := observed(t)
	assert.Equal(t, "prom/prometheus:v"+m[1]+"."+strings.TrimPrefix(m[2], "0")+"."+m[3], prometheus.Image)
}

// There is no login with a well-known password, and a viewer cannot make changes.
func TestObservability_GrafanaIsForLooking(t *testing.T) {
	prometheus, grafana := observed(t)
	for name, want := range map[string]string{
		"GF_AUTH_ANONYMOUS_ENABLED": "true", "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer", "GF_AUTH_DISABLE_LOGIN_FORM": "true",
		"GF_AUTH_BASIC_ENABLED": "false", "GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true", "GF_ANALYTICS_REPORTING_ENABLED": "false",
	} {
		if value := grafana.Environment[name]; assert.NotNil(t, value, name) {
			assert.Equal(t, want, *value, name)
		}
	}
	assert.NotContains(t, strings.Join(prometheus.Command, " "), "admin-api")
}

// Grafana finds Prometheus by its name, and the dashboard where it is mounted.
func TestObservability_Provisioning(t *testing.T) {
	var source struct {
		Datasources []struct{ Type, URL string }
	}
	var boards struct {
		Providers []struct {
			AllowUIUpdates bool `yaml:"allowUiUpdates"`
			Options        struct{ Path string }
		}
	}
	for file, into := range map[string]any{"datasource.yaml": &source, "dashboards.yaml": &boards} {
		b, err := os.ReadFile(filepath.Join(root, "docs", "dashboards", "provisioning", file))
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(b, into), file)
	}
	prometheus, grafana := observed(t)
	require.Len(t, source.Datasources, 1)
	assert.Equal(t, "prometheus", source.Datasources[0].Type)
	assert.Equal(t, "http://"+prometheus.Name+":9090", source.Datasources[0].URL)
	assert.EqualValues(t, 9090, prometheus.Ports[0].Target)
	assert.Contains(t, grafana.DependsOn, prometheus.Name)
	require.Len(t, boards.Providers, 1)
	assert.False(t, boards.Providers[0].AllowUIUpdates)
	assert.Equal(t, "/var/lib/grafana/dashboards", boards.Providers[0].Options.Path)
}
