package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/spf13/cobra"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/groups"
	"github.com/idem-go/idem/internal/jsontime"
	"github.com/idem-go/idem/internal/kafkalog"
)

// lagFlags choose and judge.
type lagFlags struct {
	most, mostDeadLetters int64
	ages                  bool
}

func newLagCmd(a *app) *cobra.Command {
	var o lagFlags
	cmd := &cobra.Command{
		Use: "lag", Short: "Show how far consumer groups are behind, and how many dead letters " +
			"they have", Args: cobra.NoArgs,
		Long: "Prints, for each topic with committed offsets of a group and for its retry\n" +
			"topics: the committed offset, the end of the log, the member that reads the\n" +
			"partition, and the age of the oldest record that is not consumed. For its\n" +
			"dead-letter topics: the number of records. Without --group all groups of the\n" +
			"cluster are listed.",
		Example: "  idem lag -G billing --brokers localhost:9092\n" +
			"  idem lag -G billing --max 10000 --max-dead-letters 0",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.lag(cmd.Context(), o) },
	}
	cmd.Flags().
		Int64Var(&o.most, "max", -1, "exit code 1 if a partition has more unconsumed records, or "+
			"its committed offset is beyond the end of the log")
	cmd.Flags().
		Int64Var(&o.mostDeadLetters, "max-dead-letters", -1, "exit code 1 if a dead-letter topic "+
			"has more records")
	cmd.Flags().
		BoolVar(&o.ages, "ages", true, "read the oldest unconsumed record, for the age")
	return cmd
}

// lagRow is one partition.
type lagRow struct {
	Group     string      `json:"group"`
	Topic     string      `json:"topic"`
	Partition int32       `json:"partition"`
	Kind      groups.Kind `json:"kind"`                // source, retry or dead letters
	Committed *int64      `json:"committed,omitempty"` // nil without a commit
	End       *int64      `json:"end"`                 // nil if Problem is set
	// Lag counts offsets. Markers of transactions and compacted records count too. For a
	// dead-letter topic, and if Beyond is set, Lag is the number of offsets in the topic. Nil if
	// Problem is set.
	Lag *int64 `json:"lag"`
	// Problem is why the numbers of a dead-letter topic are not known. Partition is -1 then.
	Problem string `json:"problem,omitempty"`
	// Beyond is set if the committed offset is beyond the end of the log.
	Beyond bool       `json:"beyond_end,omitempty"`
	Oldest *time.Time `json:"oldest,omitempty"` // time of the first record that is not consumed
	Member string     `json:"member,omitempty"`
}

func (a *app) lag(ctx context.Context, o lagFlags) error {
	client, err := a.kafka(ctx)
	if err != nil {
		return err
	}
	reader := groups.NewReader(client)
	a.closers = append(a.closers, reader.Close)
	names := []string{a.group}
	if a.group == "" {
		if names, err = reader.Groups(ctx); err != nil {
			return err
		}
	}
	var rows []lagRow
	for _, group := range names {
		of, err := a.lagOf(ctx, client, reader, group, o.ages)
		if err != nil {
			return err
		}
		rows = append(rows, of...)
	}
	if a.group != "" && len(rows) == 0 { // else a misspelt group is never behind
		return found(
			"group %s has neither members nor committed offsets on topics that this user may "+
				"describe",
			a.group,
		)
	}
	err = a.showLag(rows)
	if judged := o.judge(rows); judged != nil {
		if err != nil {
			a.note("warning: the rows cannot be printed: %v", err)
		}
		return judged
	}
	return err
}

