#!/usr/bin/env bats
# Bulkheads under many: two hundred clients of two services, half of them killed; and every way in which a call can end.
load ../lib/common
load ../lib/talk
load ../lib/bulkhead

@test "two services, two hundred clients in eight processes, half of them killed: never more than the limits, and soon whole (D1 D2)" {
	counts server
	counts other
	shim_part
	two_services 500ms
	export RESIL_CONF=$dir/resil.conf RESIL_GROUP=app
	for round in 1 2 3; do
		for i in 1 2 3 4; do
			start "payments$i" under "$bin/callers" 25 100000 "$server_port" in-20
			start "recommendations$i" under "$bin/callers" 25 100000 "$other_port" in-20
		done
		wait_until begun server in-20 $((round * 200))
		wait_until begun other in-20 $((round * 40))
		for i in 1 2; do
			payments=payments${i}_pid recommendations=recommendations${i}_pid
			kill -9 "${!payments}" "${!recommendations}"
		done
		before=$(now_ms)
		# The others go on: as many are with the server again as may be. A second where nothing else runs (the unit test has it by the
		# clock); looking takes its time, and so does dying.
		wait_until bulkhead_is "$server_port" in_use 20
		within $(($(now_ms) - before)) 4000
		for i in 3 4; do
			payments=payments${i}_pid recommendations=recommendations${i}_pid
			kill -9 "${!payments}" "${!recommendations}"
		done
		before=$(now_ms)
		wait_until bulkhead_is "$server_port" in_use 0
		within $(($(now_ms) - before)) 4000
		wait_until bulkhead_is "$other_port" in_use 0
		assert_equal "$(bulkhead "$server_port" waiting)" 0
	done
	# The server may not have noticed yet that a killed client has gone: so many more than the limit, by kills, and not one by the gate.
	most=$(asked "$server_port" most)
	[ "$most" -le 60 ] || fail "$most at once"
	[ "$(asked "$other_port" most)" -le 15 ]
	# Nobody is killed: exactly.
	counts quiet
	sed -i "s/127.0.0.1:$server_port/127.0.0.1:$quiet_port/" "$RESIL_CONF"
	for i in 1 2 3 4 5 6 7 8; do start "calm$i" under "$bin/callers" 25 20 "$quiet_port" in-5; done
	for i in 1 2 3 4 5 6 7 8; do
		pid=calm${i}_pid
		wait "${!pid}"
		assert_output_of "calm$i"
	done
	most=$(asked "$quiet_port" most)
	[ "$most" -le 20 ] && [ "$most" -ge 15 ] || fail "$most at once"
	assert_equal "$(bulkhead "$quiet_port" in_use)" 0
}
assert_output_of() {
	read -r _ answered _ refused _ other _ <"$dir/$1.out"
	[ $((answered + refused)) = 500 ] && [ "$other" = 0 ] || fail "$(cat "$dir/$1.out")"
}

@test "a storm of calls that hang, stall, drip, break off, are dup'ed, pipelined and closed by others: each gives its place back (D1)" {
	shim_part
	export RESIL_SET='answer_timeout=50ms;stall_timeout=50ms;deadline=150ms;failure_threshold=0;max_concurrent=4096'
	run under "$bin/storm" 10 24
	assert_success
	assert_equal "$(resil status --json | jq '[.groups[].destinations[].bulkhead | .in_use, .waiting] | add')" 0
	assert_equal "$(resil status --json | jq '[.groups[].destinations[].bulkhead.limit] | min')" 4096
}

@test "adaptive: a server that queues gets fewer at once, and all again when it is well (D3)" {
	serves server <<-'END'
		few = [False]
		one = threading.Lock()
		def serve(c):
		    while True:
		        h = head(c)
		        if not h:
		            return
		        if b"/few" in h or b"/all" in h:
		            few[0] = b"/few" in h
		        elif few[0]:
		            with one:
		                time.sleep(0.05)
		        else:
		            time.sleep(0.01)
		        ok(c)
	END
	shim_part
	export RESIL_GROUP=app RESIL_SET='max_concurrent=32;adaptive=on;max_wait=5s'
	limit_is() { [ "$(bulkhead "$server_port" limit)" "$1" "$2" ]; }
	start crowd under "$bin/callers" 32 100000 "$server_port" x
	wait_until bulkhead_is "$server_port" in_use 32
	limit_is -ge 20
	sleep 3
	limit_is -ge 20
	asked "$server_port" few >/dev/null
	wait_until limit_is -le 16
	asked "$server_port" all >/dev/null
	wait_until limit_is -ge 28
}
