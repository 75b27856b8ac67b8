package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// someReport has two rows and one wanted ratio, which is missed.
func someReport() *report {
	quiet, busy := load{percent: 1, known: true}, load{percent: 40, known: true}
	b := &bench{
		rows: []row{{name: "idem-ontx", unit: "effects/s"}, {name: "naive-postgres", unit: "effects/s"}},
		results: results{
			"idem-ontx":      {{all: 40, rate: 40, load: quiet}, {all: 40, rate: 40, load: busy, round: 1}},
			"naive-postgres": {{all: 10, rate: 10}, {all: 10, rate: 10, round: 1}},
		},
		plan:  plan{rounds: 3},
		again: map[string]int{"idem-ontx": 2},
		began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	return &report{
		bench: b, rounds: 2, source: source{commit: "abc", dirty: true},
		machine: machine{cpu: "CPU <1>", cores: 2, kernel: "Linux 6", goVersion: "go1", fsync: time.Millisecond},
	}
}

func TestDocumentDescribesItself(t *testing.T) {
	r := someReport()
	data, err := json.Marshal(r.document(r.entries()))
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(data, &got))
	require.Equal(t, "2026-01-02T03:04:05Z", got["date"])
	require.Equal(t, "abc", got["commit"])
	require.Equal(t, true, got["dirty"])
	require.EqualValues(t, 2, got["rounds"])
	m := got["machine"].(map[string]any)
	require.Equal(t, "CPU <1>", m["cpu"])
	require.Equal(t, "Linux 6", m["kernel"])
	require.EqualValues(t, 1000, m["fsync_us"])
	rows := got["rows"].([]any)
	require.Len(t, rows, 2)
	first := rows[0].(map[string]any)
	require.EqualValues(t, 40, first["others_percent"])
	require.EqualValues(t, 2, first["repeated"])
	require.EqualValues(t, 1, first["disturbed"])
	require.NotContains(t, rows[1], "others_percent", "an unknown load is not zero")
	ratio := got["ratios"].([]any)[0].(map[string]any)
	require.Equal(t, "naive-postgres", ratio["against"])
	require.EqualValues(t, 4, ratio["measured"])
	require.Equal(t, false, ratio["reached"])
}

func TestTableTellsTheLoad(t *testing.T) {
	r := someReport()
	text := r.markdown(r.entries())
	require.Contains(t, text, "| 40 %, repeated 2 x, **disturbed: 1 of 2** |\n")
	require.Contains(t, text, "| unknown |\n")
	require.Contains(t, text, "Rounds: 2, and 1 of the rows without a wanted ratio.")
	require.Contains(t, text, "| idem-ontx | naive-postgres | 7.00 | 4.00 | **no** |")
	var table []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| row") || strings.HasPrefix(line, "| idem-ontx | ") {
			table = append(table, line)
		}
	}
	require.Equal(t, strings.Count(table[0], "|"), strings.Count(table[1], "|"))
}

func TestChartIsWellFormedAndDeterministic(t *testing.T) {
	r := someReport()
	list := r.bench.results.verdicts()
	chart := ratioChart(list, r.caption())
	require.Equal(t, chart, ratioChart(list, r.caption()))
	require.Contains(t, chart, "✗ 4.00 of 7.00")
	require.Contains(t, chart, `<rect class="no" x="360" y="58" width="97.1"`, "four sevenths of the way to wanted")
	require.Contains(t, chart, "CPU &lt;1&gt;, 2 cores, go1; 2026-01-02")
	require.Contains(t, chart, "prefers-color-scheme: dark")
	for _, text := range []string{chart, ratioChart(nil, "")} {
		decoder := xml.NewDecoder(strings.NewReader(text))
		for {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
	}
}

func TestLongBarIsCut(t *testing.T) {
	chart := ratioChart([]verdict{{Row: "a", Against: "b", Wanted: 1, Measured: 7, Reached: true}}, "")
	require.Contains(t, chart, `width="340.0"`)
	require.Contains(t, chart, "✓ 7.00 of 1.00")
}

func TestSourceOfTellsCommitAndChanges(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{
			"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com",
		}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "first")
	clean := sourceOf(t.Context(), dir)
	require.Len(t, clean.commit, 40)
	require.False(t, clean.dirty)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), nil, 0o600))
	require.Equal(t, source{commit: clean.commit, dirty: true}, sourceOf(t.Context(), dir))
}
