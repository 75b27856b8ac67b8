package redisstore

import (
	"context"
	"errors"
	"slices"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
)

// commands are SETs and GETs that are sent together. The reply of each is the previous value of
// the key. Their parts lie side by side in a few slices. At a hundred thousand keys a second,
// many small allocations would cost more than the commands.
type commands struct {
	prefix string
	text   []byte  // names and values, in turn
	ends   []int   // the end of each in text
	ttls   []int64 // milliseconds
	kinds  []kind
	checks []uint32
	parts  []string // text, split at ends; set by send
	cmds   []*redis.StringCmd
}

// kind is the kind of a command.
type kind uint8

const (
	setNew kind = iota // SET if the key is empty
	setAny             // SET in any case
	look               // GET
)

func (s *Store) newCommands(n int) *commands {
	const usual = 192 // usual bytes of a name and a value
	return &commands{
		prefix: s.prefix, text: make([]byte, 0, n*usual), ends: make([]int, 0, 2*n),
		ttls:  make([]int64, 0, n),
		kinds: make([]kind, 0, n), checks: make([]uint32, 0, n),
	}
}

// add appends a command for k, and sets the check of r, the record to write.
func (c *commands) add(what kind, k dedup.Key, r *record, ttl int64) {
	c.text = append(c.text, c.prefix...)
	start := len(c.text)
	c.text = k.Append(c.text)
	r.check = checkOfText(c.text[start:])
	c.ends = append(c.ends, len(c.text))
	c.text = r.appendTo(c.text)
	c.ends = append(c.ends, len(c.text))
	c.ttls = append(c.ttls, ttl)
	c.kinds = append(c.kinds, what)
	c.checks = append(c.checks, r.check)
}

func (c *commands) len() int           { return len(c.kinds) }
func (c *commands) name(i int) string  { return c.parts[2*i] }
func (c *commands) value(i int) string { return c.parts[2*i+1] }
func (c *commands) reply(i int) string { return c.cmds[i].Val() }

// absent reports whether reply i is nil. send has returned all other errors.
func (c *commands) absent(i int) bool { return c.cmds[i].Err() != nil }

// build makes the commands. Arguments are pointers into the slices, because a string in an
// interface is an allocation.
func (c *commands) build(ctx context.Context) {
	const most = 7
	all, from := string(c.text), 0
	c.parts = make([]string, len(c.ends))
	for i, end := range c.ends {
		c.parts[i], from = all[from:end], end
	}
	args := make([]any, 0, most*c.len())
	c.cmds = make([]*redis.StringCmd, c.len())
	for i, what := range c.kinds {
		start := len(args)
		switch what {
		case setNew:
			args = append(args, "set", &c.parts[2*i], &c.parts[2*i+1], "nx", "get", "px",
				&c.ttls[i])
		case setAny:
			args = append(args, "set", &c.parts[2*i], &c.parts[2*i+1], "get", "px", &c.ttls[i])
		case look:
			args = append(args, "get", &c.parts[2*i])
		}
		c.cmds[i] = redis.NewStringCmd(ctx, args[start:len(args):len(args)]...)
	}
}

// send runs the commands in pipelines. If the error is nil, each command has a reply.
func (c *commands) send(ctx context.Context, client redis.UniversalClient) error {
	c.build(ctx)
	for part := range slices.Chunk(c.cmds, maxPipeline) {
		if err := exec(ctx, client, part); err != nil {
			return err
		}
		for _, cmd := range part {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
		}
	}
	return nil
}
