package dedup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// Receipt is the result of charging a card.
type Receipt struct {
	ID string `json:"id"`
}

// A function runs once for each key. Later callers get its result.
func ExampleDo() {
	guard := dedup.NewGuard(memstore.New(), dedup.GuardConfig{}) // in production: redisstore or pgstore
	defer guard.Close()
	charge := func(context.Context) (Receipt, error) {
		fmt.Println("charging the card")
		return Receipt{ID: "re_1"}, nil
	}
	key := dedup.Key{Scope: "billing", Type: "charge", ID: dedup.Join("order", "12345")}
	for range 3 { // a client's retries
		receipt, replayed, err := dedup.Do(context.Background(), guard, key, charge)
		fmt.Println(receipt.ID, replayed, err)
	}
	// Output:
	// charging the card
	// re_1 false <nil>
	// re_1 true <nil>
	// re_1 true <nil>
}

// An error means that the function had no effect. If the outcome is unknown, the function returns
// an error that matches ErrUnknownOutcome. Then it does not run again before a person has decided.
func ExampleDo_unknownOutcome() {
	guard := dedup.NewGuard(memstore.New(), dedup.GuardConfig{})
	defer guard.Close()
	key := dedup.Key{Scope: "billing", Type: "charge", ID: "12345"}
	answers := []error{errors.New("card was declined"), fmt.Errorf("no answer: %w", dedup.ErrUnknownOutcome)}
	for range 3 {
		_, _, err := dedup.Do(context.Background(), guard, key, func(context.Context) (Receipt, error) {
			fmt.Println("charging the card")
			err := answers[0]
			answers = answers[1:]
			return Receipt{}, err
		})
		fmt.Println(err, errors.Is(err, dedup.ErrUnknownOutcome))
	}
	// Output:
	// charging the card
	// card was declined false
	// charging the card
	// no answer: outcome of an earlier run unknown true
	// outcome of an earlier run unknown: ":billing:charge:12345" true
}

// Two payments under one key are a mistake of the caller, or worse.
func ExampleSamePayload() {
	guard := dedup.NewGuard(memstore.New(), dedup.GuardConfig{})
	defer guard.Close()
	pay := func(amount byte) error {
		payload := dedup.SamePayload(dedup.Fingerprint{amount}) // in production: a hash of the request
		_, _, err := dedup.Do(context.Background(), guard, dedup.Key{Scope: "billing", ID: "1"},
			func(context.Context) (string, error) { return "paid", nil }, payload, dedup.KeepFor(48*time.Hour))
		return err
	}
	fmt.Println(pay(10))
	fmt.Println(pay(10))
	fmt.Println(pay(99))
	// Output:
	// <nil>
	// <nil>
	// key was used with another payload: ":billing::1"
}

// A keyring encrypts results in the store. The second process has a newer key, and the older one to
// open earlier results.
func ExampleKeyring() {
	store := memstore.New() // in production: a store that other processes share

	older, newer := bytes.Repeat([]byte("o"), 32), bytes.Repeat([]byte("n"), 32) // random bytes
	charge := func(cfg dedup.KeyringConfig) {
		keyring, err := dedup.NewKeyring(cfg)
		if err != nil {
			fmt.Println(err)
			return
		}
		guard := dedup.NewGuard(store, dedup.GuardConfig{Keyring: keyring})
		defer guard.Close()
		receipt, replayed, err := dedup.Do(context.Background(), guard,
			dedup.Key{Scope: "billing", ID: "order-7"},
			func(context.Context) (string, error) { return "receipt 1", nil })
		fmt.Println(receipt, replayed, errors.Is(err, dedup.ErrSealed))
	}
	charge(dedup.KeyringConfig{Keys: map[string][]byte{"may": older}, SealWith: "may"})
	charge(dedup.KeyringConfig{
		Keys: map[string][]byte{"may": older, "november": newer}, SealWith: "november",
	})
	charge(dedup.KeyringConfig{Keys: map[string][]byte{"november": newer}, SealWith: "november"})
	// Output:
	// receipt 1 false false
	// receipt 1 true false
	//  false true
}

// Tx stands for the transaction of your database, such as pgx.Tx with pgstore.
func ExampleDoTx() {
	var store dedup.TxStore[*page] = newBooks() // in production: pgstore
	guard := dedup.NewGuard(store, dedup.GuardConfig{})
	defer guard.Close()
	key := dedup.Key{Scope: "transfers", ID: "tr_1"}
	for range 2 {
		balance, replayed, err := dedup.DoTx(context.Background(), guard, key, 5*time.Second,
			func(_ context.Context, tx *page) (int, error) {
				tx.lines = append(tx.lines, "UPDATE accounts ...") // commits together with the key and the result
				return 90, nil
			})
		fmt.Println(balance, replayed, err)
	}
	// Output:
	// 90 false <nil>
	// 90 true <nil>
}
