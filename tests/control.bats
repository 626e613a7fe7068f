#!/usr/bin/env bats
# The unix socket of a group: what it answers, who serves it, and that nobody who talks to it disturbs the app.
load lib/common

setup() {
	common_setup
	shim_part
	printf '[resil]\ncontrol = on\n' >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf
	socket=$RESIL_RUNTIME_DIR/dial.sock
	peer server 127.0.0.1 answer
	name=127.0.0.1:$server_port
}
# A member that connects every 50 ms and serves the socket.
member() { # NAME
	start "$1" under "$bin/dial" -x -n 100000 -i 50 127.0.0.1 "$server_port"
	wait_until answers
}
ask() { curl -sS -m 5 --unix-socket "$socket" "http://resil$1" "${@:2}"; }
answers() { ask /health >/dev/null 2>&1; }
# json EXPRESSION: evaluated over the answer `j`.
json() { python3 -c 'import json,sys; j = json.load(sys.stdin); print('"$1"')' <<<"$output"; }

@test "/health: healthy while all is closed, degraded when a circuit opens; strict answers 503" {
	member one
	run ask /health
	assert_equal "$(json 'j["status"]')" healthy
	assert_equal "$(json "sorted(j['breakers']['$name'])")" "['failure_rate', 'retry_after_ms', 'state', 'total_calls']"
	run ask '/health?strict=1' -o /dev/null -w '%{http_code}'
	assert_output 200
	peer_now server refuse
	wait_until state_is "$name" open
	run ask /health
	assert_equal "$(json 'j["status"]')" degraded
	run ask '/health?strict=1' -o /dev/null -w '%{http_code}'
	assert_output 503
	run ask /health -o /dev/null -w '%{http_code}'
	assert_output 200
}

@test "/v1/destinations: the full state, all of them and one by its name" {
	member one
	run ask /v1/destinations
	assert_equal "$(json 'j[0]["name"]')" "$name"
	run ask "/v1/destinations/$name"
	assert_equal "$(json "[k for k in ('name','policy','state','mode','retry_after_ms','consecutive_failures','failure_rate','calls','failures','latency_ms','probes','opened_total') if k not in j]")" "[]"
	assert_equal "$(json 'j["state"], j["mode"], j["calls"]["failure"]')" "closed auto 0"
	[ "$(json 'j["calls"]["success"]')" -ge 1 ]
	run ask /v1/destinations/nowhere:1 -w '%{http_code}'
	assert_output --partial 404
}

@test "/v1/events follows: a transition is told when it happens (B4)" {
	member one
	ask '/v1/events?follow=1' -N -m "$TEST_TIMEOUT" >"$dir/followed" 2>/dev/null 3>&- &
	started+=("$!")
	wait_until file_has attach "$dir/followed"
	peer_now server refuse
	wait_until file_has '"type":"transition".*"to":"open"' "$dir/followed"
	run python3 -c '
import json, sys
events = [json.loads(line) for line in open(sys.argv[1]) if line.endswith("\n")]
seqs = [e["seq"] for e in events]
print(seqs == sorted(set(seqs)), all(k in e for e in events for k in ("seq", "time", "pid", "exe", "group", "type")))' "$dir/followed"
	assert_output "True True"
	# The same by number, later.
	last=$(python3 -c 'import json,sys; print([json.loads(l)["seq"] for l in open(sys.argv[1]) if "transition" in l][0])' "$dir/followed")
	run ask "/v1/events?since=$last"
	refute_output --partial "\"seq\":$last,"
	run ask "/v1/events?since=$((last - 1))"
	assert_output --partial "\"seq\":$last,"
}

@test "/v1/members: who is in the group" {
	member one
	start two under "$bin/dial" -x -n 100000 -i 50 127.0.0.1 "$server_port"
	both_are_in() {
		run ask /v1/members
		[[ $output == *"\"pid\":$one_pid"* && $output == *"\"pid\":$two_pid"* ]]
	}
	wait_until both_are_in
	kill -9 "$two_pid"
	one_is_in() {
		run ask /v1/members
		[[ $output == *"\"pid\":$one_pid"* && $output != *"\"pid\":$two_pid"* ]]
	}
	wait_until one_is_in
}

@test "/metrics: Prometheus text, a family at a time, with this group's circuit" {
	member one
	run ask /metrics
	assert_line --regexp "^resil_circuit_state\{group=\"dial\",destination=\"$name\"\} 0$"
	assert_line --regexp "^resil_calls_total\{.*outcome=\"success\".*\} [1-9]"
	assert_line --regexp '^resil_build_info\{'
	python3 - <<-END
		import re
		done, current = set(), None
		for line in """$output""".splitlines():
		    family = re.match(r"# (?:HELP|TYPE) (\w+)", line) or re.match(r"(\w+?)(?:_bucket|_sum|_count)?[{ ]", line)
		    assert family, line
		    if family[1] != current:
		        assert family[1] not in done, "family %s comes twice" % family[1]
		        done.add(family[1])
		        current = family[1]
	END
}

