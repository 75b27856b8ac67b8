// Package ops is the ops page: one http.Handler, mounted under any prefix behind the program's own
// authentication. The page answers the question "was event X handled, when, and why not?". It shows
// duplicates, lag, retries, stuck claims, dead letters, the outbox and the findings of the doctor.
//
//	monitor := ops.NewMonitor()
//	cfg.Observers = append(cfg.Observers, monitor) // of consumer.Config
//	page, err := ops.NewHandler(ops.Config{Consumer: cfg, Monitor: monitor, Auth: whoIsIt})
//	mux.Handle("/admin/idem/", page)
//
// The page is off unless it is mounted. [NewHandler] returns an error without [Config].Auth, unless
// [Config].Loopback restricts all requests to this machine. The page is read-only unless
// [Config].AllowReplay is set (G-10). It works without JavaScript. With JavaScript the figures
// update by themselves. There is no build step, and the page loads no file from elsewhere.
//
// Every source is optional. The page names a missing source, and the setting for it. A source that
// fails or hangs costs only its own section, within [Config].Timeout.
package ops
