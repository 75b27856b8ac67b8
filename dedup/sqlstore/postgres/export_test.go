package postgres

// Dialect is for tests that change it.
var Dialect = dialect
