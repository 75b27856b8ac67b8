package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/words"
)

// mend returns the statement that changes a setting at its source.
func (f *pgFacts) mend(name, value string) string {
	set := fmt.Sprintf("SET %s = %s", name, value)
	switch f.settings[name].source {
	case "user":
		return fmt.Sprintf("ALTER ROLE %s %s", ident(f.role), set)
	case "database":
		return fmt.Sprintf("ALTER DATABASE %s %s", ident(f.database), set)
	case "database user":
		return fmt.Sprintf("ALTER ROLE %s IN DATABASE %s %s", ident(f.role), ident(f.database), set)
	case "client":
		return "remove " + name + " from the connection URL"
	case "command line":
		return fmt.Sprintf("start the server with -c %s=%s", name, value)
	}
	return fmt.Sprintf("ALTER SYSTEM %s; SELECT pg_reload_conf()", set)
}

// where returns the source of a setting in words.
func (f *pgFacts) where(name string) string {
	switch s := f.settings[name].source; s {
	case "user", "database user":
		return "for the role " + f.role
	case "database":
		return "for the database " + f.database
	case "client":
		return "in the connection URL"
	default:
		return "for the server"
	}
}

// checkPostgresFacts judges a server. pool is the greatest number of connections of a worker.
func (d *examination) checkPostgresFacts(r *Findings, on string, f *pgFacts, pool int) {
	r.choose("postgres.standby", on, "the primary",
		choice{f.standby, Bad, "a standby: no event can be recorded",
			"the address of the primary in --store, or target_session_attrs=read-write " +
				"with all addresses"})
	const readOnly = "default_transaction_read_only"
	r.choose("postgres.read_only", on, "transactions may write",
		choice{f.on(readOnly), Bad,
			readOnly + " is on " + f.where(readOnly) + ": no event can be recorded",
			f.mend(readOnly, "off")},
		f.ofOthers(readOnly, "on", Warn, "workers of that role can record no event"),
		f.unseen("transactions of this role may write; for other roles "))
	f.checkDurability(r, on, d.opt.Durable)
	f.checkSession(r, on)
	f.checkLimits(r, on, d.opt.Timeout)
	f.checkConnections(r, on, pool, d.opt.Instances)
	var off []string
	for _, t := range f.tables {
		if !t.autovacuum {
			off = append(off, t.name)
		}
	}
	const effect = ": dead rows stay, and the tables grow"
	r.choose("postgres.autovacuum", on, "on",
		choice{!f.on("autovacuum") || !f.on("track_counts"), Warn,
			"autovacuum or track_counts is off" + effect,
			"ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; " +
				"SELECT pg_reload_conf()"},
		choice{len(off) > 0, Warn, "autovacuum is off for " + strings.Join(off, ", ") + effect,
			f.alterTables(off, "RESET (autovacuum_enabled)")},
		f.unseen("on for the server; for the tables "))
	checkClock(r, "postgres.clock", on, f.skew, f.within)
}

// ofOthers is the choice that another role has this value.
func (f *pgFacts) ofOthers(name, value string, v Verdict, why string) choice {
	for _, e := range f.elsewhere {
		if e.name == name && e.value == value {
			role, database := ident(e.role), ident(f.database)
			return choice{true, v,
				fmt.Sprintf("%s is %s for the role %s: %s", name, value, e.role, why),
				fmt.Sprintf("ALTER ROLE %s RESET %s, or ALTER ROLE %s IN DATABASE %s RESET %s",
					role, name, role, database, name)}
		}
	}
	return choice{}
}

// unseen is the choice that the role may not see the tables, nor which other roles write them. known
// is what the check knows nevertheless.
func (f *pgFacts) unseen(known string) choice {
	return choice{f.hidden, Unknown,
		known + "not known: the role has no USAGE on the schema of the tables",
		useSchema(f.role, f.schema)}
}

func (f *pgFacts) alterTables(names []string, change string) string {
	var all []string
	for _, name := range names {
		table := ident(name)
		if f.schema != "" {
			table = ident(f.schema) + "." + table
		}
		all = append(all, "ALTER TABLE "+table+" "+change)
	}
	return strings.Join(all, "; ")
}

