package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// number of a setting in its base unit; what the server does not have is zero.
func (f *pgFacts) number(name string) int64 {
	n, err := strconv.ParseInt(f.settings[name].value, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (f *pgFacts) millis(name string) time.Duration {
	return time.Duration(f.number(name)) * time.Millisecond
}

func (f *pgFacts) on(name string) bool { return f.settings[name].value == "on" }

// mend is the statement that changes a setting where it comes from.
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
		return "take " + name + " out of the connection URL"
	case "command line":
		return fmt.Sprintf("start the server with -c %s=%s", name, value)
	}
	return fmt.Sprintf("ALTER SYSTEM %s; SELECT pg_reload_conf()", set)
}

// where says in words where a setting comes from.
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

// checkPostgresFacts judges. pool is how many connections a worker may have.
func (d *examination) checkPostgresFacts(r *Findings, on string, f *pgFacts, pool int) {
	r.choose("postgres.standby", on, "the primary",
		choice{f.standby, Bad, "a standby: nothing can be recorded (P-26)", "the address of the primary in --store, or target_session_attrs=read-write with all addresses"})
	const readOnly = "default_transaction_read_only"
	r.choose("postgres.read_only", on, "they may",
		choice{f.on(readOnly), Bad, readOnly + " is on " + f.where(readOnly) + ": nothing can be recorded (P-26)", f.mend(readOnly, "off")},
		f.ofOthers(readOnly, "on", Warn, "nothing can be recorded by workers of that role (P-26)"))
	f.checkDurability(r, on, d.opt.Durable)
	f.checkSession(r, on)
	d.checkLimits(r, on, f)
	d.checkConnections(r, on, f, pool)
	var off []string
	for _, t := range f.tables {
		if !t.autovacuum {
			off = append(off, t.name)
		}
	}
	r.choose("postgres.autovacuum", on, "on",
		choice{!f.on("autovacuum") || !f.on("track_counts"), Warn, "autovacuum or track_counts is off: what is deleted and updated stays, and the tables grow (P-08)",
			"ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf()"},
		choice{len(off) > 0, Warn, "autovacuum is off for " + strings.Join(off, ", ") + ": what is deleted and updated stays, and the table grows (P-08)",
			alterTables(off, "RESET (autovacuum_enabled)")})
	checkClock(r, "postgres.clock", on, f.skew, f.within)
}

// ofOthers is the choice that some other role has this setting.
func (f *pgFacts) ofOthers(name, value string, v Verdict, why string) choice {
	for _, e := range f.elsewhere {
		if e.name == name && e.value == value {
			return choice{true, v, fmt.Sprintf("%s is %s for the role %s: %s", name, value, e.role, why),
				fmt.Sprintf("ALTER ROLE %s RESET %s, or ALTER ROLE %s IN DATABASE %s RESET %s", ident(e.role), name, ident(e.role), ident(f.database), name)}
		}
	}
	return choice{}
}

func alterTables(names []string, what string) string {
	var all []string
	for _, name := range names {
		all = append(all, "ALTER TABLE "+ident(name)+" "+what)
	}
	return strings.Join(all, "; ")
}

// checkDurability is about what a crash or a fail-over forgets while the offsets stay (P-18).
func (f *pgFacts) checkDurability(r *Findings, on string, durable bool) {
	r.choose("postgres.fsync", on, "on",
		choice{!f.on("fsync"), Bad, "fsync is off: a crash of the server loses or corrupts effects and store, while the offsets stay (P-18)", f.mend("fsync", "on")})
	r.choose("postgres.full_page_writes", on, "on",
		choice{!f.on("full_page_writes"), Bad, "full_page_writes is off: a crash may leave torn pages in effects and store (P-18)", f.mend("full_page_writes", "on")})
	const commit = "synchronous_commit"
	const lost = "a crash of the server forgets the last commits, effects and records, while the offsets stay: these events are lost (P-18)"
	waits := f.settings["synchronous_standby_names"].value != ""
	level := f.settings[commit].value
	r.choose("postgres.commit", on, commit+" is "+level,
		choice{level == "off" && durable, OK, "off, but pgstore.Durable overrides it", ""},
		choice{level == "off", Bad, commit + " is off " + f.where(commit) + ": " + lost, f.mend(commit, "on") + "; or pgstore.Durable in the workers"},
		choice{waits && (level == "local" || level == "remote_write"), Warn,
			fmt.Sprintf("%s is %s %s although synchronous standbys are set: a fail-over may lose commits (P-18)", commit, level, f.where(commit)), f.mend(commit, "on")},
		f.ofOthers(commit, "off", Warn, "if workers have that role, "+lost))
	r.choose("postgres.replication", on, fmt.Sprintf("%d standbys, %d of them synchronous", f.replicas, f.synchronous),
		choice{f.replicas > 0 && f.synchronous == 0, Warn,
			fmt.Sprintf("%d standbys, none synchronous: after a fail-over to one the last commits are gone while the offsets stay (P-18)", f.replicas),
			"synchronous_standby_names; or after every fail-over idem rewind by the lag of the standby"})
	var unlogged []string
	for _, t := range f.tables {
		if t.unlogged {
			unlogged = append(unlogged, t.name)
		}
	}
	r.choose("postgres.unlogged", on, "all tables are logged",
		choice{len(unlogged) > 0, Bad, strings.Join(unlogged, ", ") + ": empty after a crash, so that what is delivered again is handled again (P-18)",
			alterTables(unlogged, "SET LOGGED")})
}

