// Package orms tests that handlers use gorm, bun, sqlx, sqlc and ent in the transaction of a store
// on database/sql. The package is a module of its own, so that their trees never reach a user. It
// contains no other code.
package orms
