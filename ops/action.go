package ops

// This file has the actions that Config.Authorize decides about.

// ActionKind is a kind of [Action].
type ActionKind string

// The kinds of actions.
const (
	// ActionView shows a page. No page but that of a dead letter has payloads.
	ActionView ActionKind = "view"
	// ActionPayload shows the value, the Kafka key and the foreign headers of one dead letter.
	// After a refusal the page shows the rest of the dead letter.
	ActionPayload ActionKind = "payload"
	// ActionPlan asks the stores for a preview of a replay. The stores stay unchanged.
	ActionPlan ActionKind = "plan"
	// ActionReplay carries a plan out.
	ActionReplay ActionKind = "replay"
)

// Action is a requested action and its object.
type Action struct {
	Kind ActionKind
	// Page is the last part of the path, such as "dead letters"; empty for the start page.
	Page string
	// Topic is the dead-letter topic that is listed, read or replayed. Empty without a topic.
	Topic string
	// DeadLetters are the affected dead letters, each as "topic/partition/offset". Not set for
	// lists.
	DeadLetters []string
	// EventID, EventType and Tenant are those of the event in a look-up. Each may be empty.
	EventID, EventType, Tenant string
	// Plan is the id of the plan that is shown or carried out.
	Plan string
	// Offer means that the person has not asked for the action: the page asks whether to show its
	// button. A refusal hides the button, and is neither logged nor audited. An offered replay
	// without DeadLetters asks whether the person may replay any.
	Offer bool
}
