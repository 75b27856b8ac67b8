package main

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// The log names each broker that cannot be reached, on one line that people can read.
func TestAwaitProducerLog(t *testing.T) {
	t.Parallel()
	brokers := []string{testenv.FreeAddr(t), testenv.FreeAddr(t)}
	a := &app{brokers: brokers}
	access, err := a.kafkaAccess("idem-relay")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var lines buffer
	seen := io.MultiWriter(&lines, &onWrite{substring: "cannot be reached", then: cancel})
	log := slog.New(slog.NewTextHandler(seen, nil))
	start := &relayStart{app: a, why: errNoBroker}
	_, err = start.awaitProducer(ctx, access, time.Hour, log)
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, lines.String(), brokers[0])
	require.Contains(t, lines.String(), brokers[1])
	require.Equal(t, 2, strings.Count(lines.String(), "connection refused"), &lines)
	require.NotContains(t, lines.String(), `\n`)
}
