// Package drills fails servers over while workers handle events, and counts the events that were
// lost or handled twice: PgBouncer restarts, Redis and Postgres promote a replica, Kafka brokers
// die. Each drill starts servers of its own and prints one line:
//
//	drill: redis/frozen replica sent=5000 effects=5210 lost=0 doubled=210 took=4s
//
// `make drill` runs all of them. Without IDEM_SOAK the short ones run. A missing program skips its
// drill, or fails it if IDEM_REQUIRE_DRILLS is set. docs/decisions/failover.md has the figures.
package drills
