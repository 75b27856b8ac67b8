package kgoidem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errOldBrokers means that the brokers do not serve the protocol of KIP-848. franz-go would use the
// old protocol without a word.
var errOldBrokers = errors.New("the brokers do not serve the protocol NextGeneration: " +
	"it needs Kafka 4.0 with group.version 1, or use Cooperative")

// errRefused means that the brokers refuse the protocol of KIP-848 although they list it.
var errRefused = errors.New("the brokers refuse the protocol NextGeneration that they list: " +
	"add consumer to group.coordinator.rebalance.protocols, set group.version 1, " +
	"remove kgo.MaxVersions from Options, or use Cooperative")

// checkProtocol fails if the brokers do not serve the protocol.
func (r *Runner) checkProtocol(ctx context.Context) error {
	if r.cfg.client.Protocol != NextGeneration {
		return nil
	}
	answer, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, r.plain)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("ask for the versions of the brokers: %w", err)
	}
	if !servesNextGeneration(answer) {
		return errOldBrokers
	}
	return nil
}

// servesNextGeneration reports whether a broker serves the protocol of KIP-848. Kafka 3.7 to 3.9
// know an early version of it. Kafka 4 serves it if the feature group.version is on, which a
// cluster that was upgraded lacks at first. Brokers of other makers may list no features.
func servesNextGeneration(answer *kmsg.ApiVersionsResponse) bool {
	const released, enabled = 1, 1
	key := kmsg.NewPtrConsumerGroupHeartbeatRequest().Key()
	if !slices.ContainsFunc(answer.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
		return k.ApiKey == key && k.MaxVersion >= released
	}) {
		return false
	}
	features := answer.FinalizedFeatures
	return len(features) == 0 ||
		slices.ContainsFunc(features, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool {
			return f.Name == "group.version" && f.MaxVersionLevel >= enabled
		})
}

// classicWatch ends the runner when the client of a member joins with the classic protocol.
// franz-go does that without a word if the brokers refuse NextGeneration, and the request is the
// only sign.
type classicWatch struct{ m *member }

var _ kgo.HookBrokerWrite = classicWatch{}

// OnBrokerWrite implements [kgo.HookBrokerWrite].
func (w classicWatch) OnBrokerWrite(
	_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error,
) {
	if key == int16(kmsg.JoinGroup) {
		w.m.r.group.Fail(errRefused)
		w.m.leave(errRefused)
	}
}
