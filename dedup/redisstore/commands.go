package redisstore

import (
	"context"
	"errors"
	"slices"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
)

// commands are SETs and GETs that are sent together. The reply of each is what was under its key before. What they consist
// of lies side by side in a few slices: at a hundred thousand keys a second, collecting many small parts costs more than the
// commands.
type commands struct {
	prefix string
	text   []byte  // names and values, in turn
	ends   []int   // of each in text
	ttls   []int64 // milliseconds
	kinds  []kind
	checks []uint32
	parts  []string // as text is split by ends, once sent
	cmds   []*redis.StringCmd
}

// kind is what a command does.
type kind uint8

const (
	setNew kind = iota // SET if nothing is there
	setAny             // SET whatever is there
	look               // GET
)

func (s *Store) newCommands(n int) *commands {
	const usual = 192 // name and value with some to spare
	return &commands{
		prefix: s.prefix, text: make([]byte, 0, n*usual), ends: make([]int, 0, 2*n), ttls: make([]int64, 0, n),
		kinds: make([]kind, 0, n), checks: make([]uint32, 0, n),
	}
}

// add appends a command for k, and sets the check of r, which is what it writes.
func (c *commands) add(what kind, k dedup.Key, r *record, ttl int64) {
	c.text = append(c.text, c.prefix...)
	start := len(c.text)
	c.text = append(c.text, k.String()...)
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
func (c *commands) absent(i int) bool  { return c.cmds[i].Err() != nil } // after send, which leaves no other error

// build makes the commands. Arguments are pointers into the slices, since a string in an interface is an allocation.
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
			args = append(args, "set", &c.parts[2*i], &c.parts[2*i+1], "nx", "get", "px", &c.ttls[i])
		case setAny:
			args = append(args, "set", &c.parts[2*i], &c.parts[2*i+1], "get", "px", &c.ttls[i])
		case look:
			args = append(args, "get", &c.parts[2*i])
		}
		c.cmds[i] = redis.NewStringCmd(ctx, args[start:len(args):len(args)]...)
	}
}

// send runs the commands in pipelines. With a nil error each has its reply.
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
