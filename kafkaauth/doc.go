// Package kafkaauth supplies the credentials of Kafka clients: access tokens for SASL/OAUTHBEARER,
// and certificates from files that change while the program runs. It uses the standard library
// only, so it serves every Kafka client.
//
// No error, log line or String method of this package contains a token or a secret.
package kafkaauth
