package runner

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/deadletter"
)

func good() Config { return Config{Group: "g", Topics: []string{"t"}}.WithDefaults() }

// G-04: the text of an error quotes no data and is bounded.
func TestText_G04(t *testing.T) {
	_, quoting := strconv.Atoi("canary")
	cfg := good()
	require.Equal(t, "commit: strconv.Atoi: invalid syntax", cfg.Text(fmt.Errorf("commit: %w", quoting)))
	require.Empty(t, cfg.Text(nil))
	require.Len(t, cfg.Text(errors.New(strings.Repeat("x", 5000))), maxErrorText)
	cfg.ErrorText = func(error) string { return "hidden" }
	require.Equal(t, "hidden", cfg.Text(quoting))
}

func TestConfig_Defaults(t *testing.T) {
	cfg := good()
	require.Empty(t, cfg.Validate(true))
	require.Equal(t, "g", cfg.Scope)
	require.Equal(t, 1, cfg.Lanes)
	require.Equal(t, 16<<20, cfg.QueueBytes)
	require.Equal(t, "t.g.dlq", cfg.DeadLetterTopic("t"))
	require.Equal(t, []time.Duration{30 * time.Second, 30 * time.Second, time.Second, 5 * time.Minute, time.Minute},
		[]time.Duration{cfg.Lease, cfg.Grace, cfg.CommitInterval, cfg.StallTimeout, cfg.SilenceTimeout})
	require.Equal(t, 40*time.Second+100*time.Millisecond, cfg.EndWait(), "grace, and 10 s to record")
	cfg.Grace = 3 * time.Second
	require.Equal(t, 4*time.Second+100*time.Millisecond, cfg.EndWait())
	cfg.SilenceTimeout = -1
	require.EqualValues(t, -1, cfg.WithDefaults().SilenceTimeout, "never")
}

// TestConfig_Refuses: each mistake alone, with the number of messages for a runner that subscribes
// and for one that does not.
func TestConfig_Refuses(t *testing.T) {
	for want, c := range map[string]struct {
		spoil        func(*Config)
		alone, inAll int
	}{
		"Config.Group is empty":                {func(c *Config) { c.Group = "" }, 1, 1},
		"Config.CommitInterval is negative":    {func(c *Config) { c.CommitInterval = -1 }, 1, 1},
		"Config.StallTimeout is negative":      {func(c *Config) { c.StallTimeout = -1 }, 1, 1},
		"Config.Grace is negative":             {func(c *Config) { c.Grace = -1 }, 1, 1},
		"Config.QueueBytes is negative":        {func(c *Config) { c.QueueBytes = -1 }, 1, 1},
		"Config.Lanes is 257, not between 1":   {func(c *Config) { c.Lanes = 257 }, 1, 1},
		"Config.Lanes is -1, not between 1":    {func(c *Config) { c.Lanes = -1 }, 1, 1},
		"Config.Start is unknown(2)":           {func(c *Config) { c.Start = 2 }, 1, 1},
		"Config.OnGap is unknown(3)":           {func(c *Config) { c.OnGap = 3 }, 1, 1},
		"Config.OnLostOffsets is unknown(3)":   {func(c *Config) { c.OnLostOffsets = 3 }, 1, 1},
		"Config.WhenStalled is unknown(3)":     {func(c *Config) { c.WhenStalled = 3 }, 1, 1},
		"has a negative number":                {func(c *Config) { c.CreateDeadLetterTopics = &TopicSpec{Partitions: -1} }, 1, 1},
		`Config.DeadLetterTopic("t") is empty`: {func(c *Config) { c.DeadLetterTopic = func(string) string { return "" } }, 1, 1},
		"would be consumed again":              {func(c *Config) { c.Topics = []string{"a", "a.g.dlq"} }, 1, 1}, // T-08
		"Config.Topics is empty":               {func(c *Config) { c.Topics = nil }, 0, 1},
		"contains an empty name":               {func(c *Config) { c.Topics = []string{""} }, 0, 1},
		"contains a name twice":                {func(c *Config) { c.Topics = []string{"a", "b", "a"} }, 0, 1},
		"a retry topic of this group": {func(c *Config) {
			c.Topics = []string{deadletter.RetryTopic("t", "g", time.Minute)}
		}, 0, 1},
	} {
		cfg := good()
		c.spoil(&cfg)
		require.Len(t, cfg.Validate(false), c.alone, want)
		all := cfg.Validate(true)
		require.Len(t, all, c.inAll, want)
		require.ErrorContains(t, errors.Join(all...), want)
	}
}

func TestSourceOf(t *testing.T) {
	for topic, want := range map[string]string{
		deadletter.RetryTopic("orders", "g", 0):           "orders",
		deadletter.RetryTopic("orders", "g", time.Minute): "orders",
		deadletter.RetryTopic("orders", "h", 0):           "",
		"orders":                                          "",
		deadletter.RetryTopic("", "g", 0):                 "",
		deadletter.RetryTopic("orders", "g", 0) + ".soon": "",
		deadletter.RetryTopic("orders", "g", 0) + ".60s":  "", // not the name that RetryTopic gives
	} {
		source, ok := SourceOf(topic, "g")
		require.Equal(t, want != "", ok, topic)
		if ok {
			require.Equal(t, want, source)
		}
		require.Equal(t, ok, IsRetry(topic, "g"))
	}
}

func TestErrors(t *testing.T) {
	gap := &GapError{Topic: "t", Partition: 3, Committed: 100, Oldest: 500, Newest: 1000}
	require.EqualError(t, gap, "t/3: 400 offsets, 100 to 499, were deleted before they were consumed (the log is 500 to 1000)")
	beyond := &GapError{Topic: "t", Committed: 100, Oldest: 0, Newest: 7}
	require.ErrorContains(t, beyond, "beyond the end of the log")
	require.Zero(t, beyond.Missing())
	cut := &GapError{Topic: "t", Partition: 3, Committed: 100, Oldest: 80, Newest: 80, Cut: true}
	require.EqualError(t, cut, "t/3: the log was cut at offset 80, below the next record 100, and other "+
		"records may have taken the offsets: was an unclean leader elected? Rewind the group to offset 80 or below, or choose OnGap")
	require.Zero(t, cut.Missing())
	require.ErrorContains(t, &TopicError{Topics: []string{"a", "b"}}, "a, b")
	require.ErrorContains(t, &TopicError{Topics: []string{"a"}, DeadLetters: true}, "CreateDeadLetterTopics")
}
