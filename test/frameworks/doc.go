// Package frameworks tests that the middleware of httpidem can be mounted in chi, echo, gin and
// gorilla/mux. It is a module of its own, so that their trees never reach a user. It contains no
// other code.
package frameworks