// checkDurability finds commits that a crash or a failover loses while the offsets stay (P-18).
func (f *pgFacts) checkDurability(r *Findings, on string, durable bool) {
	r.choose("postgres.fsync", on, "on",
		choice{!f.on("fsync"), Bad, "fsync is off: a crash of the server loses or corrupts " +
			"effects and store, while the offsets stay", f.mend("fsync", "on")})
	r.choose("postgres.full_page_writes", on, "on",
		choice{!f.on("full_page_writes"), Bad, "full_page_writes is off: a crash may leave torn " +
			"pages in effects and store", f.mend("full_page_writes", "on")})
	const commit = "synchronous_commit"
	const lost = "a crash of the server loses the last commits, effects and records, " +
		"while the offsets stay: these events are lost"
	waits := f.settings["synchronous_standby_names"].value != ""
	level := f.settings[commit].value
	others := f.ofOthers(commit, "off", Warn, "if workers have that role, "+lost)
	unseen := f.unseen(commit + " is " + level + "; of other roles ")
	if durable { // pgstore.Durable sets it in each transaction
		others.when, unseen.when = false, false
	}
	r.choose("postgres.commit", on, commit+" is "+level,
		choice{level == "off" && durable, OK, "off, but pgstore.Durable overrides the setting", ""},
		choice{level == "off", Bad, commit + " is off " + f.where(commit) + ": " + lost,
			f.mend(commit, "on") + "; or pgstore.Durable in the workers"},
		choice{waits && (level == "local" || level == "remote_write"), Warn,
			fmt.Sprintf("%s is %s %s although synchronous standbys are set: "+
				"a failover may lose commits", commit, level, f.where(commit)),
			f.mend(commit, "on")},
		others, unseen)
	r.choose("postgres.replication", on,
		fmt.Sprintf("%s, %d of them synchronous", words.Plain(f.replicas, "standby"), f.synchronous),
		choice{f.replicas > 0 && !f.readsStats, Unknown,
			words.Plain(f.replicas, "standby") + ": the role may not read whether one is synchronous",
			"GRANT pg_read_all_stats TO " + ident(f.role)},
		choice{f.replicas > 0 && f.synchronous == 0, Warn,
			words.Plain(f.replicas, "standby") + ", none synchronous: a failover loses the last commits " +
				"while the offsets stay",
			"synchronous_standby_names; " +
				"or idem rewind by the lag of the standby after each failover"})
	var unlogged []string
	for _, t := range f.tables {
		if t.unlogged {
			unlogged = append(unlogged, t.name)
		}
	}
	r.choose("postgres.unlogged", on, "all tables are logged",
		choice{len(unlogged) > 0, Bad, strings.Join(unlogged, ", ") +
			": empty after a crash, so redelivered events are handled again",
			f.alterTables(unlogged, "SET LOGGED")},
		f.unseen(""))
}

// checksNoClient reports whether the server does not notice during a statement that a client died.
func (f *pgFacts) checksNoClient() bool { return f.number("client_connection_check_interval") == 0 }

// keepsIdle reports whether the server notices late that the host of a client is gone.
func (f *pgFacts) keepsIdle() bool {
	idle := f.number("tcp_keepalives_idle")
	return !f.local && (idle == 0 || idle > 300)
}

