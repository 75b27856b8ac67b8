// Package chaos holds tests that kill: workers with SIGKILL at random moments, brokers and stores
// under load. Afterwards they look at the contents of real services, so that they believe no
// counter of the code under test.
//
// The harness is in small files. proc has operating system processes that never outlive the tests.
// kafka has topics and offsets, produce has the load, and kill has the times of the kills. services
// has a private Kafka, Postgres and Redis to be crashed.
//
// Every test draws its random moments from a seed, which it prints. IDEM_CHAOS_SEED repeats a run
// as far as two kernels schedule alike. IDEM_SOAK=1 makes the tests longer.
package chaos
