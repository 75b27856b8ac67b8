package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/spf13/cobra"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/kafkalog"
)

// lagFlags choose and judge.
type lagFlags struct {
	most, mostLetters int64
	ages              bool
}

func newLagCmd(a *app) *cobra.Command {
	var o lagFlags
	cmd := &cobra.Command{
		Use: "lag", Short: "How far consumer groups are behind, and how many dead letters they have", Args: cobra.NoArgs,
		Long: "For each topic that a group has committed offsets on, its retry topics among them: where it is, where the log ends, who\n" +
			"reads it, how old the oldest record is that is not consumed. Of its dead-letter topics: how many records they have.\n" +
			"Without --group all groups of the cluster.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.lag(cmd.Context(), o) },
	}
	cmd.Flags().Int64Var(&o.most, "max", -1, "exit code 1 if a partition has more records that are not consumed")
	cmd.Flags().Int64Var(&o.mostLetters, "max-letters", -1, "exit code 1 if a dead-letter topic has more records")
	cmd.Flags().BoolVar(&o.ages, "ages", true, "read the oldest record that is not consumed, for its age")
	return cmd
}

// lagRow is one partition.
type lagRow struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Kind      string `json:"kind"`                // source, retry or letters
	Committed *int64 `json:"committed,omitempty"` // nil: nothing yet
	End       int64  `json:"end"`
	// Lag counts offsets, which are records but for marks of transactions and what was compacted away. Of a dead-letter
	// topic it is what is there.
	Lag    int64      `json:"lag"`
	Oldest *time.Time `json:"oldest,omitempty"` // time of the first record that is not consumed
	Member string     `json:"member,omitempty"`
}

const (
	kindSource  = "source"
	kindRetry   = "retry"
	kindLetters = "letters"
)

func (a *app) lag(ctx context.Context, o lagFlags) error {
	client, err := a.kafka()
	if err != nil {
		return err
	}
	groups := []string{a.group}
	if a.group == "" {
		if groups, err = allGroups(client); err != nil {
			return err
		}
	}
	var rows []lagRow
	for _, group := range groups {
		of, err := a.lagOf(ctx, client, group, o.ages)
		if err != nil {
			return err
		}
		rows = append(rows, of...)
	}
	if a.group != "" && len(rows) == 0 { // else a misspelt group is never behind
		return found("group %s has neither members nor committed offsets", a.group)
	}
	if err := a.showLag(rows); err != nil {
		return err
	}
	return o.judge(rows)
}

func allGroups(client sarama.Client) ([]string, error) {
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	groups, err := admin.ListConsumerGroups()
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	return slices.Sorted(maps.Keys(groups)), nil
}

// lagOf is for one group.
func (a *app) lagOf(ctx context.Context, client sarama.Client, group string, ages bool) (rows []lagRow, err error) {
	committed, err := committedBy(client, group)
	if err != nil {
		return nil, err
	}
	members, err := membersOf(client, group)
	if err != nil {
		a.note("warning: members are not known: %v", err)
	}
	for _, topic := range topicsOf(client, group, committed, members) {
		kind := kindOf(topic, group)
		spans, err := kafkalog.Spans(client, topic)
		if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			a.note("warning: group %s has offsets on topic %s, which does not exist", group, topic)
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, s := range spans {
			row := lagRow{Group: group, Topic: topic, Partition: s.Partition, Kind: kind, End: s.End, Lag: s.End - s.Begin}
			if offset, ok := committed[topic][s.Partition]; ok && kind != kindLetters {
				row.Committed = &offset
				row.Lag = max(s.End-offset, 0)
				s.Begin = max(s.Begin, offset)
			}
			if ages && row.Lag > 0 {
				if row.Oldest, err = firstTime(ctx, client, s); err != nil {
					return nil, err
				}
			}
			row.Member = readerOf(members, topic, s.Partition)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// topicsOf are the topics that a group has offsets on or reads, with the retry and dead-letter topics that belong to them.
func topicsOf(client sarama.Client, group string, committed map[string]map[int32]int64, members []member) []string {
	topics := make(map[string]bool)
	for topic := range committed {
		topics[topic] = true
	}
	for _, m := range members {
		for topic := range m.assigned {
			topics[topic] = true
		}
	}
	all, _ := client.Topics() // none: a topic that is not listed is not shown
	for source := range maps.Clone(topics) {
		for _, topic := range all {
			if topic == idem.DeadLetterTopic(group)(source) || isRetryOf(topic, source, group) {
				topics[topic] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(topics))
}

// isRetryOf reports whether topic is for later attempts of a group's events of source.
func isRetryOf(topic, source, group string) bool {
	retry := idem.RetryTopic(source, group, 0)
	return topic == retry || strings.HasPrefix(topic, retry+".")
}

func kindOf(topic, group string) string {
	switch {
	case strings.HasSuffix(topic, idem.DeadLetterTopic(group)("")):
		return kindLetters
	case strings.Contains(topic, idem.RetryTopic("", group, 0)):
		return kindRetry
	}
	return kindSource
}

// firstTime is the time of the first record of a span, nil if there is none.
func firstTime(ctx context.Context, client sarama.Client, s kafkalog.Span) (first *time.Time, err error) {
	_, err = kafkalog.Read(ctx, client, s, func(m *idem.Message) (bool, error) {
		t := m.Time.UTC()
		first = &t
		return false, nil
	})
	return first, err
}

func readerOf(members []member, topic string, partition int32) string {
	for _, m := range members {
		if slices.Contains(m.assigned[topic], partition) {
			return m.String()
		}
	}
	return ""
}

func (a *app) showLag(rows []lagRow) error {
	cells := make([][]string, len(rows))
	for i, r := range rows {
		committed, age := "-", "-"
		if r.Committed != nil {
			committed = strconv.FormatInt(*r.Committed, 10)
		}
		if r.Oldest != nil {
			age = time.Since(*r.Oldest).Round(time.Second).String()
		}
		cells[i] = []string{
			r.Group, r.Topic, strconv.Itoa(int(r.Partition)), r.Kind, committed, strconv.FormatInt(r.End, 10),
			strconv.FormatInt(r.Lag, 10), age, plain(r.Member),
		}
	}
	if rows == nil {
		rows = []lagRow{}
	}
	return a.show(rows, []string{"GROUP", "TOPIC", "PARTITION", "KIND", "COMMITTED", "END", "LAG", "AGE", "MEMBER"}, cells)
}

// judge compares with what was allowed.
func (o lagFlags) judge(rows []lagRow) error {
	letters := make(map[string]int64)
	for _, r := range rows {
		if r.Kind == kindLetters {
			letters[r.Topic] += r.Lag
		} else if o.most >= 0 && r.Lag > o.most {
			return found("group %s is %d records behind on %s/%d, more than %d", r.Group, r.Lag, r.Topic, r.Partition, o.most)
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(letters)) {
		if o.mostLetters >= 0 && letters[topic] > o.mostLetters {
			return found("%d dead letters in %s, more than %d", letters[topic], topic, o.mostLetters)
		}
	}
	return nil
}