@test "force and reset over the socket; changes are POST only (B15)" {
	member one
	run ask "/v1/destinations/$name/force?mode=open" -w '%{http_code}'
	assert_output --partial 405
	run ask "/v1/destinations/$name/force?mode=open" -X POST
	assert_equal "$(json 'j["mode"]')" forced_open
	wait_until file_has ECONNREFUSED "$dir/one.out"
	run ask "/v1/destinations/$name/force?mode=sideways" -X POST -w '%{http_code}'
	assert_output --partial 400
	run ask "/v1/destinations/$name/force?mode=closed&for=8761h" -X POST -w '%{http_code}'
	assert_output --regexp '1ms to 8760h.*400$'
	run ask "/v1/faults?spec=refuse%20$name&for=8761h" -X POST -w '%{http_code}'
	assert_output --regexp '1ms to 8760h.*400$'
	run ask "/v1/destinations/$name/force?mode=auto" -X POST
	assert_equal "$(json 'j["mode"]')" auto
	wait_until state_is "$name" closed
	peer_now server refuse
	wait_until state_is "$name" open
	peer_now server answer
	run ask "/v1/destinations/$name/reset" -X POST
	assert_equal "$(json 'j["state"], j["consecutive_failures"]')" "closed 0"
}

@test "random bytes get 400 or a closed connection, and the app goes on" {
	member one
	run timeout "$TEST_TIMEOUT" python3 - "$socket" <<-'END'
		import random, socket, sys
		random.seed(7)
		for n in range(200):
		    s = socket.socket(socket.AF_UNIX)
		    s.settimeout(5)
		    s.connect(sys.argv[1])
		    data = random.randbytes(random.choice((1, 7, 100, 5000)))
		    try:
		        s.sendall(data)
		        s.shutdown(socket.SHUT_WR)
		        answer = b""
		        while True:
		            piece = s.recv(4096)
		            if not piece:
		                break
		            answer += piece
		    except (BrokenPipeError, ConnectionResetError):
		        answer = b""
		    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 "), (n, data[:40], answer[:80])
		print("done")
	END
	assert_output "done"
	run ask /health
	assert_success
	kill -0 "$one_pid"
}

@test "an endless request head gets an error, not memory" {
	member one
	run timeout "$TEST_TIMEOUT" python3 - "$socket" <<-'END'
		import socket, sys
		s = socket.socket(socket.AF_UNIX)
		s.settimeout(5)
		s.connect(sys.argv[1])
		s.sendall(b"GET /health HTTP/1.1\r\n")
		try:
		    for n in range(20000):
		        s.sendall(b"X-Pad: " + b"x" * 100 + b"\r\n")
		    print("swallowed 2 MB")
		except (BrokenPipeError, ConnectionResetError):
		    print("closed")
	END
	assert_output closed
	run ask /health
	assert_success
}

