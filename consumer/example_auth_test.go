package consumer_test

import (
	"fmt"
	"os"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/kafkaauth"
)

// A consumer logs in with tokens for client credentials, over TLS with a CA from a file.
func ExampleSASL() {
	source, err := kafkaauth.ClientCredentials{
		TokenURL: "https://login.example/token",
		ClientID: "orders", ClientSecret: os.Getenv("CLIENT_SECRET"),
		Scopes: []string{"kafka"},
	}.Source()
	if err != nil {
		fmt.Println(err)
		return
	}
	tlsConfig, err := kafkaauth.TLSFiles{CA: "/etc/kafka/ca.pem"}.Config()
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg := consumer.Config{
		Brokers: []string{"kafka.example:9093"}, Group: "orders", Topics: []string{"payments"},
		TLS:  tlsConfig,
		SASL: &consumer.SASL{Mechanism: "OAUTHBEARER", Token: source},
	}
	fmt.Println(cfg)
}
