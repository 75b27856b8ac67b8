package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/groups"
)

func failedText(r *deadletters.Row) string { return r.Failed.Format(time.RFC3339) }

// eventText returns the name of a dead letter's event in a table, as far as the name is known.
func eventText(r *deadletters.Row) string {
	switch {
	case r.ID == "" && r.Type == "":
		return "-"
	case r.Scope == "": // without identity
		return cmp.Or(r.Type, "-") + " " + cmp.Or(r.ID, "-")
	}
	return r.Type + " " + r.ID
}

// bytesText is how bytes are shown in a table.
func bytesText(b deadletters.Bytes) string {
	switch {
	case b.Null:
		return "(null)"
	case b.Base64 != "":
		return "base64:" + b.Base64
	}
	return plain(b.Text)
}

// bytesRows are bytes in a table, with their name. A text of several lines has a row for each line.
// Only the first row has the name, and the others begin with spaces: no text can forge a name.
func bytesRows(name string, b deadletters.Bytes) (rows [][]string) {
	b.Text = strings.ReplaceAll(strings.TrimSpace(b.Text), "\r\n", "\n")
	if b.Null || b.Base64 != "" || !strings.Contains(b.Text, "\n") {
		return [][]string{{name, bytesText(b)}}
	}
	for line := range strings.SplitSeq(plainLines(b.Text), "\n") {
		rows = append(rows, []string{name, cmp.Or(line, " ")}) // an empty row would end the table
		name = ""
	}
	return rows
}

func countsText(counts map[deadletters.Verdict]int) string {
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[v], v))
	}
	return strings.Join(parts, ", ")
}

// warnAboutReaders warns if the retry topics for copies are missing or have no consumer.
func (d *deadLetters) warnAboutReaders(s *deadletters.Survey) {
	topics := s.RetryTopics(d.Group)
	members, err := groups.Members(d.Client, d.Group)
	switch {
	case err != nil:
		d.app.note(
			"warning: cannot check whether group %s reads its retry topics: %v",
			d.Group,
			err,
		)
	case len(members) == 0:
		d.app.note("warning: group %s has no members now: copies wait until a member runs", d.Group)
	}
	for _, topic := range topics {
		_, err := d.Client.Partitions(topic)
		switch {
		case errors.Is(err, sarama.ErrUnknownTopicOrPartition):
			d.app.note("warning: %v", deadletters.NoRetryTopic(topic))
		case len(members) > 0 && !slices.ContainsFunc(members, func(m groups.Member) bool {
			return len(m.Assigned[topic]) > 0
		}):
			d.app.note(
				"warning: no member of group %s reads %s: copies wait there until one does",
				d.Group, topic,
			)
		}
	}
}
