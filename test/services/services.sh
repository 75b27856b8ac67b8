#!/usr/bin/env bash
#
# services.sh: the real Kafka, Postgres, MariaDB, Redis, Redis Cluster and DynamoDB Local the tests and examples run against.
#
#   services.sh up [SERVICE...]    start what does not run yet, or only these, wait until all of it is healthy
#   services.sh down               stop what this clone started and remove its data (fetched jars are kept)
#   services.sh status             one line a service; exit code 0 if all are up
#   services.sh env                the addresses as "export NAME=value" lines, for eval
#   services.sh run COMMAND...     up, COMMAND with the addresses exported, then down of the services that `run` started
#   services.sh stop SERVICE       crash a service: SIGKILL (Postgres: immediate shutdown); its data stays
#   services.sh start SERVICE      start it again on the same data, wait until it is healthy
#   services.sh restart SERVICE    stop, then start
#   services.sh pause SERVICE      freeze it: its connections stay open, and nothing answers
#   services.sh resume SERVICE     let it go on
#   services.sh memory             a directory for IDEM_SERVICES_DIR in memory if there is room, else the default
#   services.sh compose            what is added to docker-compose.yml, for a Docker engine
#   services.sh kafka TOOL ARG...  Kafka's own tools: topics, acls, consumer-groups, console-producer, console-consumer
#   services.sh postgres TOOL ARG  Postgres's own tools, connected: pg_dump, psql
#
# With a Docker engine all of it is docker-compose.yml, and `run` leaves all of it up if this clone had any of it up. Without
# one, Postgres, MariaDB and Redis are the system's packages (installed with apt-get when this runs as root); Kafka and
# DynamoDB Local are started from their Maven artifacts.
#
# Everything listens on 127.0.0.1 and on ports of its own; but for DynamoDB Local without Docker, which has no setting for the
# address and listens on all of them. Settings, all optional:
#
#   IDEM_KAFKA_PORT 19092   IDEM_KAFKA_CONTROLLER_PORT 19093   IDEM_POSTGRES_PORT 15432   IDEM_REDIS_PORT 16379
#   IDEM_KAFKA_LOGIN_PORT, IDEM_KAFKA_MUTUAL_PORT ten and twenty above IDEM_KAFKA_PORT: SASL over TLS, and mutual TLS
#   IDEM_REDIS_CLUSTER_PORT ten above IDEM_REDIS_PORT: the first of six ports, three for clients and three between nodes
#   IDEM_DYNAMODB_PORT 18000   IDEM_MARIADB_PORT 13306
#   IDEM_KAFKA_SETTINGS     a file with further settings of Kafka, one "name=value" a line, such as an authorizer
#   IDEM_SERVICES_DIR       data, logs and pid files; default <repository>/.services
#   IDEM_CACHE_DIR          fetched jars, shared by all clones; default ~/.cache/idem
#   IDEM_SERVICES_ENGINE    docker or native; default: docker if an engine answers

set -euo pipefail
shopt -s inherit_errexit 2>/dev/null || true # bash 4.4 and later
umask 022 # Postgres runs as another user and must be able to reach its directory

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
ROOT=$(cd "$HERE/../.." && pwd -P)
STATE=${IDEM_SERVICES_DIR:-$ROOT/.services}
CACHE=${IDEM_CACHE_DIR:-$HOME/.cache/idem}

# docker-compose.yml reads the same variables, hence the export; test/compose compares the defaults.
export IDEM_KAFKA_PORT=${IDEM_KAFKA_PORT:-19092}
export IDEM_KAFKA_CONTROLLER_PORT=${IDEM_KAFKA_CONTROLLER_PORT:-19093}
# Beside the other, as with the Redis Cluster below. Not exported: a test with a Kafka of its own moves that one only.
IDEM_KAFKA_LOGIN_PORT=${IDEM_KAFKA_LOGIN_PORT:-$((IDEM_KAFKA_PORT + 10))}
IDEM_KAFKA_MUTUAL_PORT=${IDEM_KAFKA_MUTUAL_PORT:-$((IDEM_KAFKA_PORT + 20))}
export IDEM_POSTGRES_PORT=${IDEM_POSTGRES_PORT:-15432}
export IDEM_REDIS_PORT=${IDEM_REDIS_PORT:-16379}
# Beside the other Redis, so that whoever moves that one has moved both.
export IDEM_REDIS_CLUSTER_PORT=${IDEM_REDIS_CLUSTER_PORT:-$((IDEM_REDIS_PORT + 10))}
export IDEM_REDIS_CLUSTER_LAST_PORT=$((IDEM_REDIS_CLUSTER_PORT + 2))
export IDEM_DYNAMODB_PORT=${IDEM_DYNAMODB_PORT:-18000}
export IDEM_MARIADB_PORT=${IDEM_MARIADB_PORT:-13306}

# A further service is a name here and the functions <name>_port, _healthy, _install, _start, _pid, _stop and _env.
# In the order they are started.
SERVICES=(postgres mariadb redis redis_cluster dynamodb kafka)

# The settings that matter to the tests, one "name=value" or "name value" each; docker-compose.yml has the same.
POSTGRES_SETTINGS=(
	max_connections=300 # every test opens pools of its own
	fsync=on            # durability is what is being tested, and its cost is what is being measured
	shared_buffers=256MB
	max_wal_size=2GB # fewer checkpoints in the middle of a benchmark
	timezone=UTC
	track_commit_timestamp=on # the order of commits is what the outbox promises
	password_encryption=md5 # tests connect thousands of times, and SCRAM takes 10 ms with the race detector
)
REDIS_SETTINGS=(
	"appendonly yes" # claims must survive a restart
	"appendfsync everysec"
	"maxmemory-policy noeviction" # an evicted claim is a second effect: the store refuses any other policy
)
MARIADB_SETTINGS=(
	max-connections=300
	innodb-flush-log-at-trx-commit=1 # as with fsync above
	innodb-buffer-pool-size=128M
	character-set-server=utf8mb4
	default-time-zone=+00:00
)

say() { printf 'services: %s\n' "$*" >&2; }
die() {
	say "$*"
	exit 1
}

# --- helpers ---------------------------------------------------------------------------------------------------------

