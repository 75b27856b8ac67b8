package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/groups"
	"github.com/idem-go/idem/internal/kafkalog"
)

// openTopic finds the range to read, before any question or change.
func (im *importer) openTopic(ctx context.Context) (func(context.Context) error, error) {
	f := im.f
	if f.until == "" && !f.toCommitted {
		return nil, usage("--from-topic: up to where? give --to-committed, or --until")
	}
	if f.tableURL != "" {
		return nil, usage("--from-url is for --from-table")
	}
	if f.toCommitted {
		if _, err := im.a.theGroup(); err != nil {
			return nil, err
		}
	}
	client, err := im.a.kafka(ctx)
	if err != nil {
		return nil, err
	}
	spans, err := kafkalog.Spans(client, f.topic)
	if err != nil {
		return nil, err
	}
	deleted := deletedNotes(spans)
	if err := im.cutBegin(client, spans); err != nil {
		return nil, err
	}
	notes, err := im.cutEnd(client, spans)
	if err != nil {
		return nil, err
	}
	notes = append(notes, deleted...)
	var offsets int64
	for i := range spans {
		spans[i].End = max(spans[i].Begin, spans[i].End)
		offsets += spans[i].End - spans[i].Begin
	}
	open, err := openNotes(client, spans)
	if err != nil {
		return nil, err
	}
	notes = append(notes, open...)
	im.total = offsets
	im.counts.From = strings.Join(
		append(
			[]string{
				fmt.Sprintf(
					"Records of topic %s, %d offsets of %d partitions", f.topic, offsets,
					len(spans),
				),
			},
			notes...),
		"\n  ",
	)
	return func(ctx context.Context) error { return im.readTopic(ctx, client, spans) }, nil
}

