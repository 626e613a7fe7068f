#!/usr/bin/env bats
# Healthy traffic is never touched: what is idle, one-way, a subscription or merely slow meets no limit and counts as no failure
# (A7 A8 A12 C9).
load ../lib/common
load ../lib/services

tight='answer_timeout=300ms;stall_timeout=300ms;deadline=300ms'
idle=1 # three times every limit, and a little

# Commands to a session, before and after an idle time.
session() { # NAME FIRST SECOND HOW COMMAND...
	local name=$1 first=$2 second=$3 how=$4
	shift 4
	{
		printf '%s\n' "$first"
		sleep $idle
		printf '%s\n' "$second"
	} | "$how" "$@" >"$dir/$name.session" 2>&1
}
redis_session() {
	session redis 'set a first' 'get a' "$1" redis-cli -p "$redis_port" || fail "$(cat "$dir/redis.session")"
	assert_equal "$(tr '\n' ' ' <"$dir/redis.session")" "OK first "
}
@test "a redis session idle for three times every limit, then used (A7 C9)" {
	redis_start redis
	redis_session bare
	shim_part
	export RESIL_SET=$tight
	redis_session under
	untouched "127.0.0.1:$redis_port"
}

postgres_session() {
	session postgres 'select 41 + 1;' 'select 42 + 1;' "$1" psql -w -At -h 127.0.0.1 -p "$postgres_port" -U tester postgres ||
		fail "$(cat "$dir/postgres.session")"
	assert_equal "$(tr '\n' ' ' <"$dir/postgres.session")" "42 43 "
}
@test "a postgres session idle for three times every limit, then used (A7 C9)" {
	postgres_start
	postgres_session bare
	shim_part
	export RESIL_SET=$tight
	postgres_session under
	untouched "127.0.0.1:$postgres_port"
}

@test "a kept HTTP connection idle for three times every limit, then used (A7)" {
	nginx_start upstream bare
	bare python3 "$root/tests/programs/idle.py" http "$upstream_port" $idle
	shim_part
	export RESIL_SET=$tight
	under python3 "$root/tests/programs/idle.py" http "$upstream_port" $idle
	untouched "127.0.0.1:$upstream_port"
	assert_equal "$(destination "127.0.0.1:$upstream_port" calls.success)" 2
}

@test "a websocket idle for three times every limit, then used (A8 C9)" {
	start websocket bare python3 -u "$root/tests/servers/websocket.py"
	wait_until file_has '^[0-9]+$' "$dir/websocket.out"
	websocket_port=$(cat "$dir/websocket.out")
	bare python3 "$root/tests/programs/idle.py" websocket "$websocket_port" $idle
	shim_part
	export RESIL_SET=$tight
	under python3 "$root/tests/programs/idle.py" websocket "$websocket_port" $idle
	untouched "127.0.0.1:$websocket_port"
}

lasts=10 # ten times the deadline
ships() { # HOW PORT
	"$1" python3 "$root/tests/programs/shipper.py" "$2" $lasts
}
subscribes() { # HOW NAME
	local how=$1 name=$2
	start "$name" "$how" redis-cli -p "$redis_port" subscribe news
	wait_until file_has '^1$' "$dir/$name.out"
}
@test "under deadline = 1s log shippers, told (oneway) or known by their silence, and a subscription (stream) run on uncut (A12 C9)" {
	redis_start redis
	peer told 127.0.0.1 hang
	peer unheard 127.0.0.1 hang
	subscribes bare subscriber
	bare redis-cli -p "$redis_port" publish news bare
	wait_until file_has bare "$dir/subscriber.out"
	shim_part
	cat >"$dir/resil.conf" <<-END
		[defaults]
		deadline = 1s
		[destination shipper]
		match = 127.0.0.1:$told_port
		protocol = oneway
		[destination subscription]
		match = 127.0.0.1:$redis_port
		protocol = stream
	END
	export RESIL_CONF=$dir/resil.conf
	subscribes under guarded
	ships under "$told_port" >"$dir/told.lines" 2>&1 &
	told_shipper=$!
	ships under "$unheard_port" >"$dir/unheard.lines" 2>&1 || fail "$(cat "$dir/unheard.lines")"
	wait $told_shipper || fail "$(cat "$dir/told.lines")"
	bare redis-cli -p "$redis_port" publish news late
	wait_until file_has late "$dir/guarded.out"
	is_gone "$guarded_pid" && fail "the subscription has ended: $(cat "$dir/guarded.out" "$dir/guarded.err")"
	untouched "127.0.0.1:$told_port"
	untouched "127.0.0.1:$unheard_port"
	untouched "127.0.0.1:$redis_port"
}

@test "five impatient clients among a hundred patient ones cut off nobody (A5)" {
	peer server 127.0.0.1 slow
	bare "$bin/crowd" "$server_port" 100 5
	shim_part
	export RESIL_SET='abandon_after=1s;failure_threshold=5'
	under "$bin/crowd" "$server_port" 100 5
	assert_equal "$(transitions "127.0.0.1:$server_port")" ""
	untouched "127.0.0.1:$server_port"
}

@test "the same five alone on a server that hangs open its circuit (A5)" {
	peer server 127.0.0.1 hang
	bare "$bin/crowd" "$server_port" 0 5
	shim_part
	export RESIL_SET='abandon_after=1s;failure_threshold=5'
	under "$bin/crowd" "$server_port" 0 5
	assert_equal "$(failed_by "127.0.0.1:$server_port" abandoned)" 5
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
}
