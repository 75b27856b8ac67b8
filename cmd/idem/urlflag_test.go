package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// G-04: the arguments of a process can be read by every user of its host. A password among them is
// refused, and not repeated.
func TestPasswordsOnTheCommandLine_G04(t *testing.T) {
	for _, args := range [][]string{
		{"event", "get", "1", "-G", "g", "--store", "postgres://u:hunter22@127.0.0.1:1/x"},
		{"event", "get", "1", "-G", "g", "--store=redis://:hunter22@127.0.0.1:1/0"},
		{"event", "get", "1", "-G", "g", "--store", "redis://127.0.0.1:1/0,postgres://127.0.0.1:1/x?password=hunter22"},
		{"doctor", "-G", "g", "--store", "redis+cluster://u:hunter22@127.0.0.1:1,127.0.0.1:2"},
		{"relay", "--brokers", "127.0.0.1:1", "--outbox", "postgres://u:hunter22@127.0.0.1:1/x"},
		{"outbox", "status", "--outbox", "postgres://u:hunter22@127.0.0.1:1/x"},
		{"import", "-G", "g", "--store", "redis://127.0.0.1:1", "--from-table", "SELECT 1", "--from-url", "postgres://u:hunter22@127.0.0.1:1/x"},
		{"import", "-G", "g", "--store", "redis://127.0.0.1:1", "--from-table", "SELECT 1", "--from-url", "host=127.0.0.1 port=1 password='hunter22'"},
	} {
		var out, errs bytes.Buffer
		code := runCommand(t.Context(), args, strings.NewReader(""), &out, &errs)
		require.Equal(t, exitUsage, code, "%v: %s", args, errs.String())
		require.Contains(t, errs.String(), "every user of this host")
		require.Contains(t, errs.String(), "IDEM_")
		require.NotContains(t, out.String()+errs.String(), "hunter22")
	}
}

// A URL with a password may lie in a file, such as a secret that is mounted.
func TestURLFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(path, []byte("mem://store\n"), 0o600))
	_, known := memory()
	commandWith(t, known, "", "event", "get", "1", "--type", "order", "-G", "billing", "--store", "@"+path).failed(t, exitFound)
	require.NoError(t, os.WriteFile(path, []byte("mem://store, mem://store\n"), 0o600)) // several, as everywhere
	commandWith(t, known, "", "event", "get", "1", "--type", "order", "-G", "billing", "--store", "@"+path).failed(t, exitFound)
	r := commandWith(t, known, "", "event", "get", "1", "--type", "order", "-G", "billing", "--store", "@"+path+".missing")
	r.failed(t, exitUsage, "--store", "no URL can be read", "no such file")
}
