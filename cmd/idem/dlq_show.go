package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/deadletters"
)

func newDLQShow(a *app) *cobra.Command {
	var o dlqFlags
	var payload bool
	cmd := &cobra.Command{
		Use: "show <partition>/<offset>", Short: "Show a dead letter", Args: cobra.ExactArgs(1),
		Example: "  idem dlq show 0/14 --topic orders -G billing --brokers localhost:9092\n" +
			"  idem dlq show 0/14 --topic orders -G billing --payload",
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := parsePlace(args[0])
			if err != nil {
				return err
			}
			d, err := a.openDLQ(cmd.Context(), &o, false)
			if err != nil {
				return err
			}
			return d.show(cmd.Context(), at, payload)
		},
	}
	o.add(cmd.Flags())
	cmd.Flags().
		BoolVar(&payload, "payload", false, "also show the value, which may have personal data")
	return cmd
}

func (d *deadLetters) show(ctx context.Context, at deadletters.Place, payload bool) error {
	l, err := d.Get(ctx, at)
	if errors.Is(err, deadletters.ErrNoRecord) {
		return found("%s has no record %s", d.Topic, at)
	}
	if err != nil {
		return err
	}
	detail := l.Detail(payload)
	return d.app.show(detail, []string{"", ""}, detailRows(&detail))
}

func detailRows(t *deadletters.Detail) [][]string {
	size := strconv.Itoa(t.Size) + " bytes"
	if t.Omitted {
		size += ", the value is in the original record"
	}
	rows := [][]string{
		{"record", t.Topic + "/" + t.Record}, {"kafka key", bytesText(t.Key)}, {"value", size},
	}
	if t.Problem != "" {
		rows = append(rows, []string{"problem", oneLine(t.Problem)})
	}
	for _, h := range t.Headers {
		rows = append(rows, bytesRows(strings.TrimSpace(h.Key), h.Bytes)...)
	}
	if t.Payload != nil {
		rows = append(rows, bytesRows("payload", *t.Payload)...)
	}
	return rows
}
