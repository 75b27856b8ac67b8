// Package acls holds tests of what each role of Idem may do in Kafka, on a broker of their own with its authorizer on. The
// commands that grant the rights are those of docs/operations.md, run by Kafka's own tool.
package acls