// checkSession is about how soon a worker that is gone lets go of its event (rule 10), and about who is in between (P-17).
func (f *pgFacts) checkSession(r *Findings, on string) {
	var loose []string
	if f.number("client_connection_check_interval") == 0 {
		loose = append(loose, "client_connection_check_interval is 0")
	}
	if idle := f.number("tcp_keepalives_idle"); !f.local && (idle == 0 || idle > 300) {
		loose = append(loose, fmt.Sprintf("tcp_keepalives_idle is %d s", idle))
	}
	why := "although a worker asks for more"
	if f.given {
		why = "which pgstore.Configure and pgstore.Open would set"
	}
	r.choose("postgres.session", on, "ended within half a minute by what pgstore.Configure and pgstore.Open set; a pool made without them has the server's defaults",
		choice{len(loose) > 0, Warn,
			strings.Join(loose, "; ") + ", " + why + ": when one dies its event is held until its statement ends, or until the network is missed (rule 10)",
			fmt.Sprintf("ALTER ROLE %s SET client_connection_check_interval = '2s'; ALTER ROLE %s SET tcp_keepalives_idle = 10", ident(f.role), ident(f.role))})
	const remedy = "ignore_startup_parameters of the pooler with the names in pgstore.Configure; ALTER ROLE ... SET for their values; in transaction mode also default_query_exec_mode=exec in the URL"
	r.choose("postgres.pooler", on, "no pooler in between",
		choice{f.refused, Warn, "a pooler refuses the parameters of pgstore.Configure: a worker opened with pgstore.Open cannot connect (P-17)", remedy},
		choice{!f.direct, Warn, "a pooler is in between: in transaction mode prepared statements and settings of the session are lost, and its clients' deaths are not the server's (P-17, rule 10)", remedy})
}

// checkLimits compares what the server allows with what handlers may take.
func (d *examination) checkLimits(r *Findings, on string, f *pgFacts) {
	timeout := d.opt.Timeout
	const idle, whole, statement, lock = "idle_in_transaction_session_timeout", "transaction_timeout", "statement_timeout", "lock_timeout"
	r.choose("postgres.idle_timeout", on, "long enough",
		choice{f.number(whole) > 0 && f.millis(whole) < timeout, Bad,
			fmt.Sprintf("%s is %s %s, a handler may take %s: its session is ended in the middle, again and again (P-15)", whole, f.millis(whole), f.where(whole), timeout),
			f.mend(whole, "0")},
		choice{f.number(idle) > 0 && f.millis(idle) < timeout, Warn,
			fmt.Sprintf("%s is %s %s, a handler may take %s: transactions that handlers begin themselves are ended when they wait for something else; "+
				"OnTx has a limit of its own (P-15)", idle, f.millis(idle), f.where(idle), timeout), f.mend(idle, "0")})
	r.choose("postgres.statement_timeout", on, "long enough",
		choice{f.number(statement) > 0 && f.millis(statement) < timeout, Warn,
			fmt.Sprintf("%s is %s %s, a handler may take %s: its statements fail earlier, with an error that counts as a failure of the event (P-27)",
				statement, f.millis(statement), f.where(statement), timeout), f.mend(statement, "0")})
	r.choose("postgres.lock_timeout", on, "long enough",
		choice{f.number(lock) > 0 && f.millis(lock) < 2*time.Second, Warn,
			fmt.Sprintf("%s is %s %s: handlers that meet at one row fail instead of waiting, which counts as a failure of the event (P-27)",
				lock, f.millis(lock), f.where(lock)), f.mend(lock, "0")})
}

// checkConnections compares all pools with what the server has (P-14).
func (d *examination) checkConnections(r *Findings, on string, f *pgFacts, pool int) {
	const id = "postgres.connections"
	want := pool * d.opt.Instances
	room := int(f.number("max_connections") - f.number("superuser_reserved_connections") - f.number("reserved_connections"))
	limit, whose := room, "the server has"
	if f.roleLimit >= 0 && f.roleLimit < limit {
		limit, whose = f.roleLimit, "the role may have"
	}
	if f.databaseLimit >= 0 && f.databaseLimit < limit {
		limit, whose = f.databaseLimit, "the database may have"
	}
	sum := fmt.Sprintf("%d workers with %d connections each are %d", d.opt.Instances, pool, want)
	r.choose(id, on, fmt.Sprintf("%s, %s %d", sum, whose, limit),
		choice{want > limit, Bad, fmt.Sprintf("%s, %s %d: some workers stand still when all are at work (P-14)", sum, whose, limit),
			"a smaller pool_max_conns, a higher max_connections or CONNECTION LIMIT, or a pooler"},
		choice{want > room-f.others, Warn, fmt.Sprintf("%s, the server has %d, and others use %d of them now (P-14)", sum, room, f.others),
			"a smaller pool_max_conns, or a higher max_connections"})
}

// checkClock judges a difference of clocks. Leases and retention are the store's clock's alone, but the age of events is
// told by Kafka's: the margin for that is a minute.
func checkClock(r *Findings, id, on string, skew, within time.Duration) {
	sure := max(0, skew.Abs()-within)
	text := fmt.Sprintf("the store's clock is %s from this host's, give or take %s", skew.Round(time.Millisecond), within.Round(time.Millisecond))
	const remedy = "NTP on all hosts: chronyc tracking, timedatectl"
	r.choose(id, on, text,
		choice{sure > time.Minute, Bad, text + ": if Kafka's clock is as this host's, the age of events is told wrong by that, and some are too old or forgotten too early (P-10, R-18)", remedy},
		choice{sure > 2*time.Second, Warn, text + ": clocks that are kept do not differ by that (P-10, R-18)", remedy})
}
