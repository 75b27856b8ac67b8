package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/deadletters"
)

// editFlags are those of edit.
type editFlags struct {
	from, valueFile, out string
}

func newDLQEdit(a *app) *cobra.Command {
	var o dlqFlags
	var e editFlags
	var decided deadletters.Decisions
	cmd := &cobra.Command{
		Use: "edit [<partition>/<offset>]", Short: "Correct the value of a dead letter and " +
			"replay it",
		Args: cobra.MaximumNArgs(1),
		Long: "Opens the value in the editor of $VISUAL or $EDITOR, or takes the new value from\n" +
			"--value-file. Then replays the event with that value, under the same identity:\n" +
			"see idem dlq replay. The audit line has the SHA-256 of both values.\n" +
			"The dead letter stays as it is.\n" +
			"\n" +
			"Only the value may be edited. A value that was JSON must remain JSON, and the\n" +
			"event must keep its ID, type and tenant: a consumer refuses a copy with another\n" +
			"identity.\n" +
			"\n" +
			"--out writes the edited dead letter to a file instead, for a second person, who\n" +
			"replays the file with idem dlq replay --from.",
		Example: "  idem dlq edit --topic orders 0/14\n" +
			"  idem dlq edit --topic orders 0/14 --value-file corrected.json --out edited.jsonl\n" +
			"  idem dlq edit --topic orders --from exported.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == (e.from == "") {
				return usage("which dead letter? give <partition>/<offset>, or --from with a file")
			}
			if e.out != "" && a.dryRun {
				return usage("--out replays nothing, and a dry run writes no file: give one of " +
					"the two")
			}
			d, err := a.openDLQ(cmd.Context(), &o, e.out == "")
			if err != nil {
				return err
			}
			d.decisions = decided
			lines, err := d.linesToEdit(cmd.Context(), args, e.from)
			if err != nil {
				return err
			}
			var texts keptTexts
			if lines, err = d.edit(cmd.Context(), lines, e.valueFile, &texts); err == nil {
				if e.out != "" {
					err = d.keepEdited(lines, e.out)
				} else {
					err = d.replayEdited(cmd.Context(), lines)
				}
			}
			if err == nil && !a.dryRun && !d.leftAlone {
				return texts.remove()
			}
			a.nameKept(texts)
			return err
		},
	}
	o.add(cmd.Flags())
	cmd.Flags().StringVar(&e.from, "from", "", "edit the dead letters of this `file` of idem dlq "+
		"export")
	cmd.Flags().StringVar(&e.valueFile, "value-file", "", "take the new value from this `file`")
	cmd.Flags().StringVar(
		&e.out, "out", "", "write the edited dead letters to this new `file`, and replay none",
	)
	decisionFlags(cmd.Flags(), &decided)
	return cmd
}

// linesToEdit returns the named dead letter, or those of the file.
func (d *deadLetters) linesToEdit(
	ctx context.Context, args []string, from string,
) ([]deadletters.Exported, error) {
	if from != "" {
		return readExported(from)
	}
	at, err := parsePlace(args[0])
	if err != nil {
		return nil, err
	}
	l, err := d.deadLetterAt(ctx, at)
	if err != nil {
		return nil, err
	}
	return []deadletters.Exported{l.Export()}, nil
}

// deadLetterAt returns the dead letter at a place.
func (d *deadLetters) deadLetterAt(
	ctx context.Context, at deadletters.Place,
) (*deadletters.Found, error) {
	l, err := d.Get(ctx, at)
	switch {
	case errors.Is(err, deadletters.ErrNoRecord):
		return nil, found("%s has no record %s", d.Topic, at)
	case err != nil:
		return nil, err
	case l.DeadLetter == nil:
		return nil, found("%s %s: %w", d.Topic, at, l.Err)
	}
	return l, nil
}

