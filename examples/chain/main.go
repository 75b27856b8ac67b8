// Command chain runs the three other examples as one. An HTTP API takes payments, a worker sets
// their orders to paid, and another worker notifies the customers. Each hands on to the next
// through an outbox and Kafka. Every process is killed once while payments flow, and then all
// records are delivered again. The result is measured at the ends. README.md shows it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/examples/internal/cli"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// options holds the values of the flags and of the environment.
type options struct {
	payments, concurrency int
	over                  time.Duration
	hurry                 string
	seed                  uint64
	kill, keep            bool

	brokers         []string
	postgres, redis string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "chain:", err)
		}
		return cli.Usage(err)
	}
	ctx, stop := cli.UntilSignal(ctx)
	defer stop()
	s, err := play(ctx, o, newScreen(stdout))
	if err != nil {
		fmt.Fprintf(stdout, "FAILED: %v (seed %d)\n", err, o.seed)
		return cli.ExitError
	}
	s.print(stdout)
	if len(s.problems()) > 0 {
		return cli.ExitError
	}
	return cli.ExitOK
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("chain", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.payments, "payments", 1000, "number of payments")
	flags.DurationVar(&o.over, "over", 20*time.Second, "time over which the payments begin")
	flags.StringVar(&o.hurry, "hurry", "",
		"name of a file: once it exists, the rest of the payments begins at once")
	flags.IntVar(&o.concurrency, "concurrency", 16, "clients that pay at once")
	flags.Uint64Var(&o.seed, "seed", 0,
		"seed of all random choices; default: another one each time")
	flags.BoolVar(&o.kill, "kill", true, "kill each process once while payments flow")
	flags.BoolVar(&o.keep, "keep", false, "keep the logs of all processes after a success too")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.postgres, o.redis = os.Getenv("POSTGRES_URL"), os.Getenv("REDIS_URL")
	o.brokers = strings.FieldsFunc(os.Getenv("KAFKA_BROKERS"),
		func(r rune) bool { return r == ',' || r == ' ' })
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	var missing []string
	for name, there := range map[string]bool{
		"KAFKA_BROKERS": len(o.brokers) > 0, "POSTGRES_URL": o.postgres != "",
		"REDIS_URL": o.redis != "",
	} {
		if !there {
			missing = append(missing, name)
		}
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.payments < minPayments || o.payments > maxPayments:
		return o, fmt.Errorf("-payments must be %d to %d", minPayments, maxPayments)
	case o.concurrency < 1 || o.concurrency > 200:
		return o, errors.New("-concurrency must be 1 to 200")
	case o.over < 0 || o.over > time.Hour:
		return o, errors.New("-over must be 0 to 1h")
	case len(missing) > 0:
		return o, missingError(missing)
	}
	return o, nil
}

const (
	minPayments = 20 // fewer payments would be done before the kills
	maxPayments = 100_000
)

// missingError names the missing variables.
func missingError(names []string) error {
	slices.Sort(names)
	return fmt.Errorf("%s must be set: `make demo-chain` starts the services, "+
		"`make up` prints their addresses", strings.Join(names, ", "))
}
