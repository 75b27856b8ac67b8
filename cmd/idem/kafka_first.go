package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// askNext is the time without an answer after which the next broker is asked too. With many brokers
// the time is shorter: all are asked within askAll.
const (
	askNext = time.Second
	askAll  = 4 * time.Second
)

// firstToAnswer returns a client of the first broker that answers, and its address. sarama asks the
// brokers one after the other, and a silent broker would use up the time for all. A broker that
// gives no answer within a second is asked on, beside the next one. A refused login ends the
// search: the other brokers know the same users.
//
// end closes the client, and waits for the ends of the other questions, whose connections are cut.
func firstToAnswer(
	brokers []string, cfg *sarama.Config,
) (client sarama.Client, broker string, end func(), err error) {
	type answer struct {
		broker string
		from   *lines
		client sarama.Client
		err    error
	}
	answers := make(chan answer, len(brokers))
	var asking sync.WaitGroup
	var asked []*lines
	ask := func(broker string) {
		one, from := *cfg, newLines(cfg)
		one.Net.Proxy.Enable, one.Net.Proxy.Dialer = true, from
		asked = append(asked, from)
		asking.Go(func() {
			c, err := sarama.NewClient([]string{broker}, &one)
			answers <- answer{broker, from, c, err}
		})
	}
	cut := func(all ...*lines) {
		for _, l := range all {
			l.cut()
		}
	}
	wait := func() {
		asking.Wait()
		close(answers)
		for late := range answers {
			if late.client != nil {
				_ = late.client.Close()
			}
		}
	}
	pause := min(askNext, askAll/time.Duration(len(brokers)))
	timer := time.NewTimer(pause)
	defer timer.Stop()
	ask(brokers[0])
	var failed []error
	for open := 1; open > 0; {
		select {
		case got := <-answers:
			open--
			if got.err == nil {
				cut(slices.DeleteFunc(asked, func(l *lines) bool { return l == got.from })...)
				return got.client, got.broker, func() { _ = got.client.Close(); wait() }, nil
			}
			failed = append(failed, got.err)
			if errors.Is(got.err, sarama.ErrSASLAuthenticationFailed) {
				cut(asked...)
				wait()
				return nil, "", nil, got.err
			}
		case <-timer.C:
		}
		if len(asked) < len(brokers) {
			ask(brokers[len(asked)])
			open++
			timer.Reset(pause)
		}
	}
	wait()
	return nil, "", nil, errors.Join(failed...)
}

// lines are the connections of one client. Safe for concurrent use.
type lines struct {
	dial net.Dialer
	ctx  context.Context // of dials
	end  context.CancelFunc

	mu   sync.Mutex
	open []net.Conn
}

func newLines(cfg *sarama.Config) *lines {
	l := &lines{dial: net.Dialer{
		Timeout: cfg.Net.DialTimeout, KeepAlive: cfg.Net.KeepAlive, LocalAddr: cfg.Net.LocalAddr,
	}}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// Dial implements the dialer of sarama.
func (l *lines) Dial(network, address string) (net.Conn, error) {
	conn, err := l.dial.DialContext(l.ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ctx.Err(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	l.open = append(l.open, conn)
	return conn, nil
}

// cut closes all connections, for good.
func (l *lines) cut() {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.open {
		_ = conn.Close()
	}
}