tcp_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# close_fds closes what was inherited beyond stderr: a daemon that keeps the lock, a caller's pipe or make's job
# pipe open would hold up whoever waits for the end of that file.
close_fds() {
	local path fd
	for path in /proc/self/fd/*; do
		fd=${path##*/}
		if ((fd > 2 && fd != 255)); then # 255 is bash's own, closed on exec
			eval "exec $fd>&-"
		fi
	done
}

# detach LOG COMMAND...: runs COMMAND in a session of its own, so that it outlives this shell and its terminal.
# setsid does not fork here (a background job of a script leads no process group): $! is COMMAND's own pid.
detach() {
	local log=$1
	shift
	(
		close_fds
		exec setsid "$@"
	) </dev/null >>"$log" 2>&1 &
}

# is_process PID TEXT: whether PID lives and its command line contains TEXT (a path below our state directory).
# A pid file may be older than the process that has the number now.
is_process() {
	[[ -n $1 ]] && ps -ww -o args= -p "$1" 2>/dev/null | grep -qF -- "$2"
}

# wait_gone PID TEXT PORT: waits until the process is gone, and the port with it: a killed JVM has lost its command line
# some time before its sockets are closed.
wait_gone() {
	local i
	for ((i = 0; i < 100; i++)); do
		is_process "$1" "$2" || tcp_open "$3" || return 0
		sleep 0.1
	done
	die "process $1 did not end"
}

# service_dir SERVICE: makes the service's directory. The marker file is what allows `down` to remove it: never a
# directory that was there before, whatever IDEM_SERVICES_DIR says.
service_dir() {
	local dir=$STATE/$1
	if [[ -e $dir && ! -e $dir/.idem-services ]]; then
		die "$dir exists and is not ours: set IDEM_SERVICES_DIR to another directory"
	fi
	mkdir -p "$dir"
	: >"$dir/.idem-services"
	echo "$dir"
}

# One lock for all clones of this user: two `up` at once must not both fetch, install or start.
lock() {
	mkdir -p "$CACHE/run"
	command -v flock >/dev/null || return 0 # not on macOS, where Docker does the work and locks for itself
	exec 9>"$CACHE/run/lock"
	if ! flock -n 9; then
		say "waiting for another services.sh to finish"
		flock -w 900 9 || die "another services.sh has held $CACHE/run/lock for 15 minutes"
	fi
}

# apt_install WHAT PACKAGE...: installs the packages, or says in one line what is missing and how to get it.
apt_install() {
	local what=$1 policy=/usr/sbin/policy-rc.d ours=
	shift
	if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
		die "$what is missing: start a Docker engine, or install it (Debian, Ubuntu: sudo apt-get install $*)"
	fi
	say "$what is missing: installing $*"
	# Debian starts a service it installs, on its default port: that is not what was asked for.
	if [[ ! -e $policy ]]; then
		ours=1
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	fi
	local log ok=1
	log=$(mktemp)
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"; } \
		</dev/null >"$log" 2>&1 9>&- || ok=
	[[ -z $ours ]] || rm -f "$policy"
	[[ -n $ok ]] || tail -n 20 "$log" >&2
	rm -f "$log"
	[[ -n $ok ]] || die "$what is missing and apt-get could not install $*"
}

# --- Postgres --------------------------------------------------------------------------------------------------------

postgres_port() { echo "$IDEM_POSTGRES_PORT"; }
postgres_env() { echo "POSTGRES_URL=postgres://idem:idem@127.0.0.1:$IDEM_POSTGRES_PORT/idem?sslmode=disable"; }

# pg_bin: the directory of the newest Postgres programs, 15 or later.
pg_bin() {
	local dir best='' major best_major=14
	for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin "$(pg_config --bindir 2>/dev/null || true)"; do
		[[ -x $dir/initdb && -x $dir/pg_ctl && -x $dir/psql ]] || continue
		major=$("$dir/postgres" --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
		if ((major > best_major)); then
			best=$dir best_major=$major
		fi
	done
	[[ -n $best ]] && echo "$best"
}

# as_postgres COMMAND...: Postgres refuses to run as root.
as_postgres() {
	if ((EUID != 0)); then
		"$@"
		return
	fi
	local user=postgres
	id -u "$user" >/dev/null 2>&1 || user=nobody
	(cd / && runuser -u "$user" -- "$@")
}

# pg_home: the directory that holds data and log. A clone below a private directory (root's home, say) cannot be
# reached by Postgres's own user: then it is elsewhere, and a file says where.
pg_home() {
	if [[ -e $STATE/postgres/elsewhere ]]; then
		cat "$STATE/postgres/elsewhere"
	else
		echo "$STATE/postgres/home"
	fi
}

postgres_install() {
	[[ -n $(pg_bin) ]] || apt_install "PostgreSQL 15 or later" postgresql
	[[ -n $(pg_bin) ]] || die "PostgreSQL 15 or later is missing: the system's package is older; start a Docker engine"
}

postgres_pid() {
	local home pid
	home=$(pg_home)
	pid=$(head -n 1 "$home/data/postmaster.pid" 2>/dev/null) || return 1
	is_process "$pid" "$home/data" && echo "$pid"
}

postgres_healthy() {
	local bin
	bin=$(pg_bin) || return 1
	[[ $(PGPASSWORD=idem PGCONNECT_TIMEOUT=3 "$bin/psql" -XAtq -h 127.0.0.1 -p "$IDEM_POSTGRES_PORT" -U idem -d idem \
		-c 'SELECT 1' 2>/dev/null) == 1 ]]
}

postgres_start() {
	local dir home bin setting
	dir=$(service_dir postgres)
	bin=$(pg_bin)
	home=$(pg_home)
	if [[ ! -d $home/data ]]; then
		mkdir -p "$home"
		if ((EUID == 0)); then
			local user=postgres
			id -u "$user" >/dev/null 2>&1 || user=nobody
			chown "$user" "$home"
			if ! as_postgres test -w "$home"; then
				rmdir "$home"
				home=$(mktemp -d /var/lib/idem-postgres.XXXXXX)
				chown "$user" "$home"
				echo "$home" >"$dir/elsewhere"
			fi
		fi
		printf 'idem\n' | as_postgres tee "$home/password" >/dev/null
		# Into a directory that gets its name at the end: an initdb that was interrupted is begun again.
		as_postgres rm -rf "$home/data.new"
		as_postgres "$bin/initdb" -D "$home/data.new" -U idem --pwfile="$home/password" -A md5 \
			-E UTF8 --locale=C.UTF-8 >"$dir/initdb.log" 2>&1 || die "initdb failed: see $dir/initdb.log"
		as_postgres mv "$home/data.new" "$home/data"
	fi
	# No socket in the file system: its path would have to be short, and one address is enough.
	local options="-p $IDEM_POSTGRES_PORT -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
	for setting in "${POSTGRES_SETTINGS[@]}"; do
		options+=" -c $setting"
	done
	(
		close_fds
		as_postgres "$bin/pg_ctl" -D "$home/data" -l "$home/log" -w -t 120 -o "$options" start
	) </dev/null >>"$dir/pg_ctl.log" 2>&1 || {
		as_postgres tail -n 20 "$home/log" >&2 || true
		die "Postgres did not start: see $home/log"
	}
	local psql=("$bin/psql" -XAtq -h 127.0.0.1 -p "$IDEM_POSTGRES_PORT" -U idem -d postgres)
	if [[ $(PGPASSWORD=idem "${psql[@]}" -c "SELECT count(*) FROM pg_database WHERE datname = 'idem'") == 0 ]]; then
		PGPASSWORD=idem "${psql[@]}" -c 'CREATE DATABASE idem'
	fi
}

# postgres_tool NAME ARGUMENT...: a program of Postgres, of the server's version and connected to it.
postgres_tool() {
	local bin tool=$1
	shift
	postgres_install
	bin=$(pg_bin)
	[[ -x $bin/$tool ]] || die "$bin/$tool is missing: install the client programs of PostgreSQL (Debian, Ubuntu: sudo apt-get install postgresql-client)"
	PGPASSWORD=idem exec "$bin/$tool" -h 127.0.0.1 -p "$IDEM_POSTGRES_PORT" -U idem -d idem "$@"
}

postgres_log() { as_postgres tail -n 20 "$(pg_home)/log"; }

# Immediate: no checkpoint, recovery at the next start, as after a crash.
postgres_stop() {
	as_postgres "$(pg_bin)/pg_ctl" -D "$(pg_home)/data" -m immediate -w -t 60 stop >>"$STATE/postgres/pg_ctl.log" 2>&1
}

postgres_remove() {
	local elsewhere
	if [[ -e $STATE/postgres/elsewhere ]]; then
		elsewhere=$(cat "$STATE/postgres/elsewhere")
		case $elsewhere in
		/var/lib/idem-postgres.*) rm -rf -- "$elsewhere" ;;
		esac
	fi
}

