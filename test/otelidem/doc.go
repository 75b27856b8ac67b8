// Package otelidem holds the tests of otelidem that read metrics and spans back from the
// OpenTelemetry SDK. They are a module of their own, so that the library's go.mod does not require
// the SDK.
package otelidem
