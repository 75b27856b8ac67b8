package mysql

// Dialect is for tests that change it.
var Dialect = dialect
