#!/usr/bin/env bats
# Full load for a long time, with servers that fail in every way at random: nothing grows, nothing hangs, the counters agree with those of the
# servers and the clients, and what is well beside it never notices. On top of that the shim injects faults of its own, and has too few places
# for all who come. SOAK_SECONDS: 45 here, 1200 by `make soak`; SOAK_SEED: which faults when.
load ../lib/common
load ../lib/services

: "${SOAK_SECONDS:=45}" "${SOAK_SEED:=$RANDOM}"
TEST_TIMEOUT=$((SOAK_SECONDS + 60))

ways=(answer answer slow hang drip half cut early unavailable close reset refuse full)
# Another way to fail every second or so, until $dir/load.over is there; then all is well for good.
flip() { # PEER...
	local name
	RANDOM=$SOAK_SEED
	until [ -e "$dir/load.over" ]; do
		for name in "$@"; do
			[ $((RANDOM % 2)) = 0 ] || echo "${ways[RANDOM % ${#ways[@]}]}" >"$dir/$name.in"
		done
		nap "0.$((RANDOM % 9 + 1))"
	done
	for name in "$@"; do echo answer >"$dir/$name.in"; done
}

# look NAME PID: what the process has now, a line into $dir/NAME.looks: resident kB, descriptors, threads.
look() {
	local resident threads descriptors
	resident=$(awk '/^VmRSS:/ { print $2 }' "/proc/$2/status")
	threads=$(awk '/^Threads:/ { print $2 }' "/proc/$2/status")
	descriptors=("/proc/$2/fd"/*)
	echo "$resident ${#descriptors[@]} $threads" >>"$dir/$1.looks"
}
# What the latter half of a run had at most against the most of the first half. Under load it goes up and down by what is in flight.
flat() { # NAME
	awk -v name="$1" '
		function most(a, b) { return a > b ? a : b }
		{ line[NR] = $0 }
		END {
			for (i = 1; i <= NR; i++) {
				split(line[i], now, " ")
				for (k = 1; k <= 3; k++)
					if (i <= NR / 2) first[k] = most(first[k], now[k]); else later[k] = most(later[k], now[k])
			}
			printf "# %s, %d looks: %d kB, then %d; %d descriptors, then %d; %d threads, then %d\n", name, NR,
				first[1], later[1], first[2], later[2], first[3], later[3]
			exit NR < 6 || later[1] > first[1] * 1.1 + 2048 || later[2] > first[2] * 1.25 + 16 || later[3] > first[3] + 2
		}' "$dir/$1.looks" >>"$dir/soak.told" || fail "$1 has grown: $(cat "$dir/soak.told" "$dir/$1.looks")"
}

loaded() { # NAME PORT: requests for the time of the run; what fails in between is counted and goes on
	# -n after -t, which else means 50,000 requests and no more.
	start "$1" bare ab -q -r -k -s 10 -c 16 -t "$SOAK_SECONDS" -n 20000000 "http://127.0.0.1:$2/"
}
failed_requests() { sed -n 's/^Failed requests: *//p' "$dir/$1.out"; }
complete_requests() { sed -n 's/^Complete requests: *//p' "$dir/$1.out"; }
nothing_in_flight() { [ "$(resil status --json | jq '[.groups[].destinations[].calls.in_flight] | add')" = 0 ]; }
heals() { # PORT PROXY_PORT: the proxy's circuit closes as it is asked
	bare curl -s -o "$dir/null" "http://127.0.0.1:$2/" || true
	state_is "127.0.0.1:$1" closed
}
sum_of() { # DESTINATION GROUP: calls of every outcome
	destination "$1" calls -g "$2" | jq '.success + .failure + .neutral + .rejected'
}

@test "full load and servers that fail at random: flat, no hang, counters that agree" {
	shim_part
	peer broken 127.0.0.1 answer
	peer broken_too 127.0.0.1 answer
	peer broken_three 127.0.0.1 answer
	nginx_start well bare
	redis_start redis
	cat >"$dir/resil.conf" <<-END
		[defaults]
		connect_timeout = 500ms
		answer_timeout = 500ms
		stall_timeout = 500ms
		deadline = 2s
		recovery_timeout = 100ms
		recovery_max = 500ms
		trip_on = refused unreachable connect_timeout reset eof answer_timeout stall_timeout deadline abandoned http_gateway
	END
	# A little of every way to shape, cut and refuse what comes from those that are broken anyway.
	for spec in 'latency percent=3% delay=20ms jitter=20ms' 'reset percent=1%' 'refuse percent=1%' 'slicer percent=2% size=16 delay=1ms direction=down'; do
		read -r type when <<<"$spec"
		printf '[fault %s]\ntype = %s\nmatch = 127.0.0.1:%s, 127.0.0.1:%s, 127.0.0.1:%s\n%s\n' "$type" "$type" \
			"$broken_port" "$broken_too_port" "$broken_three_port" "${when// /$'\n'}"
	done >>"$dir/resil.conf"
	# Sixteen come at once; who blocks waits for a place.
	printf '[destination three]\nmatch = 127.0.0.1:%s\nmax_concurrent = 12\nmax_wait = 20ms\n' "$broken_three_port" >>"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf RESIL_SEED=$SOAK_SEED
	# One nginx with two upstreams, of which one is well throughout.
	upstream=$well_port
	beside=$(free_port)
	proxy_port=$(free_port)
	nginx_config proxy "$proxy_port" 'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_next_upstream off; proxy_pass http://up;' "
		upstream up { server 127.0.0.1:$broken_port max_fails=0; keepalive 32; }
		upstream well { server 127.0.0.1:$upstream; keepalive 32; keepalive_requests 1000000; }
		server { listen 127.0.0.1:$beside; location / { proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_pass http://well; } }"
	start proxy under nginx -c "$dir/proxy.conf" -e /dev/null
	up proxy "$proxy_pid" "$proxy_port"
	haproxy_proxy_start other under "$broken_too_port"
	wait_until listens "$beside"
	worker=$(cat "/proc/$proxy_pid/task/$proxy_pid/children")
	worker=${worker%% *}

	flip broken broken_too broken_three 3>&- &
	flipper=$!
	started+=("$flipper")
	loaded on_broken "$proxy_port"
	loaded on_broken_too "$other_port"
	loaded on_well "$beside"
	mkfifo "$dir/soak.go"
	RESIL_JOURNAL=$dir/journal LD_PRELOAD=$shim python3 "$root/tests/programs/soak.py" "$broken_three_port" "$SOAK_SECONDS" 8 8 \
		<>"$dir/soak.go" >"$dir/soak.out" 2>"$dir/soak.err" 3>&- &
	soak_pid=$!
	started+=("$soak_pid")
	start redis_load under redis-benchmark -p "$redis_port" -q -l -t set,get -n 20000 -c 8

	end=$((SECONDS + SOAK_SECONDS))
	while [ "$SECONDS" -lt "$end" ]; do
		nap "$((SOAK_SECONDS / 60 + 1))"
		look nginx "$worker"
		look haproxy "$other_pid"
		look python "$soak_pid"
		look redis "$redis_load_pid"
	done
	for name in on_broken on_broken_too on_well; do
		pid=${name}_pid
		wait_until is_gone "${!pid}"
	done
	wait_until file_has calls "$dir/soak.out"
	touch "$dir/load.over"
	wait "$flipper" || true
	kill "$redis_load_pid"
	wait "$redis_load_pid" || true

	# Healed: nothing stays behind, and every circuit closes with the next calls.
	wait_until nothing_in_flight
	wait_until heals "$broken_port" "$proxy_port"
	wait_until heals "$broken_too_port" "$other_port"

	for name in nginx haproxy python redis; do flat "$name"; done
	# What was well never met a fault, and every request that its server has seen is a call with a verdict.
	assert_equal "$(failed_requests on_well)" 0
	untouched "127.0.0.1:$upstream"
	[ "$(destination "127.0.0.1:$upstream" calls.success)" -ge "$(complete_requests on_well)" ] ||
		fail "$(complete_requests on_well) answers, $(destination "127.0.0.1:$upstream" calls)"
	untouched "127.0.0.1:$redis_port"
	# The client's own count is the circuit's: one call a connection.
	third=127.0.0.1:$broken_three_port group=$(resil status --json | jq -r '.groups[].group' | grep soak)
	assert_equal "$(sum_of "$third" "$group")" "$(jq .calls "$dir/soak.out")"
	assert_equal "$(destination "$third" calls.success -g "$group")" "$(jq .good "$dir/soak.out")"
	# Every way to inject was met, and its count is the journal's.
	for type in latency reset refuse slicer; do
		n=$(destination "$third" "faults.$type" -g "$group")
		[ "$n" -gt 0 ] || fail "no $type in $(destination "$third" faults -g "$group")"
		assert_equal "$n" "$(grep -c "^hit $type connect [0-9]* $third\$" "$dir/journal")"
	done
	# Each place that was taken is free again, none of them because its owner had died; no circuit but these has come.
	assert_equal "$(destination "$third" bulkhead -g "$group" | jq -c '[.in_use, .waiting, .limit]')" "[0,0,12]"
	assert_equal "$(resil metrics -g "$group" | sed -n 's/^resil_bulkhead_reclaimed_total.* //p')" 0
	assert_equal "$(resil status --json | jq '[.groups[].destinations[]] | length')" 5
	resil metrics | sed -n 's/^resil_faults_injected_total/injected/p; s/^resil_calls_total/calls/p' >>"$dir/soak.told"
	# Whom the server has accepted was let through.
	let_through=$(destination "$third" calls -g "$group" | jq '.success + .failure + .neutral')
	[ "$(peer_accepted broken_three)" -le "$let_through" ] || fail "$let_through let through, $(peer_accepted broken_three) accepted"
	# No call outlives its deadline: connect, request and answer together.
	within "$(jq .longest_ms "$dir/soak.out")" 2500
	cat "$dir/soak.told" "$dir/soak.out" | sed 's/^/# /' >&3
}