# --- Redis -----------------------------------------------------------------------------------------------------------

redis_port() { echo "$IDEM_REDIS_PORT"; }
redis_env() { echo "REDIS_URL=redis://127.0.0.1:$IDEM_REDIS_PORT/0"; }

redis_version_ok() {
	local major
	major=$(redis-server --version 2>/dev/null | sed -nE 's/.* v=([0-9]+)\..*/\1/p')
	[[ -n $major ]] && ((major >= 7))
}

redis_install() {
	redis_version_ok || apt_install "Redis 7 or later" redis-server
	redis_version_ok || die "Redis 7 or later is missing: the system's package is older; start a Docker engine"
}

redis_pid() {
	local pid
	pid=$(cat "$STATE/redis/pid" 2>/dev/null) || return 1
	is_process "$pid" "$STATE/redis/redis.conf" && echo "$pid"
}

# redis_asked PORT COMMAND: the first two lines of the reply. Over the socket itself, so that no redis-cli is needed.
redis_asked() {
	(
		exec 2>/dev/null
		exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
		printf '%s\r\nPING\r\n' "$2" >&3 || exit 1
		read -r -t 3 line <&3 || exit 1
		echo "$line"
		read -r -t 3 line <&3 || exit 1
		echo "$line"
	)
}

# While it loads its data Redis answers -LOADING.
redis_healthy() { [[ $(redis_asked "$IDEM_REDIS_PORT" PING || true) == +PONG* ]]; }

# redis_conf PORT DIRECTORY: the configuration of a server with its data there.
redis_conf() {
	local setting
	echo "bind 127.0.0.1"
	echo "port $1"
	echo "dir \"$2\""
	echo 'save ""'
	# The path in the process title is how redis_pid knows its own.
	echo 'proc-title-template "{title} {listen-addr} {config-file}"'
	for setting in "${REDIS_SETTINGS[@]}"; do
		echo "$setting"
	done
}

redis_start() {
	local dir
	dir=$(service_dir redis)
	mkdir -p "$dir/data"
	redis_conf "$IDEM_REDIS_PORT" "$dir/data" >"$dir/redis.conf"
	detach "$dir/log" redis-server "$dir/redis.conf"
	echo "$!" >"$dir/pid"
}

redis_log() { tail -n 20 "$STATE/redis/log"; }
redis_stop() { kill -KILL "$1"; }
redis_remove() { :; }

# --- Redis Cluster ---------------------------------------------------------------------------------------------------

# Three masters without replicas: what matters to a store is that keys live on several servers, and move.

redis_cluster_port() { echo "$IDEM_REDIS_CLUSTER_PORT"; }
redis_cluster_ports() { seq "$IDEM_REDIS_CLUSTER_PORT" "$IDEM_REDIS_CLUSTER_LAST_PORT"; }
redis_cluster_nodes() { redis_cluster_ports | sed 's/^/127.0.0.1:/'; }
redis_cluster_env() { echo "REDIS_CLUSTER=$(redis_cluster_nodes | paste -sd,)"; }

redis_cluster_install() {
	redis_install
	command -v redis-cli >/dev/null || apt_install "redis-cli" redis-tools
}

# One process leads the group of the three servers: none is left if one ends.
redis_cluster_pid() {
	local pid
	pid=$(cat "$STATE/redis_cluster/pid" 2>/dev/null) || return 1
	is_process "$pid" "$STATE/redis_cluster/" && echo "$pid"
}

redis_cluster_healthy() {
	local port
	for port in $(redis_cluster_ports); do
		[[ $(redis_asked "$port" 'CLUSTER INFO' || true) == *cluster_state:ok* ]] || return 1
	done
}

