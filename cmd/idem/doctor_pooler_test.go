package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/doctor"
)

// pooler stands in front of a Postgres as PgBouncer does: its clients get process numbers of its
// own. If it is strict, it refuses start-up parameters that it does not know.
func pooler(t *testing.T, server string, strict bool) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	keep := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		open = append(open, c)
	}
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			keep(client)
			all.Go(func() {
				defer client.Close()
				up, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				keep(up)
				defer up.Close()
				if !greet(client, up, strict) {
					return
				}
				all.Go(func() {
					_, _ = io.Copy(up, client)
					_ = up.Close()
				})
				renumber(client, up)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}

// greet passes the start-up message on, or refuses it.
func greet(client, up net.Conn, strict bool) bool {
	head := make([]byte, 4)
	if _, err := io.ReadFull(client, head); err != nil {
		return false
	}
	n := binary.BigEndian.Uint32(head)
	if n < 8 || n > 10_000 {
		return false
	}
	body := make([]byte, n-4)
	if _, err := io.ReadFull(client, body); err != nil {
		return false
	}
	const unknown = "client_connection_check_interval"
	if strict && bytes.Contains(body, []byte(unknown)) {
		fields := fmt.Sprintf("SFATAL\x00VFATAL\x00C08P01\x00Munsupported startup parameter: %s\x00\x00", unknown)
		answer := append([]byte{'E'}, binary.BigEndian.AppendUint32(nil, uint32(len(fields)+4))...)
		_, _ = client.Write(append(answer, fields...))
		return false
	}
	_, err := up.Write(slices.Concat(head, body))
	return err == nil
}

// renumber passes answers on, with another number of the process in BackendKeyData.
func renumber(client, up net.Conn) {
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(up, head); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(head[1:])
		if n < 4 || n > 1<<24 {
			return
		}
		body := make([]byte, n-4)
		if _, err := io.ReadFull(up, body); err != nil {
			return
		}
		if head[0] == 'K' && len(body) >= 4 {
			binary.BigEndian.PutUint32(body, binary.BigEndian.Uint32(body)+1)
		}
		if _, err := client.Write(slices.Concat(head, body)); err != nil {
			return
		}
	}
}

// A pooler in between is found whether it takes the parameters of pgstore.Configure or not (P-17,
// rule 10).
func TestDoctor_Pooler_P17(t *testing.T) {
	p := newPgSchema(t)
	u, err := url.Parse(p.url)
	require.NoError(t, err)
	server := u.Host
	for says, strict := range map[string]bool{"goes through a pooler": false, "refuses the parameters": true} {
		u.Host = pooler(t, server, strict)
		plant{id: "postgres.pooler", want: doctor.Warn, says: says, args: []string{"--store", u.String()}}.found(t, p.base(), nil)
	}
}
