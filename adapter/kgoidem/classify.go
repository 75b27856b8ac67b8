package kgoidem

import (
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/idem-go/idem/kafkaauth"
	"github.com/idem-go/idem/runner"
)

// classify returns the class of an error of franz-go.
//
// With the classic protocol, a second process with an InstanceID fences the first. With KIP-848 the
// brokers refuse the second one as long as the first is in the group. After a crash that lasts
// until the session has ended, so the second process waits.
func classify(err error) runner.Class {
	switch {
	case isAny(err, kerr.UnknownMemberID):
		return runner.UnknownMember
	case isAny(err, kerr.IllegalGeneration, kerr.FencedMemberEpoch):
		return runner.OldGeneration
	case isAny(err, kerr.FencedInstanceID):
		return runner.FencedInstance
	case isAny(err, kerr.TopicAuthorizationFailed):
		return runner.DeniedTopic
	case isAny(err, kerr.GroupAuthorizationFailed):
		return runner.DeniedGroup
	case isAny(err, kerr.ClusterAuthorizationFailed):
		return runner.DeniedCluster
	case isAny(err, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
		kerr.IllegalSaslState, kafkaauth.ErrRefused):
		return runner.BadLogin
	case isAny(err, kerr.InvalidGroupID, kerr.InvalidSessionTimeout, errOldBrokers):
		return runner.Invalid
	case isAny(err, kerr.GroupIDNotFound):
		return runner.UnknownGroup
	}
	return runner.Transient
}

// classifyWith is classify for the mechanisms of a client. A connection that authenticates again too
// early is in a wrong state (KIP-368), and the next connection is not. Brokers that do not know a
// new key of the authorization server yet refuse its tokens for a moment.
func classifyWith(mechanisms []sasl.Mechanism) runner.Classify {
	tokens := slices.ContainsFunc(mechanisms, func(m sasl.Mechanism) bool {
		return m.Name() == "OAUTHBEARER"
	})
	return func(err error) runner.Class {
		class := classify(err)
		if class == runner.BadLogin && (tokens || isAny(err, kerr.IllegalSaslState)) {
			return runner.StaleLogin
		}
		return class
	}
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
