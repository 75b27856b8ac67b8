package replay_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/replay"
)

// The payments of a day go through the repaired handler once more, beside the running group.
func Example() {
	again := func(ctx context.Context, live consumer.Config, router *idem.Router) (err error) {
		day := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
		r, err := replay.New(live, router, replay.Config{
			Window: replay.Between(day, day.AddDate(0, 0, 1)),
			Scope:  replay.OwnScope("repair-of-prices"),
			Rate:   500,
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		plan, err := r.Plan(ctx)
		if err != nil {
			return err
		}
		if _, err := plan.WriteTo(os.Stdout); err != nil { // a person looks at it
			return err
		}
		result, err := r.Run(ctx, plan, replay.NewBar(os.Stderr).Update)
		for _, f := range result.Failed {
			fmt.Println(f.Topic, f.Partition, f.Offset, f.Class, f.Error)
		}
		return err // if interrupted: start again under the same name
	}
	_ = again
}
