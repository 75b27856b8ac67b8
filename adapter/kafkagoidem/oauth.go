package kafkagoidem

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/idem-go/idem/kafkaauth"
)

// OAuth returns the mechanism OAUTHBEARER (RFC 7628) with the tokens of source, for [Config].SASL.
// The source is called at each new connection, for at most 15 seconds. An error that matches
// [kafkaauth.ErrRefused] ends a start with an error that matches runner.ErrUnauthorized. All other
// errors are waited for, like brokers that are down.
//
// kafka-go does not authenticate again (KIP-368). The brokers close a connection at the end of its
// token, and the runner opens a new one.
func OAuth(source kafkaauth.TokenSource) sasl.Mechanism { return bearer{source} }

type bearer struct{ source kafkaauth.TokenSource }

// Name implements [sasl.Mechanism].
func (bearer) Name() string { return "OAUTHBEARER" }

// Start implements [sasl.Mechanism].
func (b bearer) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	token, err := b.source.Fetch(ctx)
	if err != nil {
		return nil, nil, err
	}
	message, err := bearerMessage(token)
	if err != nil {
		return nil, nil, fmt.Errorf("SASL/OAUTHBEARER: %w", err)
	}
	return bearerSession{}, message, nil
}

// bearerMessage returns the first message of the client (RFC 7628, section 3.1).
func bearerMessage(token kafkaauth.Token) ([]byte, error) {
	message := "n,,\x01auth=Bearer " + token.Value + "\x01"
	for _, key := range slices.Sorted(maps.Keys(token.Extensions)) {
		value := token.Extensions[key]
		if key == "auth" || key == "" || strings.ContainsFunc(key, isNoLetter) {
			return nil, fmt.Errorf("extension %q: the name must be of A to Z and a to z, and not \"auth\"", key)
		}
		if strings.ContainsFunc(value, isNoText) {
			return nil, fmt.Errorf("extension %q: the value must be printable ASCII", key)
		}
		message += key + "=" + value + "\x01"
	}
	return []byte(message + "\x01"), nil
}

func isNoLetter(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') }

func isNoText(c rune) bool { return (c < ' ' || c > '~') && !strings.ContainsRune("\t\r\n", c) }

type bearerSession struct{}

// Next implements [sasl.StateMachine]. A server that refuses the token sends the reason, and ends
// the exchange with an error after the client's answer (RFC 7628, section 3.2.3).
func (bearerSession) Next(
	_ context.Context, challenge []byte,
) (done bool, response []byte, err error) {
	if len(challenge) > 0 {
		return false, []byte{1}, nil
	}
	return true, nil, nil
}
