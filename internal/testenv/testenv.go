// Package testenv connects tests to real services: Postgres, MariaDB, Redis and Kafka. Each test
// gets a schema, a database, a key prefix or a topic of its own. Environment variables have the
// addresses; `make up` starts the services.
package testenv

import (
	"os"
	"testing"
)

// service returns the value of the environment variable with the address of a service. Without the
// variable the test is skipped. If IDEM_REQUIRE_SERVICES is set, the test fails instead: a skip
// must never look like a success in CI.
func service(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	switch {
	case value != "":
	case os.Getenv("IDEM_REQUIRE_SERVICES") != "":
		t.Fatalf("%s must be set", variable)
	default:
		t.Skipf("%s is not set: run `make up`", variable)
	}
	return value
}
