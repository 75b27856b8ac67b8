// Command quickstart is the program of the README: a mail for each order, and payments that are
// added up in SQLite. The file shop.db in the current directory has the table of the shop and those
// of Idem. So the program knows the handled events after a restart.
//
//	go run ./quickstart localhost:9092
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
)

type order struct {
	Email string `json:"email"`
}

type payment struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

func sendMail(_ context.Context, e idem.Event[order]) error {
	_, err := fmt.Println("mail to", e.Data.Email, "with the key", e.IdempotencyKey())
	return err
}

func addToBalance(ctx context.Context, tx *sql.Tx, e idem.Event[payment]) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO balances VALUES (?, ?) ON CONFLICT (account)
		DO UPDATE SET cents = cents + excluded.cents`, e.Data.Account, e.Data.Cents)
	return err
}

func run(ctx context.Context, brokers []string) error {
	store, err := sqlite.Open(ctx, "shop.db") // makes its tables
	if err != nil {
		return err
	}
	defer store.Close()
	db, err := sql.Open("sqlite", "file:shop.db?_pragma=busy_timeout(2000)")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS
		balances (account text PRIMARY KEY, cents int)`); err != nil {
		return err
	}

	router := idem.NewRouter()
	idem.On(router, "order.created", sendMail)           // once, but for one window
	idem.OnTx(router, "payment.completed", addToBalance) // exactly once
	c, err := consumer.New(consumer.Config{
		Brokers: brokers, Group: "orders", Topics: []string{"payments"}, Store: store,
		CreateDeadLetterTopics: &consumer.TopicSpec{},
	}, router)
	if err != nil {
		return err
	}
	return c.Run(ctx) // blocks; finishes running handlers and returns nil when ctx ends
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
