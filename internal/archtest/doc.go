// Package archtest holds the tests that keep the shape of the project: imports of packages, sizes
// of files, and required documentation. It contains no other code.
package archtest
