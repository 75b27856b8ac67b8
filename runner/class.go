package runner

import (
	"errors"
	"fmt"
)

// Class is the meaning of an error of a Kafka client for a runner.
type Class uint8

const (
	// Transient means that the next try may succeed. It is the class of all other errors.
	Transient Class = iota
	// UnknownMember means that the group does not know this member any longer. The partitions are
	// lost.
	UnknownMember
	// OldGeneration means that the group has gone on without this member. The partitions are lost.
	OldGeneration
	// FencedInstance means that another process has the same InstanceID. The partitions are lost.
	FencedInstance
	// DeniedTopic means that the client lacks a right on a topic.
	DeniedTopic
	// DeniedGroup means that the client lacks a right on the group.
	DeniedGroup
	// DeniedCluster means that the client lacks a right on the cluster.
	DeniedCluster
	// BadLogin means that the brokers refuse the credentials.
	BadLogin
	// StaleLogin means that the brokers refuse credentials that are replaced, such as a token
	// signed with a key that they do not know yet. It ends a start like BadLogin. A runner that has
	// served waits.
	StaleLogin
	// Invalid means that the brokers will never accept the settings, such as the name of the group.
	Invalid
	// UnknownGroup means that the group does not exist, and so has no committed offsets.
	UnknownGroup
)

// Classify returns the class of an error of the client, also of a wrapped one. Classify must be
// safe for concurrent use.
type Classify func(error) Class

// fatal returns the error to end a runner with if no retry can help, else nil.
func fatal(err error, class Class) error {
	var gap *GapError
	var lost *OffsetsLostError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &gap), errors.As(err, &lost), errors.Is(err, ErrUnauthorized):
		return err
	}
	switch class {
	case FencedInstance:
		return fmt.Errorf("%w: %w", ErrFenced, err)
	case DeniedTopic, DeniedGroup, DeniedCluster, BadLogin, StaleLogin:
		return fmt.Errorf("%w: %w", ErrUnauthorized, err)
	case Invalid:
		return err
	case Transient, UnknownMember, OldGeneration, UnknownGroup:
	}
	return nil
}

// denied reports whether the client lacks a right on a topic or on the group.
func denied(err error, class Class) bool {
	return errors.Is(err, ErrUnauthorized) || class == DeniedTopic || class == DeniedGroup
}

// Lost reports whether a session that ended for an error of this class had lost its partitions
// before. Another member may be handling the events (K-11).
func (c Class) Lost() bool {
	return c == UnknownMember || c == OldGeneration || c == FencedInstance
}

// FinalCommit reports whether no retry of a commit can succeed: the member has left the group, or
// may not commit.
func (c Class) FinalCommit() bool {
	return c == UnknownMember || c == FencedInstance || c == DeniedTopic || c == DeniedGroup
}
