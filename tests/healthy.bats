#!/usr/bin/env bats
# Healthy traffic is never touched: what is idle, slow to be used again, one-way or a subscription meets no limit and counts as no failure
# (A7 A8 A12 C9), nor do ten thousand requests through proxies.
load lib/common
load lib/services

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
untouched() { # DESTINATION: calls were seen, and none failed
	assert_equal "$(destination "$1" state)" closed
	assert_equal "$(destination "$1" calls.failure)" 0
	assert_equal "$(destination "$1" failures | tr -dc 1-9)" ""
	[ "$(destination "$1" calls.total)" -ge 1 ] || fail "no call was seen"
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

ten_thousand() { # PORT
	local answers
	answers=$(bare ab -q -k -n 10000 -c 20 "http://127.0.0.1:$1/" 2>&1) || fail "$answers"
	assert_equal "$(grep -E '^(Complete requests|Failed requests|Non-2xx responses):' <<<"$answers" | tr -s ' ' | paste -sd' ')" \
		"Complete requests: 10000 Failed requests: 0"
}
proxied() { # nginx|haproxy
	nginx_start upstream bare
	"$1"_proxy_start proxy bare "$upstream_port"
	ten_thousand "$proxy_port"
	shim_part
	export RESIL_SET='answer_timeout=2s;stall_timeout=2s;deadline=5s'
	"$1"_proxy_start guarded under "$upstream_port"
	ten_thousand "$guarded_port"
	untouched "127.0.0.1:$upstream_port"
	# Each request of a kept connection is a call of its own (A1).
	[ "$(destination "127.0.0.1:$upstream_port" calls.success)" -ge 10000 ] || fail "$(destination "127.0.0.1:$upstream_port" calls)"
}
@test "ten thousand requests through nginx, a client of its upstream: not one error (A1 A7)" { proxied nginx; }
@test "ten thousand requests through haproxy, a client of its upstream: not one error (A1 A7)" { proxied haproxy; }

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
	assert_equal "$(destination "127.0.0.1:$server_port" failures.abandoned)" 5
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
}
