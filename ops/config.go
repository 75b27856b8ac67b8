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

// Config is the configuration of a [Handler]. Only access control is required. The zero value of
// each field is its default.
type Config struct {
	// Auth returns the name of the person, from the program's own users. It is called first for
	// every request, also for the style sheet. After an error or an empty name the answer is 403,
	// or that of Denied. Audit lines have the name, and the limits of searches and plans apply per
	// name. Required, unless Loopback is set.
	Auth func(*http.Request) (who string, err error)
	// Authorize decides about an action of a person after Auth has admitted the person. An error
	// refuses the action with 403, is logged and audited. Authorize is called before any read, and
	// must be safe for concurrent use. It also decides which buttons a person sees: see
	// [Action].Offer. Authorize cannot allow more than AllowReplay and HidePayloads. The default
	// allows all that these two allow.
	Authorize func(r *http.Request, who string, a Action) error
	// Prefix is the path of the page, such as "/admin/idem/" for mux.Handle("/admin/idem/", page).
	// It begins and ends with a slash. The page answers paths below Prefix only. The default is
	// "/", for the root or behind http.StripPrefix("/admin/idem", page).
	Prefix string
	// Denied answers a refused person, for instance with a redirect to the sign-in page. The
	// response is still empty then. The default is a 403 with one line of text.
	Denied func(http.ResponseWriter, *http.Request, error)
	// Loopback allows a page without Auth and restricts requests to this machine. Both ends are
	// loopback addresses, the Host header names one (DNS rebinding), and no proxy forwarded the
	// request. Use it for development and for ssh -L. With Auth, both must allow the request.
	Loopback bool
	// AllowReplay allows replays of dead letters. The default is a read-only page, which can make
	// plans but not carry them out.
	AllowReplay bool
	// HidePayloads hides the values and Kafka keys of dead letters, and headers that are not
	// Idem's. Queues of deferred events and rows of the outbox are still named by their Kafka keys.
	HidePayloads bool
	// TrustedOrigins are further origins for the page's own forms, such as
	// "https://admin.example.com". They are needed behind a proxy that changes the Host header, for
	// browsers without Sec-Fetch-Site. The default is empty.
	TrustedOrigins []string
	// Audit is called for every replay and each of the dead letters, for every payload that is
	// shown, and for refused requests, beside the log line. Refusals are limited to 60 a minute for
	// persons, and 60 for strangers and other sites. Calls of one replay come from one goroutine,
	// others from many. Audit must not block for long.
	Audit func(context.Context, AuditEvent)

	// Consumer is the configuration of consumer.New, or the known part of it. Brokers with TLS,
	// SASL and Sarama are the access to Kafka. Group, Scope, Topics, Store and DeadLetterTopic
	// select the data. The doctor checks the other fields.
	Consumer consumer.Config
	// Client is used for Kafka instead of one of the page's own. It is not closed.
	Client sarama.Client
	// Stores are further stores, those of the option idem.Store. The content of the page depends on
	// the abilities of a store. They are dedup.Operator (look at an event), dedup.Lister (find
	// events by ID alone, list stuck claims) and dedup.Deferrer (deferred events).
	Stores []dedup.Store
	// StoreName names a store on the page, without credentials. It is called by [NewHandler] only.
	// The default, also for an empty name, is the kind of the store, such as "Postgres".
	StoreName func(dedup.Store) string
	// Scopes are those of handlers with the option idem.Scope, beside Consumer.Scope.
	Scopes []string
	// Outbox, such as a *pgoutbox.Outbox.
	Outbox outbox.Store
	// Monitor is the observer of the consumer in this process. The default is the one among
	// Consumer.Observers.
	Monitor *Monitor

	// Doctor examines settings, for instance the function of doctor.New in package ops/doctor. It
	// is called at most once a minute, never concurrently, and should return within 45 s.
	Doctor func(context.Context) ([]Finding, error)

	// Timeout limits the wait for one source. The default is 5 s, the maximum a minute.
	Timeout time.Duration
	// SignOut is the address of a form with the method POST, by which a person signs out, such as
	// "./signout". The address is on the same origin. The default is a page without such a button.
	SignOut string
	// Title is shown beside the name of the group, such as "production". The default is empty.
	Title string
	// Logger gets a line for each call of Audit. The default is slog.Default().
	Logger *slog.Logger
}

// ErrNoAuth means that neither Auth nor Loopback is set.
var ErrNoAuth = errors.New(
	"ops: Config.Auth is nil: set Auth to authorize users, or Loopback to serve this machine only",
)

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
		problems = append(
			problems,
			fmt.Errorf("ops: Config.Timeout is %s, not between 0 and a minute", c.Timeout),
		)
	}
	if !strings.HasPrefix(c.Prefix, "/") || !strings.HasSuffix(c.Prefix, "/") ||
		path.Clean(c.Prefix) != strings.TrimSuffix(c.Prefix, "/") && c.Prefix != "/" {
		problems = append(
			problems,
			fmt.Errorf(
				"ops: Config.Prefix is %q: it begins and ends with a slash and has no empty or dotted part, such as \"/admin/idem/\"",
				c.Prefix,
			),
		)
	}
	return errors.Join(problems...)
}

// Finding is the result of one check of a doctor.
type Finding struct {
	// ID names the check, On the checked object, and Title the state without a problem.
	ID, On, Title string
	// Verdict is "ok", "warn", "bad", "unknown" or "skipped".
	Verdict string
	// Detail describes the problem, Remedy the solution.
	Detail, Remedy string
}

// AuditEvent is an action of a person on the page.
type AuditEvent struct {
	Time time.Time
	Who  string // from Auth; "loopback" without Auth; empty for a refused person
	// Action is "replay" when a plan is confirmed and when it has ended. It is "replay dead letter"
	// for each dead letter, and "payload" when a payload is shown. For a refused request it is the
	// [ActionKind], or "enter" before that is known.
	Action string
	Plan   string // the same for all that belongs together
	Group  string
	// DeadLetter is the place of the dead letter, "topic/partition/offset", with the type and the
	// ID of the event. Empty for the whole replay.
	DeadLetter, EventType, EventID string
	// Outcome is "begun", "replayed", "skipped", "done", "interrupted", "failed", "read" or
	// "refused". Note explains the outcome.
	Outcome, Note string
	// Path is the path of the request, without its query. Empty for replays.
	Path string
}
