// Command payments is an HTTP API that takes payments, each once, however often the request is
// sent. The key of the request, the row of the payment and the stored answer are one Postgres
// transaction. The provider that charges gets the same key at every attempt. README.md shows how to
// run the server.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/outbox"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stderr))
}

// run is the program. All output goes to stderr.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		return cli.Usage(err)
	}
	work := o.serve
	if o.fake != "" {
		work = o.serveFake
	}
	return cli.Run(ctx, o.log, work)
}

type options struct {
	listen, postgres, provider, fake string
	brokers, topic                   string

	providerTimeout time.Duration
	connections     int
	secret          []byte
	log             *slog.Logger
}

// demoSecret is the secret without $PAYMENTS_SECRET. A secret must be the same after a restart.
// This one is public.
const demoSecret = "a demonstration has no secrets"

const (
	maxConnections = 1000
	// maxProviderTime leaves time for the statements of a payment.
	maxProviderTime = handlerTime - 5*time.Second
)

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{log: slog.New(slog.NewTextHandler(stderr, nil))}
	o.secret = []byte(cmp.Or(os.Getenv("PAYMENTS_SECRET"), demoSecret))
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` of the API")
	flags.StringVar(&o.postgres, "postgres", "",
		"Postgres `URL` of the payments and of processed_events; default $POSTGRES_URL")
	flags.StringVar(&o.provider, "provider", "",
		"`URL` of the payment provider; default: a fake one in this process, without persistence")
	flags.DurationVar(&o.providerTimeout, "provider-timeout", 5*time.Second,
		"time limit of a charge")
	flags.IntVar(&o.connections, "connections", 20,
		"size of the pool for payments, and limit of charges at once")
	flags.StringVar(&o.brokers, "brokers", "",
		"Kafka brokers, `host:port`, separated by commas; without them events wait in the outbox")
	flags.StringVar(&o.topic, "topic", "payments", "`topic` of payment.completed, which must exist")
	flags.StringVar(&o.fake, "fake-provider", "", "run only the fake provider, at this `address`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	// not the default of the flag, because -help prints defaults and the URL may hold a password
	o.postgres = cmp.Or(o.postgres, os.Getenv("POSTGRES_URL"))
	var problem error
	switch {
	case flags.NArg() > 0:
		problem = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.postgres == "" && o.fake == "":
		problem = errors.New("-postgres is missing")
	case o.providerTimeout <= 0 || o.providerTimeout > maxProviderTime:
		problem = fmt.Errorf("-provider-timeout must be positive, and at most %v", maxProviderTime)
	case (&outbox.Entry{Topic: o.topic, Type: "payment.completed", ID: "any"}).Check(1000) != nil:
		// or the error would appear after the charge
		problem = fmt.Errorf("-topic %q is not a topic name", o.topic)
	case o.connections < 1 || o.connections > maxConnections:
		problem = fmt.Errorf("-connections must be 1 to %d", maxConnections)
	}
	return o, cli.Checked(flags, problem)
}
