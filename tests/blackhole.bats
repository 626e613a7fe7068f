#!/usr/bin/env bats
# Unmodified programs whose SYNs are never answered: connect_timeout ends each connect on time with ETIMEDOUT, whether the program blocks or
# waits in poll, select or epoll (C5). Two kinds of nowhere: a full backlog, and a neighbour behind a veth pair that is not there.
load lib/common
load lib/clients
load lib/netns

ends_on_time() { # CLIENT HOST PORT
	local wait
	client "$1" "$2" "$3"
	run ${via[@]+"${via[@]}"} timeout 0.8 "${cmd[@]}" </dev/null 3>&-
	assert_equal "$status" 124 # without the shim it hangs
	shim_part
	export RESIL_SET='connect_timeout=300ms'
	run traced "$dir/trace" under "${cmd[@]}" </dev/null
	[ "$status" != 0 ] && [ "$status" != 124 ] || fail "exit code $status: $output"
	# curl says it by its exit code, which git does not hand on.
	[ "$1" = git ] || assert_output --regexp '[Tt]imed out|ETIMEDOUT|TimeoutError 110|^curl: \(28\)'
	wait=$(connect_wait_ms "$3" "$dir/trace")
	# The shim counts from the app's call; strace, which stops the process before the kernel's, from a little later, and on a loaded machine from
	# later still. That a limit never ends a wait too early is for programs that read the clock themselves (descriptors.bats).
	[ "${wait:-0}" -ge $((290 - TEST_ALLOWANCE_MS / 2)) ] || fail "ended after ${wait:-no} ms, before the limit: $(tail -n 20 "$dir/trace")"
	within "$wait" 320
	run destination "$2:$3" failures.connect_timeout
	[ "$output" -ge 1 ] || fail "no connect_timeout was counted: $output"
}
full_backlog() {
	peer full 127.0.0.1 full
	ends_on_time "$1" 127.0.0.1 "$full_port"
}
dead_neighbour() {
	netns_start
	netns_black_hole
	ends_on_time "$1" "$black_hole" 7000
}

@test "curl: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog curl; }
@test "curl: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour curl; }
@test "wget: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog wget; }
@test "wget: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour wget; }
@test "urllib: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog urllib; }
@test "urllib: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour urllib; }
@test "asyncio: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog asyncio; }
@test "asyncio: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour asyncio; }
@test "node: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog node; }
@test "node: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour node; }
@test "java: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog java; }
@test "java: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour java; }
@test "psql: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog psql; }
@test "psql: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour psql; }
@test "redis-cli: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog redis-cli; }
@test "redis-cli: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour redis-cli; }
@test "git: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog git; }
@test "git: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour git; }
@test "ssh: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog ssh; }
@test "ssh: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour ssh; }
@test "php: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog php; }
@test "php: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour php; }
@test "ruby: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog ruby; }
@test "ruby: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour ruby; }
@test "perl: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog perl; }
@test "perl: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour perl; }
@test "nc: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog nc; }
@test "nc: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour nc; }
@test "bash: connect_timeout ends a connect to a full backlog on time (C5)" { full_backlog bash; }
@test "bash: connect_timeout ends a connect to a dead neighbour on time (C5)" { dead_neighbour bash; }
