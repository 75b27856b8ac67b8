package cells

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
	"github.com/idem-go/idem/outbox/sqloutbox/mysql"
)

// relay publishes the rows of an outbox until SIGTERM, with the steps of the cell around the fetch
// of rows, their publication and their settlement.
func (w *worker) relay(ctx context.Context) error {
	s, closeStore, err := w.Place.openOutbox(ctx)
	if err != nil {
		return err
	}
	defer closeStore()
	p, err := consumer.OpenProducer(consumer.Config{
		Brokers: []string{w.Brokers}, ClientID: w.Name,
		Sarama: func(c *sarama.Config) {
			c.Net.Proxy.Enable = true
			c.Net.Proxy.Dialer = w.Place
		},
	})
	if err != nil {
		return err
	}
	defer p.Close()
	r, err := outbox.NewRelay(outbox.RelayConfig{
		Store: &outboxGate{s, w}, Producer: &producerGate{p, w}, Lease: w.Lease,
		Interval: 50 * time.Millisecond, Logger: w.log,
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// openOutbox opens the outbox in the database of a store.
func (p place) openOutbox(ctx context.Context) (outbox.Store, func(), error) {
	if p.Store == pg {
		pool, err := pgxpool.New(ctx, p.url())
		if err != nil {
			return nil, nil, err
		}
		return pgoutbox.New(pool), pool.Close, nil
	}
	db, err := openDB("mysql", p.url())
	if err != nil {
		return nil, nil, err
	}
	return mysql.New(db), func() { _ = db.Close() }, nil
}

// Dial lets the producer connect through a proxy of the broker, if there is one.
func (p place) Dial(network, addr string) (net.Conn, error) {
	return p.dial(context.Background(), network, addr)
}

// outboxGate has the steps of fetch and settlement.
type outboxGate struct {
	outbox.Store
	w *worker
}

func (g *outboxGate) Fetch(ctx context.Context, f outbox.Fetch) ([]outbox.Row, error) {
	g.w.asks()
	g.w.at(beforeClaim)
	if g.w.Fault == cutAfter {
		g.w.at(afterClaim) // the test cuts once the server has acted
	}
	rows, err := g.Store.Fetch(ctx, f)
	if err == nil && len(rows) > 0 {
		g.w.at(afterClaim)
	}
	return rows, err
}

func (g *outboxGate) Settle(ctx context.Context, relay string, held []outbox.Lease, s outbox.Settlement) ([]int, error) {
	g.w.at(beforeEnd)
	g.w.at(beforeAnswer)
	lost, err := g.Store.Settle(ctx, relay, held, s)
	if err == nil {
		g.w.at(afterEnd)
	}
	return lost, err
}

// producerGate has the steps of the publication.
type producerGate struct {
	*consumer.Producer
	w *worker
}

func (g *producerGate) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	return g.produce(ctx, msgs, g.Producer.ProduceEach)
}

func (g *producerGate) ProduceInOrder(ctx context.Context, msgs []*idem.Message) []error {
	return g.produce(ctx, msgs, g.Producer.ProduceInOrder)
}

func (g *producerGate) produce(
	ctx context.Context, msgs []*idem.Message, call func(context.Context, []*idem.Message) []error,
) []error {
	g.w.at(beforeEffect)
	g.w.at(beforeAck)
	errs := call(ctx, msgs)
	if errors.Join(errs...) == nil {
		g.w.at(afterEffect)
	}
	return errs
}
