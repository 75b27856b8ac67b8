// Package dashboards checks the files of docs/dashboards. Each metric and each label named there
// must be one that package otelidem measures, under the name that Prometheus' exporter gives it.
// Each alert must fire when it should, and only then, in Prometheus' own engine. The Grafana
// dashboard is made here:
//
//	go test -run TestGrafana ./... -update
//
// It is a module of its own, so that no user gets Prometheus' dependencies.
package dashboards
