package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/spf13/cobra"

	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/bootstrap"
	"github.com/idem-go/idem/internal/groups"
)

// completeWait bounds the questions to Kafka of a shell that completes a word.
const completeWait = 2 * time.Second

// classes are the classes of dead letters.
var classes = []idemtype.Class{
	idemtype.ClassAlreadyDead, idemtype.ClassAmbiguous, idemtype.ClassConflict,
	idemtype.ClassCrashLoop, idemtype.ClassFailed, idemtype.ClassNoID, idemtype.ClassNoType,
	idemtype.ClassNotACopy,
	idemtype.ClassNotJSON, idemtype.ClassPanic, idemtype.ClassPermanent, idemtype.ClassRetryAfter,
	idemtype.ClassTimeout, idemtype.ClassTooOld, idemtype.ClassUncertain, idemtype.ClassUndecodable,
}

func classNames() []string {
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = string(c)
	}
	return names
}

// completeFlags offers the values of flags that several verbs have.
func (a *app) completeFlags(root *cobra.Command) {
	eachVerb(root, func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("class") != nil {
			complete(cmd, "class", classNames()...)
		}
		if cmd.Flags().Lookup("brokers") == nil {
			return
		}
		pick := func(topics []string) []string { return without(topics, isDerived) }
		if strings.HasPrefix(verbName(cmd), "dlq ") {
			pick = func(topics []string) []string { return withDeadLetters(topics, a.group) }
		}
		for _, flag := range []string{"topic", "topics", "from-topic"} {
			a.completeFromKafka(
				cmd, flag, func(_ context.Context, c sarama.Client) ([]string, error) {
					topics, err := c.Topics()
					return pick(topics), err
				},
			)
		}
		a.completeFromKafka(cmd, "dlq", func(_ context.Context, c sarama.Client) ([]string, error) {
			topics, err := c.Topics()
			isOther := func(t string) bool { return !strings.HasSuffix(t, ".dlq") }
			return without(topics, isOther), err
		})
		a.completeFromKafka(cmd, "group", listGroups)
	})
}

func listGroups(ctx context.Context, c sarama.Client) ([]string, error) {
	reader := groups.NewReader(c)
	defer reader.Close()
	return reader.Groups(ctx)
}

// completeFromKafka offers the values that list returns, if the verb has the flag and the brokers
// answer soon.
func (a *app) completeFromKafka(
	cmd *cobra.Command, flag string, list func(context.Context, sarama.Client) ([]string, error),
) {
	if cmd.Flags().Lookup(flag) == nil {
		return
	}
	// an error means that the flag is shared, and has this function
	_ = cmd.RegisterFlagCompletionFunc(flag,
		func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
			ctx := context.WithoutCancel(cmd.Root().Context())
			ctx, cancel := context.WithTimeout(ctx, completeWait)
			defer cancel()
			names, err := a.listFromKafka(ctx, list)
			if err != nil { // a shell has no place for it
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			isOther := func(n string) bool { return !strings.HasPrefix(n, begin) }
			return without(names, isOther), cobra.ShellCompDirectiveNoFileComp
		})
}

func (a *app) listFromKafka(
	ctx context.Context, list func(context.Context, sarama.Client) ([]string, error),
) ([]string, error) {
	cfg, err := a.kafkaConfig()
	if err != nil {
		return nil, err
	}
	cfg.Net.DialTimeout, cfg.Net.ReadTimeout = completeWait/2, completeWait/2
	cfg.Metadata.Retry.Max, cfg.Metadata.Timeout = 0, completeWait
	client, err := bootstrap.Client(ctx, a.brokers, cfg)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	names, err := list(ctx, client)
	slices.Sort(names)
	return names, err
}

// without returns the names that drop does not name.
func without(names []string, drop func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(names), drop)
}

// isDerived reports whether a topic has dead letters or copies, or is Kafka's own.
func isDerived(topic string) bool {
	return strings.HasPrefix(topic, "__") || strings.HasSuffix(topic, ".dlq") ||
		strings.Contains(topic, ".retry")
}

// withDeadLetters returns the topics for which the group, or any group, has a dead-letter topic.
func withDeadLetters(topics []string, group string) []string {
	return without(topics, func(t string) bool {
		return isDerived(t) || !slices.ContainsFunc(topics, func(dlq string) bool {
			if group != "" {
				return dlq == t+"."+group+".dlq"
			}
			return strings.HasPrefix(dlq, t+".") && strings.HasSuffix(dlq, ".dlq")
		})
	})
}
