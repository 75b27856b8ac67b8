package kgoidem

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/idem-go/idem/runner"
)

// TestServesNextGeneration is the table of answers of brokers about their versions.
func TestServesNextGeneration(t *testing.T) {
	key := func(key, most int16) kmsg.ApiVersionsResponseApiKey {
		return kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: most}
	}
	feature := func(name string, level int16) kmsg.ApiVersionsResponseFinalizedFeature {
		return kmsg.ApiVersionsResponseFinalizedFeature{Name: name, MaxVersionLevel: level}
	}
	for name, c := range map[string]struct {
		keys     []kmsg.ApiVersionsResponseApiKey
		features []kmsg.ApiVersionsResponseFinalizedFeature
		serves   bool
	}{
		"unknown":                      {keys: []kmsg.ApiVersionsResponseApiKey{key(67, 3), key(69, 3)}},
		"early":                        {keys: []kmsg.ApiVersionsResponseApiKey{key(68, 0)}},
		"released, no features":        {keys: []kmsg.ApiVersionsResponseApiKey{key(68, 1)}, serves: true},
		"later":                        {keys: []kmsg.ApiVersionsResponseApiKey{key(68, 2)}, serves: true},
		"feature is on":                {[]kmsg.ApiVersionsResponseApiKey{key(68, 1)}, []kmsg.ApiVersionsResponseFinalizedFeature{feature("metadata.version", 25), feature("group.version", 1)}, true},
		"feature is off":               {[]kmsg.ApiVersionsResponseApiKey{key(68, 1)}, []kmsg.ApiVersionsResponseFinalizedFeature{feature("metadata.version", 25)}, false},
		"feature at level 0":           {[]kmsg.ApiVersionsResponseApiKey{key(68, 1)}, []kmsg.ApiVersionsResponseFinalizedFeature{feature("group.version", 0)}, false},
		"feature is on, early version": {[]kmsg.ApiVersionsResponseApiKey{key(68, 0)}, []kmsg.ApiVersionsResponseFinalizedFeature{feature("group.version", 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			answer := &kmsg.ApiVersionsResponse{ApiKeys: c.keys, FinalizedFeatures: c.features}
			require.Equal(t, c.serves, servesNextGeneration(answer))
		})
	}
}

// TestEarlyBrokers_K37: brokers that know only the early version of KIP-848 are refused. franz-go
// would join with the classic protocol.
func TestEarlyBrokers_K37(t *testing.T) {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.ConsumerGroupHeartbeat), 0)
	_, cfg := onCluster(t, 1, kfake.MaxVersions(versions))
	cfg.Protocol = NextGeneration
	require.ErrorIs(t, start(t, cfg, routed(new(tally).handle)).wait(t, soon), errOldBrokers)
}

// TestRefusedProtocol_K37: brokers list the protocol of KIP-848 and refuse it at the join. franz-go
// would go on with the classic protocol.
func TestRefusedProtocol_K37(t *testing.T) {
	cluster, cfg := onCluster(t, 1)
	cfg.Protocol = NextGeneration
	cluster.ControlKey(int16(kmsg.ConsumerGroupHeartbeat),
		func(req kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			resp, _ := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			return resp, nil, true
		})
	produceEvents(t, cfg.Brokers, "orders", 0, 5)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.ErrorIs(t, m.wait(t, soon), errRefused)
	require.Zero(t, got.total())
	require.NotContains(t, m.String(), "leaving the group failed")
}

// TestHeldInstance_K25: after a crash the group still has a member with the same InstanceID. The
// brokers refuse the new member until the session of the old one has ended. Run waits.
func TestHeldInstance_K25(t *testing.T) {
	_, cfg := onCluster(t, 1)
	cfg.Protocol, cfg.InstanceID = NextGeneration, "pod-0"
	produceEvents(t, cfg.Brokers, "orders", 0, 5)
	old := clientOf(t, cfg.Brokers)
	heartbeat := func(epoch int32) {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = cfg.Group, "old", epoch, &cfg.InstanceID
		if epoch == 0 {
			req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 60_000, []string{"orders"}
			req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}
		answer, err := req.RequestWith(t.Context(), old)
		require.NoError(t, err)
		require.NoError(t, kerr.ErrorForCode(answer.ErrorCode))
	}
	const joins, leaves = 0, -2
	heartbeat(joins)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, m.waits, soon, poll)
	require.Contains(t, m.String(), kerr.UnreleasedInstanceID.Message)
	require.ErrorIs(t, m.Ready(), runner.ErrNotReady)
	require.NoError(t, m.Live())
	heartbeat(leaves)
	require.Eventually(t, func() bool { return got.events() == 5 && m.Ready() == nil }, soon, poll)
	require.NoError(t, m.end())
}
