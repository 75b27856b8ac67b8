package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idem"
)

// redisLimit is the limit of Redis: the commands of one batch after the other, a claim and a
// completion for each event, on one plain connection per partition. The commands are encoded before
// the clock starts. Without Kafka, JSON, copies within a batch and a client library.
func redisLimit(ctx context.Context, x *run) error {
	batches := x.topic.batches(idem.DefaultMaxBatch)
	pipelines := make([][]redisBatch, len(batches))
	for p, list := range batches {
		for _, b := range list {
			pipelines[p] = append(pipelines[p], x.redisBatch(b))
		}
	}
	x.meter.begin()
	group, ctx := errgroup.WithContext(ctx)
	for _, list := range pipelines {
		group.Go(func() error {
			conn, err := dialRedis(ctx, x.redis.Options())
			if err != nil {
				return err
			}
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			replies := bufio.NewReaderSize(conn, 64<<10)
			for i := range list {
				if err := list[i].run(conn, replies, x.meter); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// redisBatch has the encoded commands of a batch.
type redisBatch struct {
	claims []byte
	done   []byte
	last   []int // the end of each completion in done
	seqs   []int
}

// The sizes of the records that redisstore writes for these events.
const (
	claimRecord = 75
	doneRecord  = 60
)

func (x *run) redisBatch(b *sqlEvents) (r redisBatch) {
	ttl := strconv.FormatInt((7 * 24 * time.Hour).Milliseconds(), 10)
	claim, done := bytes.Repeat([]byte{'p'}, claimRecord), bytes.Repeat([]byte{'d'}, doneRecord)
	for _, id := range b.ids {
		key := []byte(x.id + ":limit:" + x.scope + ":" + id)
		r.claims = appendCommand(r.claims, []byte("SET"), key, claim,
			[]byte("NX"), []byte("GET"), []byte("PX"), []byte(ttl))
		r.done = appendCommand(r.done, []byte("SET"), key, done,
			[]byte("GET"), []byte("PX"), []byte(ttl))
		r.last = append(r.last, len(r.done))
		r.seqs = append(r.seqs, b.byID[id].Seq)
	}
	return r
}

func appendCommand(b []byte, args ...[]byte) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// run claims all events in one pipeline and completes the new ones in a second.
func (r *redisBatch) run(conn io.Writer, replies *bufio.Reader, m *meter) error {
	if _, err := conn.Write(r.claims); err != nil {
		return err
	}
	fresh := make([]int, 0, len(r.seqs))
	for i := range r.seqs {
		known, err := readReply(replies)
		if err != nil {
			return err
		}
		if !known {
			fresh = append(fresh, i)
		}
	}
	done := make([]byte, 0, len(r.done))
	for _, i := range fresh {
		from := 0
		if i > 0 {
			from = r.last[i-1]
		}
		done = append(done, r.done[from:r.last[i]]...)
	}
	if _, err := conn.Write(done); err != nil {
		return err
	}
	for range fresh {
		if _, err := readReply(replies); err != nil {
			return err
		}
	}
	for _, i := range fresh {
		m.effect(r.seqs[i])
	}
	return nil
}

// readReply reads a bulk string or a status. known is false for nil.
func readReply(r *bufio.Reader) (known bool, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return false, err
	}
	line = bytes.TrimRight(line, "\r\n")
	switch {
	case len(line) == 0:
		return false, errors.New("redis: empty reply")
	case line[0] == '+':
		return true, nil
	case line[0] != '$':
		return false, fmt.Errorf("redis: %s", line)
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < 0 {
		return false, err
	}
	_, err = r.Discard(n + len("\r\n"))
	return true, err
}

func dialRedis(ctx context.Context, o *redis.Options) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return nil, err
	}
	var hello [][]byte
	if o.Password != "" {
		user := o.Username
		if user == "" {
			user = "default"
		}
		hello = append(hello, appendCommand(nil, []byte("AUTH"), []byte(user), []byte(o.Password)))
	}
	hello = append(hello, appendCommand(nil, []byte("SELECT"), []byte(strconv.Itoa(o.DB))))
	replies := bufio.NewReader(conn)
	for _, command := range hello {
		if _, err = conn.Write(command); err == nil {
			_, err = readReply(replies)
		}
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return conn, nil
}
