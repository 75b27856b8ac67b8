// Command quickstart is the first program of the README: a mail for each order, and payments that
// are booked in SQLite. The file shop.db in the current directory has the tables of the shop and
// those of Idem, so that the program knows after a restart what it has handled.
//
//	go run ./quickstart localhost:9092
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
)

// OrderCreated is the data of an event order.created.
type OrderCreated struct {
	Email string `json:"email"`
}

// PaymentCompleted is the data of an event payment.completed.
type PaymentCompleted struct {
	PaymentID string `json:"payment_id"`
	OrderID   int64  `json:"order_id"`
}

type mailer interface {
	Send(ctx context.Context, to, idempotencyKey string) error
}

// run is the program of the README.
func run(ctx context.Context, brokers []string, mail mailer) error {
	store, err := sqlite.Open(ctx, "shop.db") // for several hosts pgstore, redisstore, dynamostore
	if err != nil {
		return err
	}
	defer store.Close()
	router := idem.NewRouter()
	idem.On(router, "order.created", func(ctx context.Context, e idem.Event[OrderCreated]) error {
		return mail.Send(ctx, e.Data.Email, e.IdempotencyKey())
	})
	idem.OnTx(router, "payment.completed", func(ctx context.Context, tx *sql.Tx, e idem.Event[PaymentCompleted]) error {
		var order int64
		err := tx.QueryRowContext(ctx, `UPDATE orders SET status = 'paid' WHERE id = ? AND status = 'pending' RETURNING id`, e.Data.OrderID).Scan(&order)
		if errors.Is(err, sql.ErrNoRows) {
			err = whyNotPending(ctx, tx, e.Data) // paid by another payment: Permanent; not there yet: try again
		}
		return err
	})
	c, err := consumer.New(consumer.Config{Brokers: brokers, Group: "orders", Topics: []string{"payments"}, Store: store}, router)
	if err != nil {
		return err
	}
	return c.Run(ctx) // blocks; drains and returns nil when ctx ends
}

func whyNotPending(ctx context.Context, tx *sql.Tx, p PaymentCompleted) error {
	var status string
	err := tx.QueryRowContext(ctx, `SELECT status FROM orders WHERE id = ?`, p.OrderID).Scan(&status)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("order %d is not there yet", p.OrderID)
	}
	if err == nil {
		err = idem.Permanent(fmt.Errorf("order %d is %s already", p.OrderID, status))
	}
	return err
}

// openShop opens the file of the shop and makes its table with one order.
func openShop(ctx context.Context) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:shop.db?_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id integer PRIMARY KEY, status text NOT NULL);
		INSERT INTO orders VALUES (7, 'pending') ON CONFLICT DO NOTHING`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

type printer struct{}

func (printer) Send(_ context.Context, to, idempotencyKey string) error {
	_, err := fmt.Println("mail to", to, "with the key", idempotencyKey)
	return err
}

func main() {
	brokers := []string{"localhost:9092"}
	if len(os.Args) > 1 {
		brokers = os.Args[1:]
	}
	if err := start(brokers); err != nil {
		log.Fatal(err)
	}
}

func start(brokers []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	shop, err := openShop(ctx)
	if err != nil {
		return err
	}
	defer shop.Close()
	return run(ctx, brokers, printer{})
}