// lagOf is for one group.
func (a *app) lagOf(
	ctx context.Context, client sarama.Client, reader *groups.Reader, group string, ages bool,
) (rows []lagRow, err error) {
	state, err := reader.Lag(ctx, groups.Query{Group: group})
	if err != nil {
		return nil, err
	}
	if state.MembersErr != nil {
		a.note("warning: members are not known: %v", state.MembersErr)
	}
	for _, topic := range state.Missing {
		a.note("warning: group %s has offsets on topic %s, which does not exist", group, topic)
	}
	unreadable := make(map[string]bool)
	for i := range state.Partitions {
		p := &state.Partitions[i]
		row := lagRow{
			Group: group, Topic: p.Topic, Partition: p.Partition, Kind: p.Kind,
			Committed: p.Committed, End: &p.End, Lag: &p.Lag, Beyond: p.Beyond, Member: p.Reader,
		}
		switch {
		case p.Kind == groups.DeadLetters &&
			errors.Is(p.Err, sarama.ErrTopicAuthorizationFailed):
			a.note("warning: the number of dead letters is not known: %v", p.Err)
			row.End, row.Lag, row.Problem = nil, nil, idem.ErrorText(p.Err)
			rows = append(rows, row)
			continue
		case p.Err != nil:
			return nil, p.Err
		}
		if row.Beyond {
			a.note("warning: %s", row.beyondText())
		}
		if ages && p.Lag > 0 && !unreadable[p.Topic] {
			oldest, err := firstTime(
				ctx, client,
				kafkalog.Span{Topic: p.Topic, Partition: p.Partition, Begin: p.Next, End: p.End},
			)
			switch {
			case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
				// all but the age is known (rule 46)
				unreadable[p.Topic] = true
				a.note("warning: ages are not known: %v (grant Read on topic %s)", err, p.Topic)
			case err != nil:
				return nil, err
			case oldest != nil:
				row.Oldest = jsontime.Pointer(*oldest)
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// beyondText explains a committed offset beyond the end of the log.
func (r *lagRow) beyondText() string {
	return fmt.Sprintf(
		"group %s: the committed offset %d of %s/%d is beyond the end %d: was the topic made anew?",
		r.Group, *r.Committed, r.Topic, r.Partition, *r.End,
	)
}

func (a *app) showLag(rows []lagRow) error {
	cells := make([][]string, len(rows))
	for i, r := range rows {
		partition, committed, age := strconv.Itoa(int(r.Partition)), "-", "-"
		end, lag := "unknown", "unknown"
		if r.Committed != nil {
			committed = strconv.FormatInt(*r.Committed, 10)
		}
		if r.Oldest != nil {
			age = time.Since(*r.Oldest).Round(time.Second).String()
		}
		if r.Problem != "" {
			partition = "-"
		} else {
			end, lag = strconv.FormatInt(*r.End, 10), strconv.FormatInt(*r.Lag, 10)
		}
		cells[i] = []string{
			r.Group, r.Topic, partition, string(r.Kind), committed, end, lag, age, plain(r.Member),
		}
	}
	if rows == nil {
		rows = []lagRow{}
	}
	return a.show(
		rows,
		[]string{"GROUP", "TOPIC", "PARTITION", "KIND", "COMMITTED", "END", "LAG", "AGE", "MEMBER"},
		cells,
	)
}

// judge compares the lag with the allowed one.
func (o lagFlags) judge(rows []lagRow) error {
	letters := make(map[string]int64)
	unknown := ""
	for _, r := range rows {
		switch {
		case r.Problem != "":
			unknown = cmp.Or(unknown, r.Problem)
		case r.Kind == groups.DeadLetters:
			letters[r.Topic] += *r.Lag
		case o.most < 0:
		case r.Beyond: // the lag is only an upper bound, and a group with FailOnGap does not run
			return found("%s", r.beyondText())
		case *r.Lag > o.most:
			return found("group %s is %d records behind on %s/%d, more than %d",
				r.Group, *r.Lag, r.Topic, r.Partition, o.most)
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(letters)) {
		if o.mostDeadLetters >= 0 && letters[topic] > o.mostDeadLetters {
			return found(
				"%d dead letters in %s, more than %d", letters[topic], topic, o.mostDeadLetters,
			)
		}
	}
	if o.mostDeadLetters >= 0 && unknown != "" {
		return fmt.Errorf("--max-dead-letters: the number of dead letters is not known: %s", unknown)
	}
	return nil
}
