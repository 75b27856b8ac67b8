// Package ops is the ops page: one http.Handler, mounted under any prefix behind the program's own
// authentication, that answers "was event X handled, when, and why not?" and shows duplicates, lag,
// retries, stuck claims, dead letters, the outbox and what the doctor finds.
//
//	monitor := ops.NewMonitor()
//	cfg.Observers = append(cfg.Observers, monitor) // of consumer.Config
//	page, err := ops.NewHandler(ops.Config{Consumer: cfg, Monitor: monitor, Auth: whoIsIt})
//	mux.Handle("/admin/idem/", page)
//
// It is off unless it is mounted, refuses to be made without [Config].Auth unless [Config].Loopback
// holds every request to this machine, and changes nothing unless [Config].AllowReplay is set
// (G-10). It works without JavaScript; where there is some, the figures move by themselves. There
// is no build step and nothing is loaded from elsewhere.
//
// Every source is optional: the page says what is missing and how to give it. A source that fails
// or hangs costs its own section, within [Config].Timeout, and nothing else.
package ops
