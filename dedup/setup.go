package dedup

// SetupError says that a store lacks something that no waiting brings: its tables, a right, a database, a password that its
// server takes. Verbs, Ping and Check of a [Store] return it, and everything that uses a store keeps two rules for it. At the
// start it ends what was started, within seconds, as a missing topic does. Later it is waited for like an outage, since no
// event is to blame: it matches [ErrUnavailable]. Stores of your own may return it.
type SetupError struct {
	// Problem names what is missing or refused, without data of events and without secrets.
	Problem string
	// Fix is the command or the change that mends it.
	Fix string
	// Err is what the server said. It may be nil.
	Err error
}

// Error says what is wrong, what mends it, and what the server said.
func (e *SetupError) Error() string {
	text := ErrUnavailable.Error() + ": " + e.Problem
	if e.Fix != "" {
		text += ": " + e.Fix
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns what the server said.
func (e *SetupError) Unwrap() error { return e.Err }

// Is matches [ErrUnavailable]: the error says nothing about an event.
func (e *SetupError) Is(target error) bool { return target == ErrUnavailable }
