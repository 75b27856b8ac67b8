package redisstore

import (
	"context"
	"errors"

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
	var answered redis.Error
	if err != nil && !errors.As(err, &answered) {
		return err
	}
	return nil
}
