package testenv

import (
	"fmt"
	"maps"
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

// A port that a test has got is taken for the tests of other packages too, although no server
// listens there yet. They know it by its socket only, since they run in other processes.
func TestFreePortOfAnotherProcess(t *testing.T) {
	port := FreePort(t)
	givenPorts.Lock()
	ours := givenPorts.marks
	givenPorts.marks = nil
	givenPorts.Unlock()
	t.Cleanup(func() {
		givenPorts.Lock()
		defer givenPorts.Unlock()
		maps.Copy(ours, givenPorts.marks)
		givenPorts.marks = ours
	})
	require.True(t, isFree(t, loopback(port)))
	require.False(t, takePort(t, port))
}
