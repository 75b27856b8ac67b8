// Package models checks the protocols of Idem as models in Promela, with spin: claims and leases
// (claim.pml), transactions of handlers (ontx.pml), and relays of an outbox (relay.pml).
//
// It needs spin and a C compiler on the path. Without them the tests are skipped, or fail if
// IDEM_REQUIRE_MODELS is set, as in CI. docs/decisions/models.md describes the result of each
// model.
package models
