#!/usr/bin/env bats
# psql, redis-cli and mariadb, plain and in TLS, against their own servers: half a result and then silence, a long query, a server that is
# restarted between two queries (A8 A12 A14 C1 C5).
load ../lib/common
load ../lib/services
load ../lib/tls

big=2000000 # octets of a result

# A row a database: its server begins, and begins again on its port; its client reads what to ask from stdin; how to ask for a little, for much,
# and for something that takes a second.
postgres_begin() {
	if [ -z "${postgres_port-}" ]; then
		postgres_start
		install -m 600 -o "$(stat -c %U "$postgres_home/data")" "$certificate.key" "$postgres_home/data/server.key"
		install -m 644 "$certificate.crt" "$postgres_home/data/server.crt"
		echo "ssl = on" >>"$postgres_home/data/postgresql.auto.conf"
		postgres_end
	fi
	start postgres bare setpriv --reuid postgres --regid postgres --clear-groups \
		"$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)/postgres" -D "$postgres_home/data" -h 127.0.0.1 -p "$postgres_port" -k "$postgres_home" -F
	wait_until postgres_answers
	server_port=$postgres_port
}
postgres_end() {
	kill -INT "$postgres_pid"
	wait "$postgres_pid" || true
}
postgres_ask() { # HOW PORT
	local mode=disable
	[ -z "$tls" ] || mode=require
	"$1" psql -w -X -At -d "host=127.0.0.1 port=$2 user=tester dbname=postgres sslmode=$mode" 2>&1
}
postgres_little='select 40 + 2;' postgres_much="select repeat('x', $big);" postgres_long='select pg_sleep(1), 40 + 2;'

redis_begin() {
	redis_port=${redis_port:-$(free_port)} redis_tls_port=${redis_tls_port:-$(free_port)}
	start redis bare redis-server --port "$redis_port" --tls-port "$redis_tls_port" --tls-cert-file "$certificate.crt" --tls-key-file "$certificate.key" \
		--tls-auth-clients no --bind 127.0.0.1 --save '' --dir "$dir" --enable-debug-command yes
	up redis "$redis_pid" "$redis_port"
	up redis "$redis_pid" "$redis_tls_port"
	bare redis-cli -p "$redis_port" setrange much $big x >"$dir/redis.set"
	if [ -n "$tls" ]; then server_port=$redis_tls_port; else server_port=$redis_port; fi
}
redis_end() {
	kill "$redis_pid"
	wait "$redis_pid" || true
}
redis_ask() { "$1" redis-cli -p "$2" ${tls:+--tls --insecure} 2>&1; }
redis_little='echo 42' redis_much='get much' redis_long='debug sleep 1'

mariadb_begin() {
	local data=$BATS_FILE_TMPDIR/mariadb as=()
	[ "$(id -u)" != 0 ] || as=(--user=root)
	mariadb_port=${mariadb_port:-$(free_port)}
	[ -d "$data" ] || bare mariadb-install-db --no-defaults ${as[@]+"${as[@]}"} --datadir="$data" --skip-test-db >"$dir/install.log" 2>&1 || fail "$(cat "$dir/install.log")"
	start mariadb bare mariadbd --no-defaults ${as[@]+"${as[@]}"} --datadir="$data" --socket="$dir/mariadb.sock" --port="$mariadb_port" \
		--bind-address=127.0.0.1 --skip-grant-tables --ssl-cert="$certificate.crt" --ssl-key="$certificate.key"
	up mariadb "$mariadb_pid" "$mariadb_port"
	server_port=$mariadb_port
}
mariadb_end() {
	kill "$mariadb_pid"
	wait "$mariadb_pid" || true
}
mariadb_ask() {
	local mode=--skip-ssl
	[ -z "$tls" ] || mode=--ssl
	"$1" mariadb --no-defaults -f -n -N -B -h 127.0.0.1 -P "$2" $mode 2>&1
}
mariadb_little='select 40 + 2;' mariadb_much="select repeat('x', $big);" mariadb_long='select sleep(1), 40 + 2;'

begins() { # DATABASE [tls]
	database=$1 tls=${2-}
	make_certificate
	"${database}_begin"
}
words() { local name=${database}_$1; printf '%s\n' "${!name}"; }
asks() { "${database}_ask" "$@"; }

