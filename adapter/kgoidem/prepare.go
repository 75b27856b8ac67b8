package kgoidem

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// errOldBrokers means that the brokers do not know the protocol of KIP-848. franz-go would use the
// old protocol without a word.
var errOldBrokers = errors.New("the brokers do not know the protocol NextGeneration: it needs Kafka 4.0, " +
	"or use Cooperative")

// checkProtocol fails if the brokers do not know the protocol.
func (r *Runner) checkProtocol(ctx context.Context) error {
	if r.cfg.client.Protocol != NextGeneration {
		return nil
	}
	answer, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, r.plain)
	if err != nil {
		return fmt.Errorf("ask for the versions of the brokers: %w", err)
	}
	heartbeat := kmsg.NewPtrConsumerGroupHeartbeatRequest().Key()
	for _, k := range answer.ApiKeys {
		if k.ApiKey == heartbeat {
			return nil
		}
	}
	return errOldBrokers
}
