package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/kafkalog"
)

// recordFlags name a record, and the places of its identity.
type recordFlags struct {
	partition int32
	offset    int64
	identityFlags
}

func (f *recordFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.Int32Var(&f.partition, "partition", -1, "with --topic and --offset: the event of that record")
	s.Int64Var(&f.offset, "offset", -1, "with --topic and --partition: the event of that record")
	cmd.MarkFlagsRequiredTogether("partition", "offset")
	f.identityFlags.add(cmd)
}

// check refuses arguments that name no event, or two.
func (f *recordFlags) check(of *eventFlags, args []string) error {
	switch {
	case len(args) > 1:
		return usage("idem event skip wants one argument, the event's ID; it got %d", len(args))
	case f.offset < 0 && f.partition < 0 && f.given():
		return usage("flags such as --id-header read a record: give --topic, --partition and " +
			"--offset too")
	case f.offset < 0 && f.partition < 0 && len(args) != 1:
		return usage("which event? give the event's ID, or --topic, --partition and --offset of " +
			"a record")
	case f.offset < 0 && f.partition < 0:
		return nil
	case f.offset < 0 || f.partition < 0:
		return usage("--partition and --offset must not be negative")
	case len(args) > 0 || of.source != "":
		return usage("--offset names the event: give neither an ID nor --source")
	case of.topic == "":
		return usage("--offset: of which topic? give --topic")
	case of.typ != "" && f.typeHeader+f.typeJSON != "":
		return usage("--type is the type of the record: give no other flag for the type")
	}
	return nil
}

// at is the place of the record, empty if the flags name no offset.
func (f *recordFlags) at(topic string) string {
	if f.offset < 0 {
		return ""
	}
	return fmt.Sprintf("%s/%d/%d", topic, f.partition, f.offset)
}

// identify reads the record, sets type and tenant of the event in the flags, and returns its ID.
func (f *recordFlags) identify(ctx context.Context, a *app, of *eventFlags) (id string, err error) {
	m, err := f.read(ctx, a, of.topic)
	if err != nil {
		return "", err
	}
	f.typeFixed, f.tenant = of.typ, of.tenant
	which := f.identity()
	for _, part := range []struct {
		name string
		find idem.Extractor
		into *string
	}{{"type", which.typ, &of.typ}, {"ID", which.id, &id}, {"tenant", which.tenant, &of.tenant}} {
		if *part.into, err = part.find.Extract(m); err != nil {
			return "", found("the record %s has no %s that this command can read: %s; "+
				"give the same places as the options of its handler, such as --id-header or "+
				"--id-json",
				f.at(of.topic), part.name, oneLine(a.redact(err.Error())))
		}
	}
	return id, nil
}

// read returns the record.
func (f *recordFlags) read(ctx context.Context, a *app, topic string) (m *idem.Message, err error) {
	client, err := a.kafka(ctx)
	if err != nil {
		return nil, err
	}
	begin, end, err := kafkalog.Bounds(client, topic, f.partition)
	if err != nil {
		return nil, err
	}
	if f.offset < begin || f.offset >= end {
		return nil, found("there is no record %s: the partition has the offsets from %d to %d",
			f.at(topic), begin, end-1)
	}
	span := kafkalog.Span{Topic: topic, Partition: f.partition, Begin: f.offset, End: f.offset + 1}
	_, err = kafkalog.Read(ctx, client, span, func(read *idem.Message) (bool, error) {
		if read.Offset == f.offset {
			m = read
		}
		return false, nil
	})
	switch {
	case err != nil:
		return nil, err
	case m == nil:
		return nil, found("there is no record %s: it was compacted away, belongs to a transaction "+
			"that was not committed, or marks the end of one", f.at(topic))
	}
	return m, nil
}