redis_cluster_start() {
	local dir port node
	for port in $(seq $((IDEM_REDIS_CLUSTER_PORT + 1)) $((IDEM_REDIS_CLUSTER_PORT + 5))); do
		! tcp_open "$port" || die "port $port is held by something else: set IDEM_REDIS_CLUSTER_PORT to the first of six free ones"
	done
	dir=$(service_dir redis_cluster)
	[[ -e $dir/formed ]] || rm -rf "$dir"/node.* # half a cluster cannot be made whole: begun again
	for port in $(redis_cluster_ports); do
		node=$dir/node.$port
		mkdir -p "$node"
		{
			redis_conf "$port" "$node"
			echo "cluster-enabled yes"
			echo "cluster-port $((port + 3))"
		} >"$node/redis.conf"
	done
	# shellcheck disable=SC2016 # its own arguments
	detach "$dir/log" bash -c 'for conf; do redis-server "$conf" & done; wait -n; kill -KILL 0' redis_cluster "$dir"/node.*/redis.conf
	echo "$!" >"$dir/pid"
	[[ -e $dir/formed ]] || redis_cluster_form "$dir"
}

redis_cluster_form() {
	local dir=$1 port i
	for port in $(redis_cluster_ports); do
		for ((i = 0; i < 100; i++)); do
			[[ $(redis_asked "$port" PING || true) != +PONG* ]] || break
			sleep 0.1
		done
	done
	# shellcheck disable=SC2046 # one word a node
	redis-cli --cluster create $(redis_cluster_nodes) --cluster-yes </dev/null >"$dir/create.log" 2>&1 9>&- || {
		redis_cluster_log >&2
		die "the Redis Cluster could not be formed: see $dir/create.log"
	}
	: >"$dir/formed"
}

redis_cluster_log() { tail -n 20 "$STATE/redis_cluster/log" "$STATE/redis_cluster/create.log" 2>/dev/null; }
redis_cluster_remove() { :; }

redis_cluster_stop() {
	local port
	kill -KILL -- "-$1"
	for port in $(redis_cluster_ports); do # the leader may be gone before the others
		wait_gone 0 "$STATE/redis_cluster" "$port"
	done
}

# --- MariaDB ---------------------------------------------------------------------------------------------------------

mariadb_port() { echo "$IDEM_MARIADB_PORT"; }
mariadb_env() { echo "IDEM_MARIADB_DSN='root:idem@tcp(127.0.0.1:$IDEM_MARIADB_PORT)/'"; }

mariadb_install() {
	if ! command -v mariadbd >/dev/null || ! command -v mariadb-install-db >/dev/null; then
		apt_install "MariaDB 10.6 or later" mariadb-server mariadb-client
	fi
}

# mariadb_home: as pg_home. A process that began as root reads the path before it changes the user, and its user must too.
mariadb_home() { cat "$STATE/mariadb/where" 2>/dev/null; }

mariadb_pid() {
	local home pid
	home=$(mariadb_home) || return 1
	pid=$(cat "$STATE/mariadb/pid" 2>/dev/null) || return 1
	is_process "$pid" "$home/data" && echo "$pid"
}

mariadb_healthy() {
	command -v mariadb >/dev/null || return 1
	[[ $(MYSQL_PWD=idem mariadb --no-defaults -N -B --connect-timeout=3 -h 127.0.0.1 -P "$IDEM_MARIADB_PORT" -u root \
		-e 'SELECT 1' 2>/dev/null) == 1 ]]
}

mariadb_start() {
	local dir home setting user=() options=()
	dir=$(service_dir mariadb)
	home=$(mariadb_home) || home=
	if [[ -z $home ]]; then
		home=$dir/home
		mkdir -p "$home"
		if ((EUID == 0)); then
			chown mysql "$home"
			if ! (cd / && runuser -u mysql -- test -w "$home"); then
				rmdir "$home"
				home=$(mktemp -d /var/lib/idem-mariadb.XXXXXX)
				chown mysql "$home"
			fi
		fi
	fi
	((EUID != 0)) || user=(--user=mysql)
	if [[ ! -d $home/data/mysql || ! -e $dir/where ]]; then
		rm -rf "$home/data"
		mariadb-install-db --no-defaults "${user[@]}" --datadir="$home/data" --skip-test-db \
			--auth-root-authentication-method=normal </dev/null >"$dir/install.log" 2>&1 9>&- ||
			die "mariadb-install-db failed: see $dir/install.log"
	fi
	# Whoever runs as root may log in without a host name: the file gives that root a password, each time.
	printf "ALTER USER root@localhost IDENTIFIED BY 'idem';\nCREATE OR REPLACE USER root@'127.0.0.1' IDENTIFIED BY 'idem';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n" >"$home/init.sql"
	chmod 644 "$home/init.sql"
	for setting in "${MARIADB_SETTINGS[@]}"; do
		options+=("--$setting")
	done
	detach "$dir/log" mariadbd --no-defaults "${user[@]}" --datadir="$home/data" --port="$IDEM_MARIADB_PORT" \
		--bind-address=127.0.0.1 --socket="$home/data/sock" --pid-file="$home/data/pid" --init-file="$home/init.sql" \
		"${options[@]}"
	echo "$!" >"$dir/pid"
	echo "$home" >"$dir/where"
}

mariadb_log() { tail -n 20 "$STATE/mariadb/log"; }
mariadb_stop() { kill -KILL "$1"; }

mariadb_remove() {
	local home
	home=$(mariadb_home) || return 0
	case $home in
	/var/lib/idem-mariadb.*) rm -rf -- "$home" ;;
	esac
}

# --- Java and Maven --------------------------------------------------------------------------------------------------

# A JVM lives for minutes, and shares two processors with the tests: the second compiler and parallel collectors take more
# than they give.
JVM=(-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData)

