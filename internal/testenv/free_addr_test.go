package testenv

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// The addresses differ, are free, and lie outside of the range from which connections get theirs.
func TestFreeAddr(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has ", portRange)
	}
	text, err := os.ReadFile(portRange)
	require.NoError(t, err)
	var low int
	_, err = fmt.Sscan(string(text), &low)
	require.NoError(t, err)
	seen := make(map[string]bool)
	for range 100 {
		addr := FreeAddr(t)
		require.False(t, seen[addr], addr)
		seen[addr] = true
		_, text, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		port, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.Less(t, port, low)
	}
	l, err := net.Listen("tcp", FreeAddr(t))
	require.NoError(t, err)
	defer l.Close()
	require.False(t, isFree(t, l.Addr().String()))
}
