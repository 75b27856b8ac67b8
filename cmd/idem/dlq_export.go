package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/deadletters"
)

// exportLimit is the default of --limit.
const exportLimit = 1000

func newDLQExport(a *app) *cobra.Command {
	var o dlqFlags
	var chosen filterFlags
	var limit int
	var out string
	cmd := &cobra.Command{
		Use: "export", Args: cobra.NoArgs,
		Short: "Write dead letters with their values as JSON Lines",
		Long: "Writes one line of JSON for each chosen dead letter: its record, identity,\n" +
			"class, error, headers, Kafka key and value. Bytes that are not UTF-8 are in\n" +
			"base64. Values may be personal data.\n" +
			"\n" +
			"idem dlq replay --from and idem dlq edit --from take the file. It is no backup:\n" +
			"they need the records in the dead-letter topic too.",
		Example: "  idem dlq export --topic orders --class not-json --out exported.jsonl\n" +
			"  idem dlq export --topic orders --at 0/14",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := chosen.filter()
			if err != nil {
				return err
			}
			if err := checkLimit(limit, 1, deadletters.MaxExported); err != nil {
				return err
			}
			d, err := a.openDLQ(cmd.Context(), &o, false)
			if err != nil {
				return err
			}
			fields := map[string]any{"topic": d.Topic, "file": out}
			return a.audited("dlq export", fields, func() error {
				return writeFile(a, out, func(w io.Writer) (err error) {
					fields["dead_letters"], err = d.export(cmd.Context(), w, f, limit)
					return err
				})
			})
		},
	}
	o.add(cmd.Flags())
	chosen.add(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", exportLimit, "write at most so many")
	cmd.Flags().StringVar(
		&out, "out", "", "write to this new `file`, readable by its owner only; default: "+
			"standard output",
	)
	return cmd
}

// export writes the lines of the chosen records.
func (d *deadLetters) export(
	ctx context.Context, w io.Writer, f deadletters.Filter, limit int,
) (n int, err error) {
	more, size := false, &counted{w: w}
	scanned, err := d.List(ctx, f, func(l *deadletters.Found) (bool, error) {
		if n == limit || size.n > deadletters.MaxExportBytes/2 {
			more = true
			return false, nil
		}
		x := l.Export()
		n++
		return true, deadletters.WriteExported(size, &x)
	})
	d.app.note("%s: %d of %d records, %d written", d.Topic, scanned, d.Size(), n)
	if more {
		d.app.note("warning: other dead letters match: raise --limit, or choose by --since and " +
			"--until")
	}
	return n, err
}

// counted counts the bytes of a writer.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// writeFile calls write with a new file of mode 0600, or with standard output, for JSON. After an error there
// is no file.
func writeFile(a *app, path string, write func(io.Writer) error) error {
	if path == "" {
		return write(printableJSON{a.stdout})
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return found("%s exists: give another name, as no file is overwritten", path)
	}
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// readExported reads a file of idem dlq export.
func readExported(path string) ([]deadletters.Exported, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usage("--from: %w", err)
	}
	defer f.Close() // only read
	lines, err := deadletters.ReadExported(f)
	if errors.Is(err, deadletters.ErrExport) {
		return nil, usage("--from: %s: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	return lines, nil
}

// placesOf returns the places of lines.
func placesOf(lines []deadletters.Exported) (all []deadletters.Place) {
	for i := range lines {
		if at, err := lines[i].Place(); err == nil { // checked when the line was read
			all = append(all, at)
		}
	}
	return all
}
