// Package dashboards checks what is in docs/dashboards: that each metric and each label named there
// is one that package otelidem measures, under the name that Prometheus' exporter gives it, and
// that each alert fires when it must and not when it must not, in Prometheus' own engine. The
// Grafana dashboard is made here:
//
//	go test -run TestGrafana ./... -update
//
// It is a module of its own, so that Prometheus' dependencies reach nobody.
package dashboards
