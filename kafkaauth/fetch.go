package kafkaauth

import (
	"context"
	"fmt"
	"time"
)

// callTimeout bounds one call of a source. The sources of this package take less.
const callTimeout = 15 * time.Second

// Fetch calls the source for at most 15 seconds and checks the token ([Token.Check]), for the
// mechanism OAUTHBEARER of a Kafka client. An error matches that of the source, see [TokenSource],
// and never contains the token.
func (s TokenSource) Fetch(ctx context.Context) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	token, err := s(ctx)
	if err == nil {
		err = token.Check()
	}
	if err != nil {
		return Token{}, fmt.Errorf("SASL/OAUTHBEARER: %w", err)
	}
	return token, nil
}
