// Package acls tests the rights that each role of Idem needs in Kafka, on a broker of its own with
// the authorizer on. The commands that grant the rights are those of docs/operations.md, run by
// Kafka's own tool.
package acls
