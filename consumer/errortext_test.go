package consumer

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

// G-04: the consumer's text of an error quotes no data, or is the result of Config.ErrorText.
func TestErrorText_G04(t *testing.T) {
	_, quoting := strconv.Atoi("canary")
	cfg := good().withDefaults()
	require.Equal(t, "commit: strconv.Atoi: invalid syntax", cfg.errorText(fmt.Errorf("commit: %w", quoting)))
	require.Empty(t, cfg.errorText(nil))

	cfg.ErrorText = func(error) string { return "hidden" }
	var lines strings.Builder
	cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
	c, err := New(cfg, routed(nothing))
	require.NoError(t, err)
	defer c.handler.Close()
	c.noteDetail(quoting)
	c.noteDetail(&sarama.ConsumerError{Topic: "orders", Err: quoting})
	require.NotContains(t, lines.String(), "canary")
	require.Equal(t, 1, strings.Count(lines.String(), "error=hidden"), lines.String())
}
