package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "payments")
	args := []string{"init", dir, "--module", "example.com/payments", "--store-type", "postgres", "--replace", "../.."}
	r := command(t, args...)
	r.ok(t)
	require.Contains(t, r.stdout, "cd "+dir+"\n  go mod tidy\n  make up")
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	clone, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.Contains(t, string(mod), "replace github.com/idem-go/idem => "+clone)
	command(t, args...).failed(t, exitUsage, "has files, such as", "give an empty directory")
}
