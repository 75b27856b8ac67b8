// Package auth holds tests of credentials on a real Kafka with its authorizer on, for the runners
// on all Kafka clients: SASL over TLS with each mechanism, and certificates of clients.
package auth
