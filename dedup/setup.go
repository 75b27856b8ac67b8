package dedup

// SetupError means that a store lacks something that waiting does not bring: its tables, a right, a
// database, or a password that the server accepts. Methods of a [Store], Ping and Check may return
// a SetupError.
//
// At the start, a consumer or relay of this module waits for its SetupWait, three seconds by
// default, and then ends with the error. Later the program waits as during an outage, since no
// event is the cause: the error matches [ErrUnavailable].
type SetupError struct {
	// Problem names the missing thing, without data of events and without secrets.
	Problem string
	// Fix is the command or the change that solves the problem.
	Fix string
	// Err is the server's error. Nil: no server has answered.
	Err error
}

// Error returns the problem, the fix, and the server's error.
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

// Unwrap returns the server's error.
func (e *SetupError) Unwrap() error { return e.Err }

// Is matches [ErrUnavailable].
func (e *SetupError) Is(target error) bool { return target == ErrUnavailable }
