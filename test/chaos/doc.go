// Package chaos holds tests that kill: workers with SIGKILL at random moments, brokers and stores under load. They look
// at what is left in real services afterwards, so that they believe no counter of the code under test.
//
// The harness is in small files: proc (operating system processes that never outlive the tests), kafka (topics, offsets),
// produce (the load), kill (who is killed when), services (private Kafka, Postgres and Redis to be crashed).
//
// Every test draws its random moments from a seed, which it prints; IDEM_CHAOS_SEED repeats a run as far as two kernels
// schedule alike. IDEM_SOAK=1 makes the tests longer.
package chaos
