package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
)

// maxPipeline bounds what is written before the first reply is read.
const maxPipeline = 1000

//go:embed record.lua
var headLua string

var (
	//go:embed claim.lua
	claimLua string
	//go:embed renew.lua
	renewLua string
	//go:embed complete.lua
	completeLua string
	//go:embed restore.lua
	restoreLua string
	//go:embed release.lua
	releaseLua string
	//go:embed reopen.lua
	reopenLua string

	claimScript    = newScript(claimLua)
	renewScript    = newScript(renewLua)
	completeScript = newScript(completeLua)
	restoreScript  = newScript(restoreLua)
	releaseScript  = newScript(releaseLua)
	reopenScript   = newScript(reopenLua)
)

// script is a Lua script of one key, and the name by which a server that ran it before knows it.
type script struct{ body, sha string }

func newScript(body string) *script {
	body = headLua + body
	sum := sha1.Sum([]byte(body)) // a name that Redis prescribes, no protection
	return &script{body: body, sha: hex.EncodeToString(sum[:])}
}

// call is one run of a script.
type call struct {
	script *script
	key    string
	token  dedup.Token // comes back with the reply
	args   []any
	reply  reply
}

// reply is what a script says.
type reply struct {
	code  string
	left  int64  // milliseconds
	value string // a record, or nothing
}

func (c *call) cmd(ctx context.Context, evalsha bool) *redis.Cmd {
	args := make([]any, 0, 5+len(c.args))
	if evalsha {
		args = append(args, "evalsha", c.script.sha)
	} else {
		args = append(args, "eval", c.script.body)
	}
	args = append(args, 1, c.key, c.token[:])
	return redis.NewCmd(ctx, append(args, c.args...)...)
}

func (c *call) parse(cmd *redis.Cmd) error {
	parts, err := cmd.Slice()
	if err != nil {
		return err
	}
	if len(parts) != 4 {
		return fmt.Errorf("script reply of %d parts", len(parts))
	}
	echo, _ := parts[0].(string)
	code, ok1 := parts[1].(string)
	left, ok2 := parts[2].(int64)
	value, ok3 := parts[3].(string)
	if echo != string(c.token[:]) || !ok1 || !ok2 || !ok3 {
		return errors.New("script reply to another call")
	}
	c.reply = reply{code: code, left: left, value: value}
	return nil
}

// runScripts runs calls in pipelines. A server that does not know a script, because it was restarted, flushed or has
// just become the master, is sent its text.
func (s *Store) runScripts(ctx context.Context, calls []call) error {
	for part := range slices.Chunk(calls, maxPipeline) {
		if err := s.runPart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) runPart(ctx context.Context, calls []call) error {
	cmds := make([]*redis.Cmd, len(calls))
	for i := range calls {
		cmds[i] = calls[i].cmd(ctx, true)
	}
	if err := exec(ctx, s.client, cmds); err != nil {
		return err
	}
	var unknown []int
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			cmds[i] = calls[i].cmd(ctx, false)
			unknown = append(unknown, i)
		}
	}
	if len(unknown) > 0 {
		again := make([]*redis.Cmd, len(unknown))
		for j, i := range unknown {
			again[j] = cmds[i]
		}
		if err := exec(ctx, s.client, again); err != nil {
			return err
		}
	}
	for i := range calls {
		if err := calls[i].parse(cmds[i]); err != nil {
			return err
		}
	}
	return nil
}

// exec sends cmds in one pipeline. The errors that the server answers are left to the caller, in each command; any other
// error is returned, since some replies then never came, whatever their commands look like.
func exec[C redis.Cmder](ctx context.Context, client redis.UniversalClient, cmds []C) error {
	pipe := client.Pipeline()
	for _, cmd := range cmds {
		if err := pipe.Process(ctx, cmd); err != nil {
			return err
		}
	}
	_, err := pipe.Exec(ctx)
	var answered redis.Error
	if err != nil && !errors.As(err, &answered) {
		return err
	}
	return nil
}

// set is SET key value GET PX ttl, with NX if fresh. The reply is what was there before.
func set(ctx context.Context, key, value string, ttl int64, fresh bool) *redis.StringCmd {
	if fresh {
		return redis.NewStringCmd(ctx, "set", key, value, "nx", "get", "px", ttl)
	}
	return redis.NewStringCmd(ctx, "set", key, value, "get", "px", ttl)
}

// runSets runs SET commands in pipelines. Afterwards the error of each command is nil or redis.Nil.
func (s *Store) runSets(ctx context.Context, cmds []*redis.StringCmd) error {
	for part := range slices.Chunk(cmds, maxPipeline) {
		if err := exec(ctx, s.client, part); err != nil {
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
