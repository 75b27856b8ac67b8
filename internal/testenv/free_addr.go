package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ports from firstFreePort on, and below those that the system gives to connections, are free for
// servers of tests. The services of the tests have lower ones.
const (
	firstFreePort    = 22528
	firstSystemPort  = 32768 // by default on Linux; other systems begin at 49152
	portRange        = "/proc/sys/net/ipv4/ip_local_port_range"
	freePortAttempts = 200
)

// givenPorts has the ports that calls have got. The socket for UDP marks a port as taken until this
// process ends, because the tests of other packages run at the same time and look for ports too.
var givenPorts struct {
	sync.Mutex
	marks map[int]net.PacketConn
}

// FreeAddr returns the address of a [FreePort] as host:port.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return loopback(FreePort(t))
}

// SilentAddr returns the address of a server that accepts connections and never answers. The system
// accepts the connections, and no program reads from them.
func SilentAddr(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// FreePort returns a port of the loopback interface on which no server listens. The system gives
// the port to no connection, so a test may start or restart a server there later. No call returns
// the port again, in this process or in another one that runs at the same time.
func FreePort(t testing.TB) int {
	t.Helper()
	end := firstSystemPort
	if text, err := os.ReadFile(portRange); err == nil {
		_, err = fmt.Sscan(string(text), &end)
		require.NoError(t, err, portRange)
	}
	first := firstFreePort
	if end-first < 1000 { // another setting of the system
		first = end / 2
	}
	require.Greater(t, end-first, 1000, "%s leaves no ports for servers", portRange)
	for range freePortAttempts {
		port := first + rand.IntN(end-first)
		if takePort(t, port) && isFree(t, loopback(port)) {
			return port
		}
	}
	require.Fail(t, "no port is free", "from %d to %d", first, end)
	return 0
}

// takePort reports whether no call has got the port before, in this process or in another one.
func takePort(t testing.TB, port int) bool {
	t.Helper()
	givenPorts.Lock()
	defer givenPorts.Unlock()
	mark, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", loopback(port))
	if err != nil {
		return false
	}
	if givenPorts.marks == nil {
		givenPorts.marks = make(map[int]net.PacketConn)
	}
	givenPorts.marks[port] = mark // else the garbage collector would close the socket
	return true
}

func isFree(t testing.TB, addr string) bool {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}