@test "silent and slow clients disturb nobody: neither the app nor another client" {
	member one
	timeout "$TEST_TIMEOUT" python3 - "$socket" >"$dir/silent" 3>&- <<-'END' &
		import socket, sys, time
		held = []
		for n in range(12):
		    s = socket.socket(socket.AF_UNIX)
		    s.connect(sys.argv[1])
		    if n % 3 == 1:
		        s.sendall(b"GET /hea")
		    if n % 3 == 2:
		        s.sendall(b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
		    held.append(s)
		print("held", flush=True)
		time.sleep(60)
	END
	started+=("$!")
	wait_until file_has held "$dir/silent"
	for i in 1 2 3 4 5; do
		begin=$(now_ms)
		run ask /health
		assert_success
		within $(($(now_ms) - begin)) 300
	done
	lines=$(wc -l <"$dir/one.out")
	moves_on() { [ "$(wc -l <"$dir/one.out")" -gt $((lines + 5)) ]; }
	wait_until moves_on
}

@test "several requests on one connection, and HEAD" {
	member one
	run ask /health http://resil/v1/members http://resil/metrics -o /dev/null -o /dev/null -o /dev/null -w '%{http_code} %{num_connects}\n'
	assert_output "200 1
200 0
200 0"
	run ask /health -I
	assert_output --partial '200 OK'
}

@test "the one who serves dies by kill -9: another takes over within two seconds" {
	member one
	start two under "$bin/dial" -x -n 100000 -i 50 127.0.0.1 "$server_port"
	wait_until test -s "$dir/two.out"
	sleep 0.3
	for round in 1 2 3; do
		kill -9 "$one_pid"
		begin=$(now_ms)
		wait_until answers
		within $(($(now_ms) - begin)) 2000
		one_pid=$two_pid
		start two under "$bin/dial" -x -n 100000 -i 50 127.0.0.1 "$server_port"
		wait_until test -s "$dir/two.out"
		sleep 0.3
	done
}

@test "the socket is for its owner: mode 0600 in a folder of 0700, others are shut out (E11)" {
	member one
	assert_equal "$(stat -c %a "$socket")" 600
	assert_equal "$(stat -c %a "$RESIL_RUNTIME_DIR")" 700
	need_root "to be someone else"
	chmod 755 "$dir" "$(dirname "$dir")" "$(dirname "$(dirname "$dir")")"
	chmod 711 "$RESIL_RUNTIME_DIR"
	chmod 666 "$socket"
	run setpriv --reuid 65534 --regid 65534 --clear-groups curl -sS -m 5 --unix-socket "$socket" -w '%{http_code}' http://resil/health
	refute_output --partial 200
}

@test "control = auto: a socket once a guarded call is made a second after attaching; a short program has none (E5)" {
	unset RESIL_CONF
	run under "$bin/dial" -n 5 -i 10 127.0.0.1 "$server_port"
	[ ! -S "$socket" ]
	begin=$(now_ms)
	start one under "$bin/dial" -n 1000 -i 50 127.0.0.1 "$server_port"
	wait_until answers
	[ $(($(now_ms) - begin)) -ge 1000 ] || fail "the socket was there after $(($(now_ms) - begin)) ms"
	within $(($(now_ms) - begin)) 2000
}

@test "control = off: no socket" {
	printf '[resil]\ncontrol = off\n' >"$dir/resil.conf"
	run under "$bin/dial" -n 8 -i 200 127.0.0.1 "$server_port"
	assert_success
	[ ! -S "$socket" ]
}

@test "state = private: a socket of its own, and no circuit shared" {
	printf '[resil]\ncontrol = on\nstate = private\n' >"$dir/resil.conf"
	start one under "$bin/dial" -x -n 100000 -i 50 127.0.0.1 "$server_port"
	socket=$RESIL_RUNTIME_DIR/dial.$one_pid.sock
	wait_until answers
	peer_now server refuse
	is_open() { ask /health | grep -q '"open"'; }
	wait_until is_open
	run traced "$dir/trace" under "$bin/dial" -n 2 127.0.0.1 "$server_port"
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 2
}

@test "an orderly exit leaves no socket behind; one left by a kill hinders nobody; status reads the region" {
	start one under "$bin/dial" -n 30 -i 50 127.0.0.1 "$server_port"
	wait_until answers
	wait_until is_gone "$one_pid"
	[ ! -e "$socket" ] || fail "the socket is still there"
	run resil status --exit-code
	assert_success
	assert_output --partial "$name"
	member two
	kill -9 "$two_pid"
	wait "$two_pid" 2>/dev/null || true
	[ -S "$socket" ] || fail "whoever dies by force removes nothing"
	member three
}

@test "status --exit-code: 0 all closed, 1 some open, 3 nothing there" {
	run resil status --exit-code
	assert_failure 3
	run under "$bin/dial" 127.0.0.1 "$server_port"
	run resil status --exit-code
	assert_success
	run resil force "$name" open --forever
	run resil status --exit-code
	assert_failure 1
	run resil force nowhere:1 open --forever
	assert_failure 3
	run resil force "$name" open
	assert_failure 2
}

@test "off and on: a bypass for the group is seen at the next call" {
	peer_now server refuse
	run under "$bin/dial" -n 5 127.0.0.1 "$server_port"
	run resil off -g dial
	assert_success
	run traced "$dir/trace" under "$bin/dial" -n 3 127.0.0.1 "$server_port"
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 3
	run resil on -g dial
	assert_success
	run resil force "$name" open --forever
	run traced "$dir/trace" under "$bin/dial" -n 3 127.0.0.1 "$server_port"
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 0
}

@test "off reaches every group of the user, one whose name begins with a dot too" {
	peer_now server refuse
	export RESIL_GROUP=.hidden
	run under "$bin/dial" -n 7 127.0.0.1 "$server_port"
	assert_equal "$(destination "$name" state -g .hidden)" open
	run resil status --json
	assert_output --partial '"group":".hidden"'
	run resil off
	assert_success
	run traced "$dir/trace" under "$bin/dial" -n 3 127.0.0.1 "$server_port"
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 3
	run resil on
	assert_success
}

@test "on reaches processes that began, or went on, under a bypass of the whole user" {
	peer_now server refuse
	start early under "$bin/dial" -n 200 -i 100 127.0.0.1 "$server_port"
	early_has_begun() { [ "$(destination "$name" calls.total -g dial 2>/dev/null || echo 0)" -gt 2 ]; }
	wait_until early_has_begun
	run resil off
	assert_success
	start late under env RESIL_GROUP=late "$bin/dial" -n 200 -i 100 127.0.0.1 "$server_port"
	# Long enough for both to have looked for the marker, which they do once a second.
	sleep 2.5
	run resil on
	assert_success
	before=$(destination "$name" calls.total -g dial)
	early_goes_on() { [ "$(destination "$name" calls.total -g dial)" -gt $((before + 2)) ]; }
	wait_until early_goes_on
	late_is_guarded() { [ "$(destination "$name" calls.total -g late 2>/dev/null || echo 0)" -gt 2 ]; }
	wait_until late_is_guarded
}
