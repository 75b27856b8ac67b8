package main

import (
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// uses is a set of things that a verb uses. A verb has the shared flags of these things only.
type uses uint

const (
	usesOutput   uses = 1 << iota // prints a table or JSON
	usesGroup                     // a consumer group, or its scope by default
	usesScope                     // a scope of stores
	usesStores                    // stores of any kind
	usesTables                    // stores with SQL tables
	usesOutbox                    // an outbox; --outbox is a flag of the verb
	usesKafka                     // connects to Kafka
	usesQuestion                  // asks a person
	usesAudit                     // writes audit lines
	usesDryRun                    // can stop before the change

	usesEvents        = usesOutput | usesGroup | usesScope | usesStores
	usesEventsInKafka = usesEvents | usesKafka
	// a verb that always asks before it changes anything
	usesChange = usesQuestion | usesAudit | usesDryRun
)

// sharedFlags are the flags of one thing.
type sharedFlags struct {
	title string // of the section of help
	of    uses   // a verb that uses one of these has the flags
	set   *pflag.FlagSet
}

const (
	titleStores = "Flags for groups and stores"
	titleKafka  = "Flags for Kafka"
	titleOutput = "Flags for output and questions"
)

// sharedFlags makes the flags that several verbs have. A flag has one value, whichever verb has it.
func (a *app) sharedFlags() []sharedFlags {
	all := []sharedFlags{
		newSharedFlags(titleStores, usesGroup, a.groupFlag),
		newSharedFlags(titleStores, usesScope, a.scopeFlag),
		newSharedFlags(titleStores, usesStores|usesTables|usesOutbox, a.storeFlags),
		newSharedFlags(titleStores, usesStores, a.redisFlags),
		newSharedFlags(titleKafka, usesKafka, a.kafkaFlags),
		newSharedFlags(titleOutput, usesOutput, a.outputFlag),
		newSharedFlags(titleOutput, usesQuestion, a.questionFlag),
		newSharedFlags(titleOutput, usesAudit, a.auditFlag),
		newSharedFlags(titleOutput, usesDryRun, a.dryRunFlag),
	}
	a.brokers, a.stores = envList("IDEM_BROKERS"), splitStores(os.Getenv("IDEM_STORE"))
	return all
}

func newSharedFlags(title string, of uses, add func(*pflag.FlagSet)) sharedFlags {
	set := pflag.NewFlagSet(title, pflag.ContinueOnError)
	add(set)
	set.VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Name != "output" {
			f.DefValue = "" // --help must not show the environment (G-04)
		}
	})
	return sharedFlags{title, of, set}
}

func (a *app) groupFlag(f *pflag.FlagSet) {
	f.StringVarP(&a.group, "group", "G", os.Getenv("IDEM_GROUP"), "consumer group (env IDEM_GROUP)")
}

func (a *app) scopeFlag(f *pflag.FlagSet) {
	f.StringVar(
		&a.scope, "scope", os.Getenv("IDEM_SCOPE"),
		"scope of the store, the group by default (env IDEM_SCOPE)",
	)
}

func (a *app) storeFlags(f *pflag.FlagSet) {
	storeFlag := &urlFlag{
		name: "store", env: "IDEM_STORE", split: splitStores,
		use: func(urls []string) { a.stores = urls },
	}
	f.Var(
		a.addURLFlag(storeFlag),
		storeFlag.name,
		"`URL` of a store, which begins with "+storeSchemes+
			", or @FILE; several if events are in either (env IDEM_STORE)",
	)
	f.StringVar(
		&a.schema,
		"schema",
		os.Getenv("IDEM_SCHEMA"),
		"schema of the tables in Postgres, found through the search path by default (env "+
			"IDEM_SCHEMA)",
	)
}

func (a *app) redisFlags(f *pflag.FlagSet) {
	f.StringVar(
		&a.redisPrefix, "redis-prefix", os.Getenv("IDEM_REDIS_PREFIX"),
		"prefix of the keys in Redis, \"idem:\" by default (env IDEM_REDIS_PREFIX)",
	)
}

func (a *app) kafkaFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&a.brokers, "brokers", nil, "Kafka brokers, host:port (env IDEM_BROKERS)")
	defer f.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "brokers" {
			flag.Annotations = map[string][]string{ofConnection: {}}
		}
	})
	f.BoolVar(&a.tls, "tls", false, "TLS to Kafka")
	f.StringVar(
		&a.tlsCA, "tls-ca", "",
		"PEM `file` with the CAs of the brokers, those of the system by default; implies --tls",
	)
	f.StringVar(
		&a.tlsCert, "tls-cert", "", "PEM `file` with the client's certificate; implies --tls",
	)
	f.StringVar(&a.tlsKey, "tls-key", "", "PEM `file` with the key of --tls-cert")
	f.StringVar(
		&a.saslMechanism, "sasl-mechanism", "",
		"PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
	)
	f.StringVar(
		&a.saslUser, "sasl-user", os.Getenv("IDEM_SASL_USER"),
		"user at Kafka (env IDEM_SASL_USER); the password is taken from env IDEM_SASL_PASSWORD",
	)
	a.oauth.flags(f)
	f.BoolVar(
		&a.allowInsecure, "allow-insecure", false,
		"use SASL without TLS: PLAIN sends the password, OAUTHBEARER the token, "+
			"SCRAM lets listeners guess the password",
	)
}

func (a *app) outputFlag(f *pflag.FlagSet) {
	f.StringVarP(&a.output, "output", "o", outputs[0], strings.Join(outputs, " or "))
}

func (a *app) questionFlag(f *pflag.FlagSet) {
	f.BoolVarP(&a.yes, "yes", "y", false, "do not ask")
}

// dryRunWords describe --dry-run, of all verbs that have it.
const dryRunWords = "show what would be done, and change nothing"

func (a *app) dryRunFlag(f *pflag.FlagSet) {
	f.BoolVar(&a.dryRun, "dry-run", false, dryRunWords)
}

func (a *app) auditFlag(f *pflag.FlagSet) {
	f.StringVar(
		&a.auditPath, "audit-file", os.Getenv("IDEM_AUDIT_FILE"),
		"append the audit lines to this `file` too (env IDEM_AUDIT_FILE)",
	)
}

// addURLFlag registers the flag, so that begin checks the value.
func (a *app) addURLFlag(f *urlFlag) *urlFlag {
	a.urlFlags = append(a.urlFlags, f)
	return f
}

func envList(name string) []string {
	return strings.FieldsFunc(os.Getenv(name), func(r rune) bool { return r == ',' })
}

// outputs are the values of --output.
var outputs = []string{"table", "json"}
