// Package watermill runs Watermill's own tests of Pub/Subs on package watermillidem. The tests need
// more modules than the adapter, so the package is a module of its own.
package watermill
