package kgoidem

import (
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/idem-go/idem/runner"
)

// fatal returns the error to end Run with if no retry can help, else nil.
func fatal(err error) error {
	var gap *runner.GapError
	var lost *runner.OffsetsLostError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &gap), errors.As(err, &lost), errors.Is(err, runner.ErrUnauthorized):
		return err
	case errors.Is(err, kerr.FencedInstanceID), errors.Is(err, kerr.UnreleasedInstanceID):
		return fmt.Errorf("%w: %w", runner.ErrFenced, err)
	case isDenied(err), isLogin(err):
		return fmt.Errorf("%w: %w", runner.ErrUnauthorized, err)
	case isAny(err, kerr.InvalidGroupID, kerr.InvalidSessionTimeout):
		return err
	}
	return nil
}

// isLogin reports whether the brokers refuse the credentials.
func isLogin(err error) bool {
	return isAny(err, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
		kerr.IllegalSaslState)
}

// isDenied reports whether the client lacks a right.
func isDenied(err error) bool {
	return isAny(err, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.ClusterAuthorizationFailed)
}

// isFinalCommit reports whether no retry of a commit can succeed: the member has left the group, or
// may not commit.
func isFinalCommit(err error) bool {
	return isAny(err, kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.IllegalGeneration,
		kerr.FencedMemberEpoch, kerr.GroupAuthorizationFailed, kerr.TopicAuthorizationFailed)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