// checkSession finds settings that keep the session of a dead worker alive, and its event with it
// (rule 10). It also finds poolers (P-17).
func (f *pgFacts) checkSession(r *Findings, on string) {
	var loose []string
	if f.checksNoClient() {
		loose = append(loose, "client_connection_check_interval is 0")
	}
	if f.keepsIdle() {
		loose = append(loose, fmt.Sprintf("tcp_keepalives_idle is %d s", f.number("tcp_keepalives_idle")))
	}
	why := "although a worker sets another value"
	if f.given {
		why = "which pgstore.Configure and pgstore.Open would set"
	}
	role := ident(f.role)
	r.choose("postgres.session", on,
		"ended within half a minute, by the settings of pgstore.Configure and pgstore.Open; "+
			"a pool without them has the server's defaults",
		choice{len(loose) > 0, Warn,
			strings.Join(loose, "; ") + ", " + why + ": when a worker dies, its event is held " +
				"until the statement ends, or until the server notices the broken connection",
			"ALTER ROLE " + role + " SET client_connection_check_interval = '2s'; " +
				"ALTER ROLE " + role + " SET tcp_keepalives_idle = 10"})
	const remedy = "ignore_startup_parameters of the pooler with the names in pgstore.Configure; " +
		"ALTER ROLE ... SET for their values; " +
		"in transaction mode also default_query_exec_mode=exec in the URL"
	r.choose("postgres.pooler", on, "no pooler",
		choice{f.refused, Warn, "a pooler refuses the parameters of pgstore.Configure: " +
			"a worker with pgstore.Open cannot connect", remedy},
		choice{!f.direct, Warn, "the connection goes through a pooler: transaction mode loses " +
			"prepared statements and settings of the session, and the server does not notice " +
			"that a worker has died", remedy})
}

// checkLimits compares the time limits of the server with the timeout of the handlers.
func (f *pgFacts) checkLimits(r *Findings, on string, timeout time.Duration) {
	const (
		idle      = "idle_in_transaction_session_timeout"
		whole     = "transaction_timeout"
		statement = "statement_timeout"
		lock      = "lock_timeout"
	)
	tooShort := func(name string) bool { return f.number(name) > 0 && f.millis(name) < timeout }
	compared := func(name string) string {
		return fmt.Sprintf("%s is %s %s, a handler may take %s",
			name, f.millis(name), f.where(name), timeout)
	}
	r.choose("postgres.idle_timeout", on, "long enough",
		choice{tooShort(whole), Bad, compared(whole) +
			": the server ends the session of a long handler, at every attempt",
			f.mend(whole, "0")},
		choice{tooShort(idle), Warn, compared(idle) +
			": the server ends transactions that handlers begin themselves when they wait for " +
			"something else; OnTx has its own limit", f.mend(idle, "0")})
	r.choose("postgres.statement_timeout", on, "long enough",
		choice{tooShort(statement), Warn, compared(statement) +
			": a statement fails before that, with an error that counts as a failure of the event",
			f.mend(statement, "0")})
	r.choose("postgres.lock_timeout", on, "long enough",
		choice{f.number(lock) > 0 && f.millis(lock) < 2*time.Second, Warn,
			fmt.Sprintf("%s is %s %s: handlers that need the same row fail instead of waiting, "+
				"which counts as a failure of the event", lock, f.millis(lock), f.where(lock)),
			f.mend(lock, "0")})
}

// checkConnections compares all pools with the limits of the server (P-14).
func (f *pgFacts) checkConnections(r *Findings, on string, pool, instances int) {
	const id = "postgres.connections"
	want := pool * instances
	room := int(f.number("max_connections") - f.number("superuser_reserved_connections") -
		f.number("reserved_connections"))
	limit, holder := room, "the server has"
	if f.roleLimit >= 0 && f.roleLimit < limit {
		limit, holder = f.roleLimit, "the role may have"
	}
	if f.databaseLimit >= 0 && f.databaseLimit < limit {
		limit, holder = f.databaseLimit, "the database may have"
	}
	sum := fmt.Sprintf("%s with %s each: %d", words.Plain(instances, "worker"),
		words.Plain(pool, "connection"), want)
	r.choose(id, on, fmt.Sprintf("%s, %s %d", sum, holder, limit),
		choice{want > limit, Bad,
			fmt.Sprintf("%s, %s %d: under full load some workers stop", sum, holder, limit),
			"a smaller pool_max_conns, a higher max_connections or CONNECTION LIMIT, or a pooler"},
		choice{want > room-f.others, Warn,
			fmt.Sprintf("%s, the server has %d, and others use %d of them now",
				sum, room, f.others),
			"a smaller pool_max_conns, or a higher max_connections"})
}
