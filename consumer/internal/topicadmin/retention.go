package topicadmin

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// RetryReserve is how much longer than the delay a retry topic should keep a copy: the time for
// which all consumers may be down.
const RetryReserve = 24 * time.Hour

// Retention checks that retry topics do not delete copies before the due time.
type Retention struct {
	Admin     sarama.ClusterAdmin
	Commands  Commands
	Log       *slog.Logger
	ErrorText func(error) string
}

// Check mends the retention of a retry topic that this consumer has created. For other topics Check
// logs a warning, also without the right to read the settings (rule 46).
func (r *Retention) Check(name string, delay time.Duration, created bool) {
	keep, policy, err := retentionOf(r.Admin, name)
	if err != nil {
		r.warn("retention of a retry topic is not known: grant DescribeConfigs on it", name,
			"DescribeConfigs", err)
		return
	}
	want := delay + RetryReserve
	if policy != "delete" && policy != "" {
		r.Log.Warn("retry topic is compacted: of copies with one key only the last remains, "+
			"set cleanup.policy=delete",
			"topic", name)
	}
	if keep < 0 || keep >= want {
		return
	}
	if created {
		err := setRetention(r.Admin, name, want)
		if err == nil {
			return
		}
		r.warn("retention of a retry topic cannot be set: grant AlterConfigs on it", name,
			"AlterConfigs", err)
	}
	r.Log.Warn("retry topic keeps its copies hardly longer than their delay: "+
		"copies are lost if no consumer runs for a while",
		"topic", name, "retention", keep, "delay", delay, "at_least", want)
}

func (r *Retention) warn(text, name, op string, err error) {
	r.Log.Warn(text, "topic", name, "error", r.ErrorText(err),
		"grant", r.Commands.Grant("topic", name, op))
}

func setRetention(admin sarama.ClusterAdmin, name string, keep time.Duration) error {
	value := strconv.FormatInt(keep.Milliseconds(), 10)
	return admin.IncrementalAlterConfig(sarama.TopicResource, name,
		map[string]sarama.IncrementalAlterConfigsEntry{
			"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
		}, false)
}

// retentionOf returns how long a topic keeps records, negative for no limit, and the cleanup
// policy.
func retentionOf(
	admin sarama.ClusterAdmin, name string,
) (keep time.Duration, policy string, err error) {
	answers, err := admin.DescribeConfigs([]*sarama.ConfigResource{{
		Type: sarama.TopicResource, Name: name,
		ConfigNames: []string{"retention.ms", "cleanup.policy"},
	}}, sarama.DescribeConfigsOptions{})
	if err != nil {
		return 0, "", err
	}
	if len(answers) != 1 {
		return 0, "", sarama.ErrIncompleteResponse
	}
	if code := answers[0].ErrorCode; !errors.Is(code, sarama.ErrNoError) {
		return 0, "", code
	}
	keep = -1
	for _, e := range answers[0].Configs {
		switch e.Name {
		case "cleanup.policy":
			policy = e.Value
		case "retention.ms":
			ms, err := strconv.ParseInt(e.Value, 10, 64)
			if err != nil {
				return 0, "", fmt.Errorf("retention.ms is %q", e.Value)
			}
			if keep = -1; ms >= 0 {
				longest := int64(time.Duration(1<<63-1) / time.Millisecond)
				keep = time.Duration(min(ms, longest)) * time.Millisecond
			}
		}
	}
	return keep, policy, nil
}