// deletedNotes reports the records that the retention of the topic has removed.
func deletedNotes(spans []kafkalog.Span) []string {
	n := 0
	for _, s := range spans {
		if s.Begin > 0 {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return []string{
		fmt.Sprintf("in %d partitions Kafka has deleted older records: their events are not "+
			"imported", n),
	}
}

// openNotes reports the open transactions before the ends of the spans.
func openNotes(client sarama.Client, spans []kafkalog.Span) (notes []string, err error) {
	open := 0
	for _, s := range spans {
		if s.Begin >= s.End {
			continue
		}
		stable, err := kafkalog.Stable(client, s.Topic, s.Partition)
		if err != nil {
			return nil, err
		}
		if stable >= s.End {
			continue
		}
		if open++; open <= examplesShow {
			from := max(stable, s.Begin)
			notes = append(notes, fmt.Sprintf(
				"%s: offsets %d to %d are imported only if it ends before they are read",
				openText(s, from), from, s.End-1,
			))
		}
	}
	if more := open - examplesShow; more > 0 {
		notes = append(notes, fmt.Sprintf("%d partitions more with an open transaction", more))
	}
	return notes, nil
}

func (im *importer) cutBegin(client sarama.Client, spans []kafkalog.Span) error {
	if im.f.since == "" {
		return nil
	}
	from, err := parseTime("since", im.f.since)
	if err != nil {
		return err
	}
	for i := range spans {
		begin, err := offsetAt(client, &spans[i], from)
		if err != nil {
			return err
		}
		spans[i].Begin = max(spans[i].Begin, begin)
	}
	return nil
}

// offsetAt returns the first offset of a record at or after t, or the end.
func offsetAt(client sarama.Client, s *kafkalog.Span, t time.Time) (int64, error) {
	offset, err := client.GetOffset(s.Topic, s.Partition, t.UnixMilli())
	if err != nil {
		return 0, fmt.Errorf(
			"offset of %s/%d at %s: %w", s.Topic, s.Partition, t.UTC().Format(time.RFC3339), err,
		)
	}
	if offset < 0 {
		return s.End, nil
	}
	return min(offset, s.End), nil
}

// cutEnd limits each span to the handled records. notes are for the question to the person.
func (im *importer) cutEnd(
	client sarama.Client, spans []kafkalog.Span,
) (notes []string, err error) {
	if im.f.toCommitted {
		return im.cutCommitted(client, spans)
	}
	to, err := parseTime("until", im.f.until)
	if err != nil {
		return nil, err
	}
	for i := range spans {
		if spans[i].End, err = offsetAt(client, &spans[i], to); err != nil {
			return nil, err
		}
	}
	return []string{"before " + to.UTC().Format(time.RFC3339)}, nil
}

func (im *importer) cutCommitted(
	client sarama.Client, spans []kafkalog.Span,
) (notes []string, err error) {
	group := im.a.group
	admin, err := sarama.NewClusterAdminFromClient(client) // closed with the client
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	var partitions []int32
	for _, s := range spans {
		partitions = append(partitions, s.Partition)
	}
	committed, err := admin.ListConsumerGroupOffsets(
		group, map[string][]int32{im.f.topic: partitions},
	)
	if err == nil && committed.Err != sarama.ErrNoError {
		err = committed.Err
	}
	if err != nil {
		return nil, fmt.Errorf("offsets of group %s: %w", group, err)
	}
	notes = []string{"below the committed offsets of group " + group}
	none := 0
	var beyond []string
	for i := range spans {
		s := &spans[i]
		block := committed.GetBlock(s.Topic, s.Partition)
		switch {
		case block == nil || block.Err != sarama.ErrNoError:
			return nil, fmt.Errorf(
				"offset of group %s on %s/%d: no answer", group, s.Topic, s.Partition,
			)
		case block.Offset < 0:
			none++
			s.End = s.Begin
		case block.Offset > s.End:
			beyond = append(beyond, fmt.Sprintf(
				"%s/%d (offset %d, end %d)", s.Topic, s.Partition, block.Offset, s.End,
			))
		default:
			s.End = block.Offset
		}
	}
	if len(beyond) > 0 { // of an earlier topic with this name: these records were never handled
		return nil, found(
			"group %s has committed offsets beyond the end of the log: %s; the topic may have "+
				"been made anew, and then the group has not handled its records: "+
				"give --until with a time instead of --to-committed",
			group, strings.Join(beyond, ", "),
		)
	}
	if none == len(spans) {
		return nil, found(
			"group %s has no committed offsets on topic %s: check the name", group, im.f.topic,
		)
	}
	if none > 0 {
		notes = append(
			notes, fmt.Sprintf("%d partitions without a committed offset are left out", none),
		)
	}
	members, err := groups.Members(client, group)
	switch {
	case err != nil:
		notes = append(notes, "the members of the group are not known: "+err.Error())
	case len(members) > 0:
		notes = append(
			notes,
			fmt.Sprintf(
				"the group has %d members: events that they handle from now on are not imported, "+
					"stop them first",
				len(members),
			),
		)
	}
	return notes, nil
}

// readTopic imports the spans. An open transaction ends its own span only: the error names it after
// everything else was imported. Any other error ends the import at once.
func (im *importer) readTopic(
	ctx context.Context, client sarama.Client, spans []kafkalog.Span,
) error {
	var open error
	for _, s := range spans {
		if s.Begin >= s.End {
			continue
		}
		next, err := im.readSpan(ctx, client, s)
		im.seen.end()
		fmt.Fprintf(im.a.stderr, "idem: %s/%d read up to offset %d\n", s.Topic, s.Partition, next)
		if err != nil {
			return errors.Join(open, err)
		}
		if next < s.End {
			open = errors.Join(open, openTransaction(s, next))
		}
	}
	return errors.Join(open, im.flush(ctx))
}

// openTransaction is the error of a span that was read up to next only.
func openTransaction(s kafkalog.Span, next int64) error {
	return fmt.Errorf(
		"%s; the records from %d to %d were not imported: wait for its end, or abort it, and repeat",
		openText(s, next), next, s.End-1,
	)
}

func openText(s kafkalog.Span, from int64) string {
	return fmt.Sprintf("%s/%d: a transaction is open from offset %d", s.Topic, s.Partition, from)
}

// readSpan imports the records of a span, and returns the next offset to read. Without an error it
// is the end of the span, or the first offset of an open transaction.
func (im *importer) readSpan(
	ctx context.Context, client sarama.Client, s kafkalog.Span,
) (next int64, err error) {
	which := im.f.identity()
	for {
		next, err = kafkalog.ReadFrom(ctx, client, s, func(m *idem.Message) error {
			im.count()
			return im.addRecord(ctx, which, m)
		})
		var deleted *kafkalog.DeletedError
		if !errors.As(err, &deleted) {
			return next, err
		}
		im.seen.end()
		fmt.Fprintf(im.a.stderr, "idem: %v: their events are not imported\n", deleted)
		s.Begin = deleted.To
	}
}

func (im *importer) addRecord(ctx context.Context, which identity, m *idem.Message) error {
	where := fmt.Sprintf("%s/%d/%d", m.Topic, m.Partition, m.Offset)
	var parts [3]string
	for i, find := range []idem.Extractor{which.typ, which.id, which.tenant} {
		part, err := find.Extract(m)
		switch {
		case errors.Is(err, idem.ErrNotFound):
			im.counts.NoIdentity++
			im.example(where, err)
			return nil
		case err != nil:
			im.counts.Invalid++
			im.example(where, err)
			return nil
		}
		if parts[i] = part; i == 0 && len(im.f.types) > 0 && !slices.Contains(im.f.types, part) {
			im.counts.OtherTypes++
			return nil
		}
	}
	origin := dedup.Origin{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: m.Time}
	return im.add(ctx, where, parts[0], parts[2], parts[1], origin)
}
