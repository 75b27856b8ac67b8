package redisstore

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
)

// maxPipeline bounds the commands written before the first reply is read.
const maxPipeline = 1000

// exec sends cmds in one pipeline, on a cluster in one to each node at the same time. Errors
// that the server answers stay in their commands. Any other error is returned, because some
// replies are then missing, although their commands show no error. On a cluster the refusal of
// another node may hide such an error, but each command has an error of its own.
func exec[C redis.Cmder](ctx context.Context, client redis.UniversalClient, cmds []C) error {
	all := make([]redis.Cmder, len(cmds))
	for i, cmd := range cmds {
		all[i] = cmd
	}
	pipe := client.Pipeline()
	if err := pipe.BatchProcess(ctx, all...); err != nil {
		return err
	}
	_, err := pipe.Exec(ctx)
	if err == nil {
		return nil
	}
	if slices.ContainsFunc(all, unanswered) {
		reload(ctx, client)
	}
	var answered redis.Error
	if !errors.As(err, &answered) {
		return err
	}
	return nil
}

// unanswered reports whether a command has failed without an answer of a server.
func unanswered(cmd redis.Cmder) bool {
	var answered redis.Error
	return cmd.Err() != nil && !errors.As(cmd.Err(), &answered)
}

// reload lets the client of a cluster look for the new masters, in the background. By itself
// go-redis does so once a minute if a master does not answer, and leases end meanwhile.
func reload(ctx context.Context, client redis.UniversalClient) {
	if c, ok := client.(interface{ ReloadState(context.Context) }); ok {
		c.ReloadState(ctx)
	}
}
