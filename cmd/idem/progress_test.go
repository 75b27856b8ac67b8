package main

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressText(t *testing.T) {
	for _, c := range []struct {
		n, total int64
		took     time.Duration
		want     string
	}{
		{0, 0, 0, "0 records"},
		{0, 100, time.Minute, "0 of 100 records (0 %)"},
		{10, 100, time.Millisecond, "10 of 100 records (10 %)"},
		{50, 200, 10 * time.Second, "50 of 200 records (25 %), 5 a second, about 30s left"},
		{200, 200, 10 * time.Second, "200 of 200 records (100 %), 20 a second"},
		{300, 200, 10 * time.Second, "300 of 200 records (100 %), 30 a second"},
		{1234, 0, 100 * time.Second, "1234 records, 12.3 a second"},
	} {
		require.Equal(t, c.want, progressText("records", c.n, c.total, c.took))
	}
}

// A log gets a line every few seconds, a terminal one line that changes and goes away.
func TestProgress(t *testing.T) {
	for terminal, want := range map[bool]string{
		false: "idem: 60 of 100 records (60 %), 10 a second, about 4s left, good\n",
		true: "\r\x1b[K20 of 100 records (20 %), 10 a second, about 8s left, good" +
			"\r\x1b[K40 of 100 records (40 %), 10 a second, about 6s left, good" +
			"\r\x1b[K60 of 100 records (60 %), 10 a second, about 4s left, good\r\x1b[K",
	} {
		var out bytes.Buffer
		now := time.Now()
		p := newProgress(&out, terminal, "records", 100, func() time.Time { return now })
		for range 3 {
			now = now.Add(2 * time.Second)
			p.add(20, func() string { return "good" })
		}
		p.end()
		p.end()
		require.Equal(t, want, out.String())
	}
	require.False(t, writesToTerminal(io.Discard))
}
