package main

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/deadletters"
)

func newDLQList(a *app) *cobra.Command {
	var o dlqFlags
	var chosen filterFlags
	var limit int
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List dead letters", Args: cobra.NoArgs,
		Example: "  idem dlq ls --topic orders -G billing --brokers localhost:9092\n" +
			"  idem dlq ls --topic orders -G billing --class failed,timeout --since 2h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := chosen.filter()
			if err != nil {
				return err
			}
			if err := checkLimit(limit, 0, math.MaxInt); err != nil {
				return err
			}
			d, err := a.openDLQ(cmd.Context(), &o, false)
			if err != nil {
				return err
			}
			return d.list(cmd.Context(), f, limit)
		},
	}
	o.add(cmd.Flags())
	chosen.add(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after so many; 0: no limit")
	return cmd
}

func (d *deadLetters) list(ctx context.Context, f deadletters.Filter, limit int) error {
	w, err := d.app.rows("RECORD", "FAILED", "CLASS", "EVENT", "ATTEMPTS", "REPLAYS", "ERROR")
	if err != nil {
		return err
	}
	scanned, err := d.List(ctx, f, func(l *deadletters.Found) (bool, error) {
		r := l.Row()
		err := w.add(
			r, r.Record, failedText(&r), cmp.Or(string(r.Class), string(deadletters.SeenForeign)),
			eventText(&r), strconv.Itoa(r.Attempts), strconv.FormatUint(uint64(r.Replays), 10),
			brief(cmp.Or(r.Error, r.Problem), 80),
		)
		return limit <= 0 || w.n < limit, err
	})
	d.app.note("%s: %d of %d records, %d shown", d.Topic, scanned, d.Size(), w.n)
	return errors.Join(err, w.end())
}
