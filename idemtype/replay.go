package idemtype

// Replay prepares a processor for records that its group has consumed before, beside the live
// group. Package replay uses it.
//
// Handlers with RetryTopics or KeyOrdered retry in place only, and then give the event up: no copy
// reaches a retry topic, and no event is deferred. Deferred events of the group do not run.
// WhenUnavailable has no effect, so events wait for the store. The function of Router.NotFound gets
// no message.
//
// In the scopes of the group, with an empty ScopeSuffix, a record without an ID is skipped under
// RunNoID. No store knows whether such a record ran.
type Replay struct {
	// ScopeSuffix is added to the scope of each handler. Every event is then new once. An event is
	// never too old, because no event of these scopes was forgotten. Empty: the scopes of the
	// group.
	ScopeSuffix string
}
