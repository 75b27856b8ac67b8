package words_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/words"
)

// TestCount: one thing is in the singular, and the digits of large numbers are in groups.
func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"0 brokers":                  words.Count(0, "broker"),
		"1 broker":                   words.Count(1, "broker"),
		"2 standbys":                 words.Count(int16(2), "standby"),
		"-1 rows":                    words.Count(int64(-1), "row"),
		"1 retry":                    words.Count(1, "retry"),
		"3 retries":                  words.Count(3, "retry"),
		"9999 dead letters":          words.Count(9999, "dead letter"),
		"12\u202f345 events":         words.Count(12345, "event"),
		"-1\u202f234\u202f567 bytes": words.Count(int64(-1234567), "byte"),
	} {
		require.Equal(t, want, got)
	}
	require.Equal(t, "-9\u202f223\u202f372\u202f036\u202f854\u202f775\u202f808", words.Number(math.MinInt64))
	require.Equal(t, "100\u202f000", words.Number(100_000))
}

// TestPlain: one thing is in the singular, and no digits are in groups.
func TestPlain(t *testing.T) {
	for want, got := range map[string]string{
		"0 brokers":      words.Plain(0, "broker"),
		"1 broker":       words.Plain(1, "broker"),
		"2 standbys":     words.Plain(int16(2), "standby"),
		"3 retries":      words.Plain(3, "retry"),
		"12345 events":   words.Plain(12345, "event"),
		"-1234567 bytes": words.Plain(int64(-1234567), "byte"),
	} {
		require.Equal(t, want, got)
	}
}
