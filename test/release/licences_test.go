package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every dependency of a released module has an allowed licence, and THIRD_PARTY.md names it.
func TestThirdPartyIsCurrent(t *testing.T) {
	r := repo{root: root, modules: modulesOf(t)}
	require.NoError(t, r.checkLicences(t.Context()))
}

func TestThirdPartyOfAnotherTime(t *testing.T) {
	r := small(t)
	require.ErrorContains(t, r.checkLicences(t.Context()), "THIRD_PARTY.md is not that of the dependencies. Run make licences")
	require.NoError(t, r.writeLicences(t.Context()))
	require.NoError(t, r.checkLicences(t.Context()))
}

// sample returns a text of a licence from the tests of licensecheck.
func sample(t *testing.T, name string) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/licensecheck").Output()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "testdata", name))
	require.NoError(t, err)
	_, text2, ok := strings.Cut(string(text), "\n\n") // below the expected text
	require.True(t, ok)
	return text2
}

func TestClassify(t *testing.T) {
	mit, gpl := sample(t, "MIT.t1"), sample(t, "GPL-3.0.t1")
	for name, c := range map[string]struct {
		files    map[string]string
		licences []string
		says     string
	}{
		"allowed":              {map[string]string{"LICENSE": mit}, []string{"MIT"}, ""},
		"of a linked package":  {map[string]string{"LICENSE": mit, "a/b/COPYING": gpl}, nil, "the licence GPL-3.0"},
		"of another package":   {map[string]string{"LICENSE.md": mit, "c/LICENSE": gpl}, []string{"MIT"}, ""},
		"not allowed":          {map[string]string{"LICENCE.txt": gpl}, nil, "which is not in the allowed list. A person has to read the terms"},
		"none":                 {map[string]string{"README.md": "MIT"}, nil, "has no licence"},
		"code, not a licence":  {map[string]string{"license.go": mit}, nil, "has no licence"},
		"terms of their own":   {map[string]string{"LICENSE": "You may use this on Sundays."}, nil, "the terms in LICENSE are not known"},
		"terms with additions": {map[string]string{"LICENSE": mit + strings.Repeat("You may use this on Sundays only. ", 40)}, nil, "are not known"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
			for file, text := range c.files {
				require.NoError(t, put(filepath.Join(dir, file), []byte(text)))
			}
			d := dependency{path: "example.org/x", dir: dir, packages: map[string]bool{dir: true, filepath.Join(dir, "a", "b"): true}}
			err := d.classify()
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.licences, d.licences)
		})
	}
}

// The archives of the command have the texts of all licences.
func TestTexts(t *testing.T) {
	r := repo{root: root, modules: modulesOf(t)}
	file := filepath.Join(t.TempDir(), "LICENCES.txt")
	require.NoError(t, r.writeTexts(t.Context(), "cmd/idem", file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, want := range []string{"==== Go: LICENSE\n", "==== github.com/IBM/sarama: LICENSE.md\n", "Copyright (c) 2013 Shopify", "==== golang.org/x/sys: PATENTS\n"} {
		require.Contains(t, string(text), want)
	}
}