// edit returns the lines with a value that a person has changed. texts gets the files of changed
// values, also with an error.
func (d *deadLetters) edit(
	ctx context.Context, lines []deadletters.Exported, valueFile string, texts *keptTexts,
) (edited []deadletters.Exported, err error) {
	if valueFile != "" && len(lines) > 1 {
		return nil, usage("--value-file is for one dead letter, and the file has %d", len(lines))
	}
	for i := range lines {
		x := &lines[i]
		at, err := x.Place()
		if err != nil {
			return nil, err
		}
		l, err := d.deadLetterAt(ctx, at)
		if err != nil {
			return nil, err
		}
		if names := x.Differs(l); len(names) > 0 {
			return nil, found("%s: the line and the record in the topic differ in %s", at,
				strings.Join(names, ", "))
		}
		before, err := x.Value.Bytes()
		if err != nil {
			return nil, found("%s: %w", at, err)
		}
		after, kept, err := d.app.newValue(ctx, before, valueFile)
		if err == nil && deadletter.ValueHash(after) == x.SHA256 {
			d.app.note("%s: unchanged", at)
			if err := removeEdited(kept); err != nil {
				return nil, err
			}
			continue
		}
		texts.add(at, kept)
		if err != nil {
			return nil, err
		}
		if err := deadletters.CheckEdit(l.DeadLetter, after); err != nil {
			d.auditRefused(l, deadletters.Edit{Before: x.SHA256, After: deadletter.ValueHash(after)}, err)
			return nil, found("%s: %w", at, err)
		}
		x.Value = deadletters.BytesOf(after)
		edited = append(edited, *x)
	}
	if len(edited) == 0 {
		return nil, found("no value was changed")
	}
	return edited, nil
}

// keepEdited writes edited lines to a file.
func (d *deadLetters) keepEdited(lines []deadletters.Exported, out string) error {
	fields := map[string]any{"topic": d.Topic, "file": out, "edits": editsOf(lines)}
	return d.app.audited("dlq edit", fields, func() error {
		return writeFile(d.app, out, func(w io.Writer) error {
			for i := range lines {
				if err := deadletters.WriteExported(w, &lines[i]); err != nil {
					return err
				}
			}
			d.app.note("%d written to %s: idem dlq replay --from %s", len(lines), out, out)
			return nil
		})
	})
}

// replayEdited replays edited lines.
func (d *deadLetters) replayEdited(ctx context.Context, lines []deadletters.Exported) error {
	producer, err := consumer.NewProducer(d.Client)
	if err != nil {
		return err
	}
	defer producer.Close()
	f := deadletters.Filter{At: placesOf(lines)}
	return d.replay(ctx, producer, f, replayFlags{lines: lines})
}

// auditRefused writes the audit line of a value that may not replace the one of the dead letter.
func (d *deadLetters) auditRefused(l *deadletters.Found, e deadletters.Edit, why error) {
	row := l.Row()
	row.Verdict, row.Note = deadletters.SeenEdit, d.app.redact(why.Error())
	d.auditEdit(deadletters.Done{Row: row, Edit: &e}, &progress{})
}

// auditEdit writes the audit line of an edited value.
func (d *deadLetters) auditEdit(l deadletters.Done, seen *progress) {
	d.leftAlone = d.leftAlone || l.Err != nil || !l.Replayed
	if l.Edit == nil {
		return
	}
	seen.end()
	fields := map[string]any{
		"topic": d.Topic, "group": d.Group, "record": l.Record,
		"scope": l.Scope, "tenant": l.Tenant, "type": l.Type, "event_id": l.ID,
		"sha256_before": l.Edit.Before, "sha256_after": l.Edit.After,
	}
	switch {
	case l.Err != nil:
		fields["outcome"], fields["error"] = deadletters.OutcomeFailed, d.app.redact(l.Err.Error())
	case !l.Replayed:
		fields["outcome"], fields["verdict"], fields["note"] = "refused", l.Verdict, l.Note
	}
	d.app.audit("dlq edit", fields)
}

// editsOf returns the hashes of edited lines, at most as many as an audit line names.
func editsOf(lines []deadletters.Exported) (all []map[string]string) {
	for i := range lines {
		x := &lines[i]
		if !x.IsEdited() || len(all) == maxAudited {
			continue
		}
		after := "?"
		if value, err := x.Value.Bytes(); err == nil {
			after = deadletter.ValueHash(value)
		}
		all = append(all, map[string]string{
			"record": x.Record, "event_id": x.ID, "sha256_before": x.SHA256, "sha256_after": after,
		})
	}
	return all
}

// editedText asks about edited values, in a question. A question lists a few of them.
func editedText(lines []deadletters.Exported) string {
	edited := 0
	for i := range lines {
		if lines[i].IsEdited() {
			edited++
		}
	}
	if edited == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d of them with an edited value:", edited)
	const most = 10
	for i, e := range editsOf(lines) {
		if i == most {
			b.WriteString("\n  ...")
			break
		}
		fmt.Fprintf(&b, "\n  %s %s: sha256 %s, was %s", e["record"], plain(e["event_id"]),
			shorten(e["sha256_after"], 17), shorten(e["sha256_before"], 17))
	}
	return b.String()
}
