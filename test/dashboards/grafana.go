package dashboards

import (
	"bytes"
	"encoding/json"
)

// object is a piece of Grafana's JSON.
type object map[string]any

// source is the data source that the viewer has chosen.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// panel is one of the dashboard's.
type panel struct {
	title, about, unit string
	stat               bool // a number instead of a graph
	stacked            bool
	targets            []target
	// From these values on it is orange, and red. Zero: never.
	warn, bad float64
}

// target is a query, and how its series are called.
type target struct{ expr, legend string }

// row is panels under a heading.
type row struct {
	title  string
	panels []panel
}

// The grid has 24 columns.
const (
	statWidth, statHeight   = 3, 4
	graphWidth, graphHeight = 8, 8
	columns                 = 24
)

// Grafana returns docs/dashboards/grafana.json.
func Grafana() ([]byte, error) {
	var panels []object
	id, y := 0, 0
	add := func(p object, x, w, h int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, p)
	}
	for _, r := range rows {
		add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []object{}}, 0, columns, 1)
		y++
		x, height := 0, 0
		for _, p := range r.panels {
			w, h := graphWidth, graphHeight
			if p.stat {
				w, h = statWidth, statHeight
			}
			if x+w > columns {
				x, y = 0, y+height
			}
			add(p.json(), x, w, h)
			x, height = x+w, h
		}
		y += height
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(object{
		"title": "Idem", "uid": "idem", "schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1,
		"description": "Consumers, stores, outbox and HTTP of github.com/idem-go/idem, by the metrics of package otelidem.",
		"tags":        []string{"idem", "kafka"}, "refresh": "10s", "timezone": "browser",
		"time":        object{"from": "now-1h", "to": "now"},
		"annotations": object{"list": []object{firing()}}, "templating": object{"list": variables()},
		"links": []object{{
			"title": "What to do", "type": "link", "icon": "doc", "targetBlank": true,
			"url": "https://github.com/idem-go/idem/blob/main/docs/operations.md",
		}},
		"panels": panels,
	})
	return text.Bytes(), err
}

// firing shows alerts in all graphs.
func firing() object {
	return object{
		"name": "Alerts", "datasource": source, "enable": true, "iconColor": "red", "titleFormat": "{{alertname}}",
		"expr": `ALERTS{alertname=~"Idem.+",alertstate="firing"}`, "step": "60s",
	}
}

// variables are the choices of the viewer.
func variables() []object {
	const all = `messaging_client_consumed_messages_total{job=~"$job"}`
	return []object{
		{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
		choice("job", "Job", `label_values({__name__=~"messaging_client_consumed_messages_total|idem_outbox_backlog|idem_http_requests_total|idem_do_calls_total"}, job)`),
		choice("group", "Group", `label_values(`+all+`, messaging_consumer_group_name)`),
		choice("topic", "Topic", `label_values(`+all+`, messaging_destination_name)`),
	}
}

// choice is one of several values, or all, also of series without that label.
func choice(name, label, query string) object {
	return object{
		"name": name, "label": label, "type": "query", "datasource": source, "definition": query,
		"query": object{"query": query, "refId": "values"}, "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
		"current": object{"text": "All", "value": "$__all"},
	}
}

func (p panel) json() object {
	var targets []object
	for i, t := range p.targets {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": t.expr, "legendFormat": t.legend, "range": !p.stat, "instant": p.stat,
		})
	}
	o := object{
		"type": "timeseries", "title": p.title, "description": p.about, "datasource": source, "targets": targets,
		"fieldConfig": object{"defaults": p.defaults(), "overrides": []object{}},
		"options": object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		},
	}
	if p.stat {
		o["type"], o["options"] = "stat", object{
			"colorMode": "value", "graphMode": "none", "reduceOptions": object{"calcs": []string{"lastNotNull"}},
		}
	}
	return o
}

func (p panel) defaults() object {
	steps := []object{{"color": "green", "value": nil}}
	if p.warn > 0 {
		steps = append(steps, object{"color": "orange", "value": p.warn})
	}
	if p.bad > 0 {
		steps = append(steps, object{"color": "red", "value": p.bad})
	}
	d := object{"unit": p.unit, "min": 0, "thresholds": object{"mode": "absolute", "steps": steps}}
	if p.stat {
		d["noValue"] = "0"
		return d
	}
	custom := object{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
	if p.stacked {
		custom["stacking"], custom["fillOpacity"] = object{"mode": "normal"}, 40
	}
	if len(steps) > 1 {
		custom["thresholdsStyle"] = object{"mode": "dashed"}
	}
	d["custom"] = custom
	return d
}
