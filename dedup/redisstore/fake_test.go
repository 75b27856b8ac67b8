package redisstore

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// fakeServer speaks the part of Redis' protocol that tests need for their answers.
type fakeServer struct {
	listener net.Listener
	answer   func(cmd []string) string // a reply as it goes over the wire
	running  sync.WaitGroup
}

// newFake returns a client of a server that answers so.
func newFake(t testing.TB, answer func(cmd []string) string) *redis.Client {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeServer{listener: l, answer: answer}
	f.running.Go(f.accept)
	client := redis.NewClient(&redis.Options{Addr: l.Addr().String(), Protocol: 2, DisableIdentity: true, MaxRetries: -1})
	t.Cleanup(func() {
		_ = client.Close() // ends the connections, and so their goroutines
		_ = l.Close()
		f.running.Wait()
	})
	return client
}

func (f *fakeServer) accept() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.running.Go(func() { f.serve(c) })
	}
}

func (f *fakeServer) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		cmd, err := readCommand(r)
		if err != nil {
			return
		}
		reply := "-ERR unknown command\r\n"
		switch strings.ToLower(cmd[0]) {
		case "hello", "client", "select":
		default:
			reply = f.answer(cmd)
		}
		if reply == "" { // the server dies
			return
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}

func readCommand(r *bufio.Reader) ([]string, error) {
	n, err := readLength(r, '*')
	if err != nil {
		return nil, err
	}
	cmd := make([]string, n)
	for i := range cmd {
		size, err := readLength(r, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		cmd[i] = string(b[:size])
	}
	return cmd, nil
}

func readLength(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q instead of %q", line[0], kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
