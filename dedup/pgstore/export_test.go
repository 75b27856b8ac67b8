package pgstore

// TurnOf is turnOf, for tests.
var TurnOf = turnOf
