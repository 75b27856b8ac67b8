package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
)

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
	//go:embed look.lua
	lookLua string
	//go:embed inspect.lua
	inspectLua string
	//go:embed forget.lua
	forgetLua string
	//go:embed discard.lua
	discardLua string
	//go:embed register.lua
	registerLua string

	claimScript    = newScript(headLua, claimLua)
	renewScript    = newScript(headLua, renewLua)
	completeScript = newScript(headLua, completeLua)
	restoreScript  = newScript(headLua, restoreLua)
	releaseScript  = newScript(headLua, releaseLua)
	reopenScript   = newScript(headLua, reopenLua)
	lookScript     = newScript(lookLua)
	inspectScript  = newScript(headLua, inspectLua)
	forgetScript   = newScript(headLua, forgetLua)
	discardScript  = newScript(headLua, discardLua)
	registerScript = newScript(registerLua) // of another kind of key
)

// script is a Lua script of one key, and its name on the server.
type script struct{ body, sha string }

func newScript(parts ...string) *script {
	body := strings.Join(parts, "")
	sum := sha1.Sum([]byte(body)) // a name that Redis prescribes, not a protection
	return &script{body: body, sha: hex.EncodeToString(sum[:])}
}

// call is one run of a script.
type call struct {
	script *script
	key    string
	token  dedup.Token // part of the reply
	args   []any
	reply  reply // zero without an answer
}

// reply is the result of a script.
type reply struct {
	code  string
	left  int64  // milliseconds
	value string // a record, or empty
}

func (c *call) cmd(ctx context.Context, evalsha bool) *redis.Cmd {
	args := make([]any, 0, 5+len(c.args))
	if evalsha {
		args = append(args, "evalsha", &c.script.sha)
	} else {
		args = append(args, "eval", &c.script.body)
	}
	args = append(args, "1", &c.key, c.token[:])
	return redis.NewCmd(ctx, append(args, c.args...)...)
}

// parse reads the reply of cmd, also if cmd has an error. When a context ends, go-redis on a cluster
// gives the error to all commands of the pipeline, also to those that a server has answered.
func (c *call) parse(cmd *redis.Cmd) error {
	parts, ok := cmd.Val().([]any)
	if !ok {
		_, err := cmd.Slice()
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
	return cmd.Err()
}

// runScripts runs calls in pipelines. A server may not know a script: after a restart, a flush
// or a failover. Then the server gets the text. If the error is nil, each call has a reply.
func (s *Store) runScripts(ctx context.Context, calls []call) error {
	for part := range slices.Chunk(calls, maxPipeline) {
		if err := s.runPart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// runPart is runScripts for one pipeline. After an error some calls may have a reply all the same, as
// when one server of a cluster is down.
func (s *Store) runPart(ctx context.Context, calls []call) error {
	cmds := make([]*redis.Cmd, len(calls))
	for i := range calls {
		cmds[i] = calls[i].cmd(ctx, true)
	}
	failure := exec(ctx, s.client, cmds)
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
		if err := exec(ctx, s.client, again); failure == nil {
			failure = err
		}
	}
	for i := range calls {
		if err := calls[i].parse(cmds[i]); failure == nil {
			failure = err
		}
	}
	return failure
}
