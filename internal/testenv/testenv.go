// Package testenv gives tests the real services they need: a Postgres, a Redis, a Kafka, each with a place of its own
// for the test. Where they are is said by environment variables; `make up` starts them.
package testenv

import (
	"os"
	"testing"
)

// service returns the value of the environment variable that says where a service is. Without it the test is skipped,
// or fails if IDEM_REQUIRE_SERVICES is set: a skip must never look like a success in CI.
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