# A forwarder in front of the server; its port in valve_port.
valve() {
	mkfifo "$dir/valve.in"
	python3 "$root/tests/servers/valve.py" "$server_port" <>"$dir/valve.in" >"$dir/valve.log" 2>"$dir/valve.err" 3>&- &
	started+=("$!")
	wait_until peer_is_up valve open "$!"
	valve_port=$(sed -n 's/^open //p' "$dir/valve.log")
}
valve_now() { # open|shut [OCTETS]
	local before
	before=$(grep -c "^$1 " "$dir/valve.log" || true)
	echo "$*" >"$dir/valve.in"
	wait_until peer_has valve "$1" $((before + 1))
}
half_a_result() { # DATABASE [tls]
	local begin took
	begins "$@"
	valve
	[ "$(words much | asks bare "$valve_port" | wc -c)" -gt $big ] || fail "no whole result without us"
	shim_part
	export RESIL_SET='deadline=1500ms;failure_threshold=1;recovery_timeout=5m;recovery_max=5m'
	[ "$(words much | asks under "$valve_port" | wc -c)" -gt $big ] || fail "no whole result under the shim"
	untouched "127.0.0.1:$valve_port"
	valve_now shut $((big / 2))
	begin=$(now_ms)
	words much | asks under "$valve_port" >"$dir/half.out" || true
	took=$(($(now_ms) - begin))
	[ "$(tr -dc x <"$dir/half.out" | wc -c)" -lt $big ] || fail "a whole result came"
	[ "$took" -ge 1500 ] || fail "ended after $took ms"
	within "$took" 2500
	assert_equal "$(failed_by "127.0.0.1:$valve_port" deadline)" 1
	assert_equal "$(destination "127.0.0.1:$valve_port" state)" open
}
long_query() { # DATABASE [tls]
	begins "$@"
	words long | asks bare "$server_port" >"$dir/bare.out"
	shim_part
	export RESIL_SET='deadline=5s;stall_timeout=3s'
	words long | asks under "$server_port" >"$dir/under.out"
	assert_equal "$(sed 's/[0-9.]*s)//' "$dir/under.out")" "$(sed 's/[0-9.]*s)//' "$dir/bare.out")"
	untouched "127.0.0.1:$server_port"
}
# Asked, answered, the server begins anew, asked twice: what the client says.
over_a_restart() { # HOW
	rm -f "$dir/words"
	mkfifo "$dir/words"
	exec 9<>"$dir/words"
	asks "$1" "$server_port" <"$dir/words" >"$dir/$1.out" 9>&- &
	local session=$!
	started+=("$session")
	words little >&9
	wait_until file_has 42 "$dir/$1.out"
	"${database}_end"
	"${database}_begin"
	words little >&9
	words little >&9
	exec 9>&-
	wait "$session" || true
}
restarted() { # DATABASE [tls]
	begins "$@"
	over_a_restart bare
	shim_part
	export RESIL_SET='deadline=2s;answer_timeout=1s;failure_threshold=2'
	over_a_restart under
	assert_equal "$(numberless "$dir/under.out")" "$(numberless "$dir/bare.out")"
	words little | asks under "$server_port" | grep -q 42 || fail "no answer after the restart"
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
}
numberless() { sed -E 's/[Cc]onnection id: +[0-9]+//' "$1"; }

@test "psql: half a result, then silence: ended by the deadline (C1 C5 A14)" { half_a_result postgres; }
@test "psql in TLS: half a result, then silence: ended by the deadline (A9 C1 C5 A14)" { half_a_result postgres tls; }
@test "redis-cli: half a result, then silence: ended by the deadline (C1 C5 A14)" { half_a_result redis; }
@test "redis-cli in TLS: half a result, then silence: ended by the deadline (A9 C1 C5 A14)" { half_a_result redis tls; }
@test "mariadb: half a result, then silence: ended by the deadline (C1 C5 A14)" { half_a_result mariadb; }
@test "mariadb in TLS: half a result, then silence: ended by the deadline (A9 C1 C5 A14)" { half_a_result mariadb tls; }
@test "psql: a long query within its deadline (C1)" { long_query postgres; }
@test "psql in TLS: a long query within its deadline (A9 C1)" { long_query postgres tls; }
@test "redis-cli: a long query within its deadline (C1)" { long_query redis; }
@test "redis-cli in TLS: a long query within its deadline (A9 C1)" { long_query redis tls; }
@test "mariadb: a long query within its deadline (C1)" { long_query mariadb; }
@test "mariadb in TLS: a long query within its deadline (A9 C1)" { long_query mariadb tls; }
@test "psql: its server is restarted between two queries: it says what it says without us, and the circuit stays closed (A7 B20)" { restarted postgres; }
@test "psql in TLS: its server is restarted between two queries (A7 A9)" { restarted postgres tls; }
@test "redis-cli: its server is restarted between two queries (A7)" { restarted redis; }
@test "redis-cli in TLS: its server is restarted between two queries (A7 A9)" { restarted redis tls; }
@test "mariadb: its server is restarted between two queries (A7)" { restarted mariadb; }
@test "mariadb in TLS: its server is restarted between two queries (A7 A9)" { restarted mariadb tls; }
