//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/idem-go/idem"
)

var errRefused = errors.New("refused by the test")

// refusal is a broker that refuses messages. A refused message does not reach the topic.
type refusal struct {
	every    int64 // the number of messages for each refusal; 0: no refusals
	overtake bool  // breaks the promise of ProduceInOrder
	seen     atomic.Int64
}

// pass gives call those messages that are not refused. With inOrder, the messages of a topic and
// key behind a refused one are refused too, except with overtake.
func (r *refusal) pass(
	ctx context.Context, msgs []*idem.Message, inOrder bool,
	call func(context.Context, []*idem.Message) []error,
) []error {
	if r.every == 0 {
		return call(ctx, msgs)
	}
	errs := make([]error, len(msgs))
	var through []*idem.Message
	var at []int // the indexes of through in msgs
	behind := make(map[string]bool)
	for i, m := range msgs {
		aggregate := m.Topic + "\x00" + string(m.Key)
		held := inOrder && !r.overtake && behind[aggregate]
		if r.seen.Add(1)%r.every == 0 || held {
			behind[aggregate] = true
			errs[i] = errRefused
			continue
		}
		through, at = append(through, m), append(at, i)
	}
	if len(through) > 0 {
		for n, err := range call(ctx, through) {
			errs[at[n]] = err
		}
	}
	if refused := len(msgs) - len(through); refused > 0 {
		fmt.Printf("refused %d of %d\n", refused, len(msgs))
	}
	return errs
}
