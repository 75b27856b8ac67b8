package runner

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// retryReserve is how much longer than the delay a retry topic should keep a copy: the time for
// which all consumers may be down.
const retryReserve = 24 * time.Hour

// topicRetention checks that retry topics do not delete copies before the due time.
type topicRetention struct {
	admin    Admin
	commands Commands
	log      *slog.Logger
	text     func(error) string
}

// check corrects the retention of a retry topic that this consumer has created. For other topics
// check logs a warning, also without the right to read the settings (rule 46).
func (r *topicRetention) check(
	ctx context.Context, name string, delay time.Duration, created bool,
) {
	keep, policy, err := retentionOf(ctx, r.admin, name)
	if err != nil {
		r.warn("retention of a retry topic is not known: grant DescribeConfigs on it", name,
			"DescribeConfigs", err)
		return
	}
	want := delay + retryReserve
	if policy != "delete" && policy != "" {
		r.log.Warn("retry topic is compacted: of copies with one key only the last remains, "+
			"set cleanup.policy=delete",
			"topic", name)
	}
	if keep < 0 || keep >= want {
		return
	}
	if created {
		err := setRetention(ctx, r.admin, name, want)
		if err == nil {
			return
		}
		r.warn("retention of a retry topic cannot be set: grant AlterConfigs on it", name,
			"AlterConfigs", err)
	}
	r.log.Warn("retry topic keeps its copies hardly longer than their delay: "+
		"copies are lost if no consumer runs for a while",
		"topic", name, "retention", keep, "delay", delay, "at_least", want)
}

func (r *topicRetention) warn(text, name, op string, err error) {
	r.log.Warn(text, "topic", name, "error", r.text(err),
		"grant", r.commands.Grant("topic", name, op))
}

func setRetention(ctx context.Context, admin Admin, name string, keep time.Duration) error {
	value := strconv.FormatInt(keep.Milliseconds(), 10)
	return admin.ChangeTopic(ctx, name, map[string]string{retentionMs: value})
}

// The settings of a topic that decide how long it keeps records.
const (
	retentionMs   = "retention.ms"
	cleanupPolicy = "cleanup.policy"
)

// retentionOf returns how long a topic keeps records, negative for no limit, and the cleanup
// policy.
func retentionOf(
	ctx context.Context, admin Admin, name string,
) (keep time.Duration, policy string, err error) {
	values, err := admin.TopicSettings(ctx, name, retentionMs, cleanupPolicy)
	if err != nil {
		return 0, "", err
	}
	policy = values[cleanupPolicy]
	value, known := values[retentionMs]
	if !known {
		return -1, policy, nil
	}
	ms, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil:
		return 0, "", fmt.Errorf("retention.ms is %q", value)
	case ms < 0:
		return -1, policy, nil
	}
	longest := int64(time.Duration(1<<63-1) / time.Millisecond)
	return time.Duration(min(ms, longest)) * time.Millisecond, policy, nil
}