java_bin() {
	local java major
	for java in "${JAVA_HOME:-/nonexistent}/bin/java" "$(command -v java || true)"; do
		[[ -x $java ]] || continue
		major=$("$java" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p')
		if [[ -n $major ]] && ((major >= 17)); then
			echo "$java"
			return
		fi
	done
	return 1
}

# maven_libs SERVICE: where its jars are. The name has the pom's checksum in it: another pom is another folder.
maven_libs() { echo "$CACHE/$1-$(cksum <"$HERE/$1/pom.xml" | cut -d' ' -f1)"; }

# maven_install SERVICE NAME: fetches what its pom.xml names, once.
maven_install() {
	local libs tmp try
	java_bin >/dev/null || apt_install "Java 17 or later" default-jre-headless
	java_bin >/dev/null || die "Java 17 or later is missing: the system's package is older; start a Docker engine"
	libs=$(maven_libs "$1")
	[[ ! -d $libs ]] || return 0
	command -v mvn >/dev/null || apt_install "Maven" maven
	say "fetching $2 into $libs (once)"
	tmp=$libs.tmp
	for try in 1 2 3; do
		rm -rf "$tmp"
		if (cd "$HERE/$1" && mvn -q -B dependency:copy-dependencies -DoutputDirectory="$tmp") \
			</dev/null >"$CACHE/run/mvn.log" 2>&1 9>&-; then
			mv "$tmp" "$libs" # complete or absent
			return 0
		fi
		((try == 3)) || sleep 3
	done
	tail -n 20 "$CACHE/run/mvn.log" >&2
	die "Maven could not fetch $2: see $CACHE/run/mvn.log"
}

# --- DynamoDB Local --------------------------------------------------------------------------------------------------

# In memory, so that a restart forgets its tables: what the tests need of one is that the server is gone for a while.

dynamodb_port() { echo "$IDEM_DYNAMODB_PORT"; }
dynamodb_env() { echo "DYNAMODB_URL=http://127.0.0.1:$IDEM_DYNAMODB_PORT"; }
dynamodb_install() { maven_install dynamodb "DynamoDB Local"; }

dynamodb_pid() {
	local pid
	pid=$(cat "$STATE/dynamodb/pid" 2>/dev/null) || return 1
	is_process "$pid" "-Didem.services=$STATE/dynamodb" && echo "$pid"
}

# Whatever is asked without a signature is refused, by DynamoDB and in its words.
dynamodb_healthy() {
	(
		exec 2>/dev/null
		exec 3<>"/dev/tcp/127.0.0.1/$IDEM_DYNAMODB_PORT" || exit 1
		printf 'GET / HTTP/1.0\r\n\r\n' >&3 || exit 1
		timeout 3 cat <&3 | grep -q MissingAuthenticationToken
	)
}

dynamodb_start() {
	local dir java libs
	dir=$(service_dir dynamodb)
	java=$(java_bin)
	libs=$(maven_libs dynamodb)
	# The first property is how dynamodb_pid knows its own. -sharedDb: one set of tables, whatever credentials a client has.
	# In its own directory: it leaves a log4j file where it is started.
	(
		cd "$dir"
		detach "$dir/log" "$java" "${JVM[@]}" -Didem.services="$dir" -Xms64m -Xmx256m -Djava.library.path="$libs" -cp "$libs/*" \
			com.amazonaws.services.dynamodbv2.local.main.ServerRunner -inMemory -sharedDb -disableTelemetry \
			-port "$IDEM_DYNAMODB_PORT"
		echo "$!" >"$dir/pid"
	)
}

dynamodb_log() { tail -n 20 "$STATE/dynamodb/log"; }
dynamodb_stop() { kill -KILL "$1"; }
dynamodb_remove() { :; }

# --- Kafka -----------------------------------------------------------------------------------------------------------

kafka_port() { echo "$IDEM_KAFKA_PORT"; }
kafka_env() {
	echo "KAFKA_BROKERS=127.0.0.1:$IDEM_KAFKA_PORT"
	echo "KAFKA_LOGIN_BROKERS=localhost:$IDEM_KAFKA_LOGIN_PORT"
	echo "KAFKA_MUTUAL_BROKERS=localhost:$IDEM_KAFKA_MUTUAL_PORT"
	echo "KAFKA_KEYS='$(kafka_keys "$IDEM_KAFKA_PORT")'"
}

# kafka_keys PORT: the directory of the keys of the Kafka on this port, the same for all clones.
kafka_keys() { echo "$CACHE/run/kafka-keys-$1"; }

# kafka_make_keys: a CA, a certificate of the server, and a key that signs tokens. They guard nothing but this Kafka.
kafka_make_keys() {
	local keys
	keys=$(kafka_keys "$IDEM_KAFKA_PORT")
	[[ ! -d $keys ]] || return 0
	command -v openssl >/dev/null || apt_install openssl openssl
	rm -rf "$keys.new"
	mkdir -p "$keys.new"
	(cd "$keys.new" && make_keys) >"$CACHE/run/openssl.log" 2>&1 </dev/null || {
		tail -n 20 "$CACHE/run/openssl.log" >&2
		die "openssl could not make keys: see $CACHE/run/openssl.log"
	}
	mv "$keys.new" "$keys" # complete or absent
}

make_keys() {
	local name days=3650 point
	for name in ca server jwt; do
		openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$name.key" || return
	done
	printf '[req]\ndistinguished_name=dn\nx509_extensions=ca\n[dn]\n[ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n' >ca.conf
	openssl req -x509 -new -config ca.conf -key ca.key -subj /CN=idem-test-ca -days "$days" -out ca.pem || return
	printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >server.conf
	openssl req -new -config ca.conf -key server.key -subj /CN=idem-test-kafka -out server.csr || return
	openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -set_serial 1 -days "$days" -extfile server.conf -out server.crt || return
	cat server.key server.crt >server.pem
	# The public key in DER ends with the two coordinates of the point, 32 bytes each.
	openssl ec -in jwt.key -pubout -outform DER -out jwt.der || return
	point=$(tail -c 64 jwt.der | head -c 32 | base64url)
	printf '{"keys":[{"kty":"EC","crv":"P-256","use":"sig","alg":"ES256","kid":"idem-test","x":"%s","y":"%s"}]}\n' \
		"$point" "$(tail -c 32 jwt.der | base64url)" >jwks.json
	chmod 644 ./* # a container has another user
}

base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }

# kafka_secure HOST KEYS: the settings of the listeners with log-in and certificate; they listen on HOST and see KEYS there.
kafka_secure() {
	sed -e '/^#/d' -e '/^$/d' -e "s|@HOST@|$1|g" -e "s|@KEYS@|$2|g" -e "s|@PORT@|$IDEM_KAFKA_PORT|g" \
		-e "s|@LOGIN_PORT@|$IDEM_KAFKA_LOGIN_PORT|g" -e "s|@MUTUAL_PORT@|$IDEM_KAFKA_MUTUAL_PORT|g" \
		-e "s|@CONTROLLER_PORT@|$IDEM_KAFKA_CONTROLLER_PORT|g" "$HERE/kafka/secure.properties.in"
}

# kafka_jwks KEYS: the option without which Kafka reads no JWKS.
kafka_jwks() { echo "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://$1/jwks.json"; }

# kafka_libs: where the jars are.
kafka_libs() { maven_libs kafka; }
kafka_install() { maven_install kafka Kafka; }

kafka_pid() {
	local pid
	pid=$(cat "$STATE/kafka/pid" 2>/dev/null) || return 1
	is_process "$pid" "$STATE/kafka/server.properties" && echo "$pid"
}

# An ApiVersions request by hand (a JVM would take seconds): length 10, key 18, version 0, correlation 1, no client ID.
# The broker answers once it accepts clients; the reply repeats the correlation number.
kafka_healthy() {
	local reply
	reply=$(
		exec 2>/dev/null
		exec 3<>"/dev/tcp/127.0.0.1/$IDEM_KAFKA_PORT" || exit 1
		printf '\0\0\0\12\0\22\0\0\0\0\0\1\377\377' >&3 || exit 1
		timeout 3 head -c 8 <&3 | od -An -tx1 | tr -d ' \n'
	) || return 1
	[[ ${reply:8:8} == 00000001 ]]
}

kafka_start() {
	local dir java libs keys name port
	for name in CONTROLLER LOGIN MUTUAL; do
		port=IDEM_KAFKA_${name}_PORT
		! tcp_open "${!port}" || die "port ${!port} is held by something else: set $port to a free one"
	done
	kafka_make_keys
	keys=$(kafka_keys "$IDEM_KAFKA_PORT")
	dir=$(service_dir kafka)
	java=$(java_bin)
	libs=$(kafka_libs)
	sed -e "s|@PORT@|$IDEM_KAFKA_PORT|g" -e "s|@CONTROLLER_PORT@|$IDEM_KAFKA_CONTROLLER_PORT|g" \
		-e "s|@DATA@|$dir/data|g" "$HERE/kafka/server.properties.in" >"$dir/server.properties"
	kafka_secure 127.0.0.1 "$keys" >>"$dir/server.properties" # the last line counts
	[[ -z ${IDEM_KAFKA_SETTINGS:-} ]] || cat "$IDEM_KAFKA_SETTINGS" >>"$dir/server.properties"
	local jvm=("$java" "${JVM[@]}" -Dkafka.logs.dir="$dir/logs" -Dlog4j2.configurationFile="$HERE/kafka/log4j2.properties"
		-Djava.awt.headless=true "$(kafka_jwks "$keys")" -cp "$libs/*")
	if [[ ! -e $dir/data/meta.properties ]]; then
		rm -rf "$dir/data"
		"${jvm[@]}" kafka.tools.StorageTool format -t "idem-test-cluster-00000" -c "$dir/server.properties" \
			</dev/null >"$dir/format.log" 2>&1 9>&- || die "Kafka's storage could not be formatted: see $dir/format.log"
	fi
	detach "$dir/log" "${jvm[@]}" -Xms256m -Xmx512m kafka.Kafka "$dir/server.properties"
	echo "$!" >"$dir/pid"
}

kafka_log() { tail -n 20 "$STATE/kafka/log" "$STATE/kafka/logs/server.log" 2>/dev/null; }
kafka_stop() { kill -KILL "$1"; }
kafka_remove() { rm -rf -- "$(kafka_keys "$(cat "$STATE/kafka/port" 2>/dev/null || echo "$IDEM_KAFKA_PORT")")"; }

# kafka_tool NAME ARGUMENT...: what /opt/kafka/bin/kafka-NAME.sh is in a distribution.
kafka_tool() {
	local class
	case $1 in
	topics) class=TopicCommand ;;
	acls) class=AclCommand ;;
	consumer-groups) class=consumer.group.ConsumerGroupCommand ;;
	console-producer) class=ConsoleProducer ;;
	console-consumer) class=consumer.ConsoleConsumer ;;
	*) die "kafka: no tool $1 here: topics, acls, consumer-groups, console-producer or console-consumer" ;;
	esac
	shift
	kafka_install
	# The tools' logging goes where nobody looks for it; what they have to say they print.
	exec "$(java_bin)" "${JVM[@]}" -Xmx256m -Dkafka.logs.dir="$CACHE/run/kafka-tools" \
		-Dlog4j2.configurationFile="$HERE/kafka/log4j2.properties" -cp "$(kafka_libs)/*" \
		"org.apache.kafka.tools.$class" --bootstrap-server "127.0.0.1:$IDEM_KAFKA_PORT" "$@"
}

# --- native ----------------------------------------------------------------------------------------------------------

# owner SERVICE: the file that tells other clones which state directory serves the port.
owner() { echo "$CACHE/run/$1-$("$1_port")"; }

native_start() {
	local service=$1
	"${service}_start"
	"${service}_port" >"$STATE/$service/port"
	echo "$STATE" >"$(owner "$service")"
}

# signal NAME PID: to the process and its children. A process that is frozen makes no children.
signal() {
	local child
	kill "-$1" "$2" 2>/dev/null || return 0 # it has ended
	for child in $(ps -o pid= --ppid "$2"); do
		kill "-$1" "$child" 2>/dev/null || true
	done
}

# crash SERVICE: stops it if it runs, without a chance to tidy up.
crash() {
	local service=$1 pid
	pid=$("${service}_pid") || return 0
	signal CONT "$pid" # a frozen process obeys KILL only
	"${service}_stop" "$pid"
	wait_gone "$pid" "$STATE/$service" "$(cat "$STATE/$service/port")"
}

native_wait() {
	local service=$1 i
	for ((i = 0; i < 600; i++)); do
		"${service}_healthy" && return 0
		if [[ -e $STATE/$service/.idem-services ]] && ! "${service}_pid" >/dev/null; then
			"${service}_log" >&2 || true
			die "$service ended while starting (log above)"
		fi
		sleep 0.1
	done
	"${service}_log" >&2 || true
	die "$service was not healthy within 60 s (log above)"
}

native_up() {
	local service port start=()
	for service in flock setsid timeout; do
		command -v "$service" >/dev/null || die "$service is missing: start a Docker engine, or install util-linux and coreutils"
	done
	# Ports first, then what is missing, then the start: half a set of services helps nobody.
	for service in "${SERVICES[@]}"; do
		port=$("${service}_port")
		if "${service}_pid" >/dev/null; then
			[[ $(cat "$STATE/$service/port") == "$port" ]] ||
				die "$service runs from here on port $(cat "$STATE/$service/port"), not $port: services.sh down first"
		elif "${service}_healthy"; then
			say "$service on port $port was started elsewhere ($(cat "$(owner "$service")" 2>/dev/null || echo unknown)) and is used"
		elif tcp_open "$port"; then
			die "port $port is held by something that is not our $service: set IDEM_$(upper "$service")_PORT to a free one"
		else
			start+=("$service")
		fi
	done
	for service in ${start[@]+"${start[@]}"}; do
		"${service}_install"
	done
	for service in ${start[@]+"${start[@]}"}; do
		native_start "$service"
	done
	for service in "${SERVICES[@]}"; do
		native_wait "$service"
	done
}

native_down() {
	local service
	for service in "${SERVICES[@]}"; do
		[[ -e $STATE/$service/.idem-services ]] || continue
		crash "$service"
		if [[ $(cat "$(owner "$service")" 2>/dev/null) == "$STATE" ]]; then
			rm -f "$(owner "$service")"
		fi
		"${service}_remove"
		rm -rf -- "${STATE:?}/$service"
	done
	rmdir "$STATE" 2>/dev/null || true
}

native_status() {
	local service pid port all=0
	for service in "${SERVICES[@]}"; do
		port=$("${service}_port")
		if ! "${service}_healthy"; then
			all=1
			printf '%-13s down     127.0.0.1:%s\n' "$service" "$port"
		elif pid=$("${service}_pid"); then
			printf '%-13s up       127.0.0.1:%s  pid %s\n' "$service" "$port" "$pid"
		else
			printf '%-13s up       127.0.0.1:%s  started elsewhere (%s)\n' "$service" "$port" \
				"$(cat "$(owner "$service")" 2>/dev/null || echo unknown)"
		fi
	done
	return "$all"
}

# adopt SERVICE: stop, start and restart act on whichever clone's instance serves the port: a test run from a second
# clone uses that one.
adopt() {
	local other
	[[ ! -e $STATE/$1/.idem-services ]] || return 0
	other=$(cat "$(owner "$1")" 2>/dev/null) || die "$1 was not started by services.sh: up first"
	[[ -e $other/$1/.idem-services ]] || die "$1 was not started by services.sh: up first"
	STATE=$other
}

native_stop() {
	adopt "$1"
	crash "$1"
}

native_pause() {
	signal_running STOP "$1"
}

native_resume() {
	signal_running CONT "$1"
	native_wait "$1"
}

# signal_running NAME SERVICE: sends a signal to a service that runs.
signal_running() {
	local pid
	adopt "$2"
	pid=$("$2_pid") || die "$2 does not run: services.sh start $2 first"
	signal "$1" "$pid"
}

native_restart() { # start and restart
	adopt "$1"
	"$1_pid" >/dev/null || native_start "$1"
	native_wait "$1"
}

# --- docker ----------------------------------------------------------------------------------------------------------

# kafka_override_file: what this run adds to docker-compose.yml.
kafka_override_file() { echo "$CACHE/run/kafka-$IDEM_KAFKA_PORT.yml"; }

compose() {
	local file
	file=$(kafka_override_file)
	mkdir -p "$CACHE/run"
	kafka_override >"$file"
	docker compose -f "$ROOT/docker-compose.yml" -f "$file" "$@"
}

# kafka_override: ports, keys and settings of the further listeners, and the settings of IDEM_KAFKA_SETTINGS, as the image wants
# them. Its health check knows no log-in, which those settings may want.
kafka_override() {
	local inside=/etc/idem-keys
	printf 'services:\n  kafka:\n'
	printf '    volumes: ["%s:%s:ro"]\n' "$(kafka_keys "$IDEM_KAFKA_PORT")" "$inside"
	printf '    ports: ["127.0.0.1:%s:%s", "127.0.0.1:%s:%s"]\n' "$IDEM_KAFKA_LOGIN_PORT" "$IDEM_KAFKA_LOGIN_PORT" \
		"$IDEM_KAFKA_MUTUAL_PORT" "$IDEM_KAFKA_MUTUAL_PORT"
	[[ -z ${IDEM_KAFKA_SETTINGS:-} ]] || printf '    healthcheck: {disable: true}\n'
	printf '    environment:\n'
	printf "      KAFKA_OPTS: '%s'\n" "$(kafka_jwks "$inside")"
	{
		kafka_secure 0.0.0.0 "$inside"
		[[ -z ${IDEM_KAFKA_SETTINGS:-} ]] || cat "$IDEM_KAFKA_SETTINGS"
	} | kafka_environment
}

# kafka_environment: properties, of two with the same name the last one, as variables of the image.
kafka_environment() {
	local name value names=() values=() i
	while IFS='=' read -r name value; do
		[[ -n $name ]] || continue
		name=${name//_/__} name=${name//-/___} name=${name//./_}
		for ((i = 0; i < ${#names[@]}; i++)); do
			[[ ${names[i]} != "$name" ]] || break
		done
		names[i]=$name values[i]=$value
	done
	for ((i = 0; i < ${#names[@]}; i++)); do
		value=${values[i]//\'/\'\'}
		printf "      KAFKA_%s: '%s'\n" "$(upper "${names[i]}")" "${value//\$/\$\$}"
	done
}

docker_up() {
	kafka_make_keys
	# A project that runs already was started elsewhere: it is used, and not ours to remove.
	if [[ -n $(compose ps -q) && ! -e $STATE/compose ]]; then
		compose up --wait --quiet-pull "${SERVICES[@]}" >&2
		return
	fi
	mkdir -p "$STATE"
	: >"$STATE/compose"
	compose up --wait --quiet-pull "${SERVICES[@]}" >&2
}

docker_down() {
	[[ -e $STATE/compose ]] || return 0
	compose down -v >&2
	rm -f "$STATE/compose" "$(kafka_override_file)"
	rm -rf -- "$(kafka_keys "$IDEM_KAFKA_PORT")"
	rmdir "$STATE" 2>/dev/null || true
}

docker_status() {
	local service all=0
	for service in "${SERVICES[@]}"; do
		if [[ $(compose ps --format '{{.Health}}' "$service" 2>/dev/null) == healthy ]]; then
			printf '%-13s up       127.0.0.1:%s  docker compose\n' "$service" "$("${service}_port")"
		else
			all=1
			printf '%-13s down     127.0.0.1:%s\n' "$service" "$("${service}_port")"
		fi
	done
	return "$all"
}

docker_stop() {
	case $1 in
	postgres) compose kill -s SIGQUIT postgres >&2 ;; # immediate shutdown
	*) compose kill -s SIGKILL "$1" >&2 ;;
	esac
	local i
	for ((i = 0; i < 100; i++)); do # kill does not wait, and `up` would take what still runs for healthy
		[[ -n $(compose ps -q --status running "$1") ]] || return 0
		sleep 0.1
	done
	die "$1 did not end"
}

docker_pause() { compose pause "$1" >&2; }

docker_resume() {
	compose unpause "$1" >&2
	compose up --wait --no-recreate "$1" >&2
}

docker_restart() { compose up --wait --no-recreate "$1" >&2; }

docker_postgres_tool() {
	local tool=$1
	shift
	exec docker compose -f "$ROOT/docker-compose.yml" exec -T postgres "$tool" -U idem -d idem "$@"
}

docker_kafka_tool() {
	local tool=$1
	shift
	exec docker compose -f "$ROOT/docker-compose.yml" exec -T kafka "/opt/kafka/bin/kafka-$tool.sh" \
		--bootstrap-server "127.0.0.1:$IDEM_KAFKA_PORT" "$@"
}

# --- commands --------------------------------------------------------------------------------------------------------

upper() { tr '[:lower:]' '[:upper:]' <<<"$1"; }

# What was started with one engine is stopped with it, even if the other has appeared since.
engine() {
	local service
	if [[ -n ${IDEM_SERVICES_ENGINE:-} ]]; then
		case $IDEM_SERVICES_ENGINE in
		docker | native) echo "$IDEM_SERVICES_ENGINE" ;;
		*) die "IDEM_SERVICES_ENGINE is docker or native, not $IDEM_SERVICES_ENGINE" ;;
		esac
		return
	fi
	for service in "${SERVICES[@]}"; do
		if [[ -e $STATE/$service/.idem-services ]]; then
			echo native
			return
		fi
	done
	if command -v docker >/dev/null && docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; then
		echo docker
	else
		echo native
	fi
}

usage() {
	sed -nE '/^#   services\.sh/s/^# {3}//p' "${BASH_SOURCE[0]}" >&2
	exit 2
}

known() {
	local service
	for service in "${SERVICES[@]}"; do
		[[ $service != "${1:-}" ]] || return 0
	done
	die "which service? one of: ${SERVICES[*]}"
}

cmd_env() {
	local service
	for service in "${SERVICES[@]}"; do
		"${service}_env"
	done
}

# started: what this clone has started and not removed, one name a line. With a Docker engine that is one thing: compose.
started() {
	local service
	for service in "${SERVICES[@]}"; do
		[[ ! -e $STATE/$service/.idem-services ]] || echo "$service"
	done
	[[ ! -e $STATE/compose ]] || echo compose
}

# run_down BEFORE: down of what `run` started. BEFORE is the output of `started` before that: these services stay, with
# their data.
run_down() {
	local engine service mine=()
	lock
	engine=$(engine) # looks at all of them
	if [[ $engine == docker ]]; then
		grep -qx compose <<<"$1" || docker_down
		return
	fi
	for service in "${SERVICES[@]}"; do
		grep -qx "$service" <<<"$1" || mine+=("$service")
	done
	((${#mine[@]} > 0)) || return 0
	SERVICES=("${mine[@]}")
	native_down
}

cmd_run() {
	(($# > 0)) || usage
	if ! "$HERE/services.sh" status >/dev/null 2>&1; then
		BEFORE=$(started) # not local: the trap reads it
		# Also when `up` fails half-way, and when COMMAND does or is interrupted. In a program of its own: in a trap, a
		# plain `return` has the status of what came before the trap.
		trap '"$HERE/services.sh" run_down "$BEFORE"' EXIT
		trap 'exit 130' INT TERM
		"$HERE/services.sh" up
	fi
	set -a
	eval "$(cmd_env)"
	set +a
	"$@"
}

# cmd_memory: a file system in memory does not wait for a disk. A crash of a service loses nothing there either: what
# the service has written is the system's. Benchmarks measure the disk too, and stay there.
cmd_memory() {
	local need=$((8 << 20)) room available # KiB
	room=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 {print $4}') || room=0
	available=$(awk '$1 == "MemAvailable:" {print $2}' /proc/meminfo 2>/dev/null) || available=0
	if ((${room:-0} >= need && ${available:-0} >= 3 * need / 2)); then
		echo "/dev/shm/idem-$(id -u)-$(cksum <<<"$ROOT" | cut -d' ' -f1)"
	else
		echo "$STATE"
	fi
}

(($# > 0)) || usage
command=$1
shift
case $command in
env) cmd_env | sed "s/^/export /" ;;
run) cmd_run "$@" ;;
started) started ;; # these two are for `run` and .ci/run
run_down) run_down "$1" ;;
compose) kafka_override ;;
memory) cmd_memory ;;
status) "$(engine)_status" ;;
up | down)
	lock
	engine=$(engine) # looks at all of them
	if [[ $command == up ]] && (($# > 0)); then
		for service; do
			known "$service"
		done
		SERVICES=("$@")
	fi
	"${engine}_$command"
	;;
pause | resume)
	known "${1:-}"
	"$(engine)_$command" "$1"
	;;
stop | start | restart)
	known "${1:-}"
	lock
	engine=$(engine)
	[[ $command == start ]] || "${engine}_stop" "$1"
	[[ $command == stop ]] || "${engine}_restart" "$1"
	;;
kafka | postgres)
	(($# > 0)) || usage
	[[ $command == kafka || $1 == pg_dump || $1 == psql ]] || die "postgres: no tool $1 here: pg_dump or psql"
	case $(engine) in
	docker) "docker_${command}_tool" "$@" ;;
	*) "${command}_tool" "$@" ;;
	esac
	;;
*) usage ;;
esac
