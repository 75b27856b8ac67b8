package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// Config of a [Handler]. Every part but the question of who may see it is optional. The zero value of a field is its default.
type Config struct {
	// Auth says who asks, by whatever the program knows of its users. It is called for every request, also for the page's own
	// style sheet, before anything else is done; an error, or an empty name, is answered with 403 or by Denied. The name goes
	// into the audit line of what this person does, and bounds searches and plans by person. Required, unless Loopback is set.
	Auth func(*http.Request) (who string, err error)
	// Authorize decides what somebody whom Auth has let in may do: look at a page, see a payload, make a plan, carry it out. The action
	// names its object. An error refuses it with 403, is logged and is audited. It is called before anything is read, from many
	// goroutines. Defaults to all that AllowReplay and HidePayloads permit; it cannot permit more.
	Authorize func(r *http.Request, who string, a Action) error
	// Prefix is the path under which requests reach the page, such as "/admin/idem/" for mux.Handle("/admin/idem/", page). It begins
	// and ends with a slash. The page answers its own paths below Prefix and no others. Defaults to "/": at the root, or behind
	// http.StripPrefix("/admin/idem", page).
	Prefix string
	// Denied answers who was not let in, for instance with a redirect to where one signs in. Nothing of the page has been written
	// when it is called. Defaults to a 403 in one line of text.
	Denied func(http.ResponseWriter, *http.Request, error)
	// Loopback permits no Auth, and holds each request to this machine: both of its ends are loopback addresses, its Host header
	// names one (DNS rebinding), and it did not come through a proxy. For development, and for ssh -L. With Auth set too, both
	// must agree.
	Loopback bool
	// AllowReplay lets those whom Auth lets in replay dead letters. Without it the page is read-only: plans can be made, which
	// changes nothing, and not carried out.
	AllowReplay bool
	// HidePayloads leaves out the values and Kafka keys of dead letters, and headers that are not Idem's. What stands still is named by
	// its Kafka key all the same: queues of parked events, and rows of the outbox.
	HidePayloads bool
	// TrustedOrigins are origins such as "https://admin.example.com" from which the page's own forms may come beside its Host:
	// for a proxy that changes the Host header and browsers that send no Sec-Fetch-Site. Default: none.
	TrustedOrigins []string
	// Audit is called for every replay and every dead letter of one, for every payload that is shown, and for refused requests, beside
	// the log line. Of those at most 60 a minute are told of people who were let in, and 60 of strangers and other sites. It is called from one goroutine at a time for each replay, from many for the rest, and
	// must not block for long.
	Audit func(context.Context, AuditEvent)

	// Consumer is the configuration that consumer.New was given, or the part of it that there is: Brokers with TLS, SASL and Sarama
	// are how the page reaches Kafka; Group, Scope, Topics, Store and DeadLetterTopic say what is shown; all others are what the
	// doctor checks.
	Consumer consumer.Config
	// Client is used for Kafka instead of one of the page's own. It is not closed.
	Client sarama.Client
	// Stores are stores beside Consumer.Store, those of the option idem.Store. What the page shows of a store depends on its
	// abilities: dedup.Operator (look at an event), dedup.Lister (find events by ID alone, list stuck claims), dedup.Deferrer
	// (what is deferred).
	Stores []dedup.Store
	// Scopes are those of handlers with the option idem.Scope, beside Consumer.Scope.
	Scopes []string
	// Outbox, such as a *pgoutbox.Outbox.
	Outbox outbox.Store
	// Monitor is an observer of the consumer in this process. Defaults to the one among Consumer.Observers, if there is one.
	Monitor *Monitor

	// Doctor examines settings, for instance the function that doctor.New of package ops/doctor makes. It is called at most once a minute
	// and once at a time, and should end within 45 s.
	Doctor func(context.Context) ([]Finding, error)

	// Timeout bounds what the page waits for one source. Defaults to 5 s, at most a minute.
	Timeout time.Duration
	// Title is shown beside the name of the group, such as "production". Default: none.
	Title string
	// Logger defaults to slog.Default(). It gets a line for everything that Audit is called for; nothing else of what people do.
	Logger *slog.Logger
}

// ErrNoAuth says that neither Auth nor Loopback is set.
var ErrNoAuth = errors.New("ops: Config.Auth is nil: say who may see the page, or set Loopback to serve this machine only")

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.Prefix = cmp.Or(c.Prefix, "/")
	c.Consumer.Scope = cmp.Or(c.Consumer.Scope, c.Consumer.Group)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Monitor == nil {
		for _, o := range c.Consumer.Observers {
			if m, ok := o.(*Monitor); ok {
				c.Monitor = m
			}
		}
	}
	var stores []dedup.Store
	for _, s := range append([]dedup.Store{c.Consumer.Store}, c.Stores...) {
		if s != nil && !slices.Contains(stores, s) {
			stores = append(stores, s)
		}
	}
	c.Stores = stores
	var scopes []string
	for _, s := range append([]string{c.Consumer.Scope}, c.Scopes...) {
		if s != "" && !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	c.Scopes = scopes
	return c
}

func (c Config) validate() error {
	var problems []error
	if c.Auth == nil && !c.Loopback {
		problems = append(problems, ErrNoAuth)
	}
	if c.Timeout < 0 || c.Timeout > time.Minute {
		problems = append(problems, fmt.Errorf("ops: Config.Timeout is %s, not between 0 and a minute", c.Timeout))
	}
	if !strings.HasPrefix(c.Prefix, "/") || !strings.HasSuffix(c.Prefix, "/") || path.Clean(c.Prefix) != strings.TrimSuffix(c.Prefix, "/") && c.Prefix != "/" {
		problems = append(problems, fmt.Errorf("ops: Config.Prefix is %q: it begins and ends with a slash and has no empty or dotted part, such as \"/admin/idem/\"", c.Prefix))
	}
	return errors.Join(problems...)
}

// Finding is what one check of a doctor says.
type Finding struct {
	// ID names the check, On what was looked at, and Title says what is so if all is well.
	ID, On, Title string
	// Verdict is "ok", "warn", "bad", "unknown" or "skipped".
	Verdict string
	// Detail is what was found, Remedy what to do about it.
	Detail, Remedy string
}

// AuditEvent is something that somebody did with the page.
type AuditEvent struct {
	Time time.Time
	Who  string // what Auth said; "loopback" without it; empty for somebody who was not let in
	// Action is "replay" when a plan is confirmed and when it has ended, "replay dead letter" for each dead letter of it, "payload" when a payload
	// is shown. For a refused request it is the [ActionKind], or "enter" if nothing of the page was reached.
	Action string
	Plan   string // the same for all that belongs together
	Group  string
	// DeadLetter is where the dead letter lies, "topic/partition/offset", and Event whose dead letter it is; empty for the whole replay.
	DeadLetter, EventType, EventID string
	// Outcome is "begun", "replayed", "skipped", "done", "interrupted", "failed", "read" or "refused", and Note says more.
	Outcome, Note string
	// Path is the path of the request, without its query. Empty for replays.
	Path string
}
