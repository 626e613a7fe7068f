#!/usr/bin/env bats
# The circuit that all processes of a group share: opening, probing, closing, by hand, by name.
load lib/common
load lib/netns

# dial's last words: the errno of the last attempt ("0": connected).
dial() { under "$bin/dial" "$@"; }
open_by_five_refusals() { # PORT
	run dial -n 5 127.0.0.1 "$1"
	assert_equal "$(cut -d' ' -f1 <<<"$output" | sort | uniq -c | xargs)" "5 ECONNREFUSED"
	assert_equal "$(destination "127.0.0.1:$1" state)" open
}
is_half_open() { [ "$(destination "$1" state)" = half_open ]; }
retry_is_due() { [ "$(destination "$1" retry_after_ms)" = 0 ]; }

# Names with two addresses each, in a mount namespace with a hosts file of its own: what localhost is on many machines.
dual_stack() {
	local flags=(-m)
	[ "$(id -u)" = 0 ] || flags=(-r -m)
	printf '127.0.0.1 localhost\n::1 dual\n127.0.0.1 dual\n' >"$dir/hosts"
	via+=(unshare "${flags[@]}" -- sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$dir/hosts")
	"${via[@]}" true 2>/dev/null || skip "a mount namespace is not to be had here"
	[ "$("${via[@]}" getent ahosts dual | grep -c STREAM)" = 2 ] || skip "IPv6 is off on this machine's loopback"
}
# Two ports would be two destinations: ::1 must be on the same one.
dual_peers() { # MODE_OF_V6 MODE_OF_V4
	local hosts=("${via[@]}")
	via=()
	peer v4 127.0.0.1 "$2"
	peer v6 ::1 "$1" "$v4_port"
	via=("${hosts[@]}")
}

@test "a shell loop of curl is stopped by what its predecessors met, and passes when the server is back (B10 B18 B19)" {
	peer server 127.0.0.1 refuse
	for i in 1 2 3; do run bare curl -sS "http://127.0.0.1:$server_port/"; assert_failure 7; done
	shim_part
	for i in 1 2 3 4 5 6 7 8; do
		run traced "$dir/trace.$i" under curl -sS "http://127.0.0.1:$server_port/"
		assert_failure 7
	done
	# Where eight starts take longer than the waits, one of them each time is a probe.
	probes=$(transitions "127.0.0.1:$server_port" | grep -c '>half_open' || true)
	assert [ "$probes" -lt 3 ] # one of three at least has been stopped
	assert_equal "$(cat "$dir"/trace.* >"$dir/trace"; connects_to "$server_port" "$dir/trace")" $((5 + probes))
	peer_now server answer
	wait_until retry_is_due "127.0.0.1:$server_port"
	for i in 1 2 3; do
		run under curl -sS "http://127.0.0.1:$server_port/"
		assert_success
		assert_output ok
	done
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
	run transitions "127.0.0.1:$server_port"
	refused=$(printf 'open>half_open half_open>open %.0s' $(seq "$probes"))
	[ "$probes" != 0 ] || refused=
	assert_equal "$(xargs <<<"$output")" "closed>open ${refused}open>half_open half_open>closed"
}

@test "the call that trips keeps its own errno, later ones get reject_errno (B13)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='failure_threshold=2;reject_errno=EHOSTUNREACH'
	run dial -n 4 127.0.0.1 "$server_port"
	assert_equal "$(cut -d' ' -f1 <<<"$output" | xargs)" "ECONNREFUSED ECONNREFUSED EHOSTUNREACH EHOSTUNREACH"
}

@test "sixteen processes at the expiry: one SYN reaches the server (B5 B6 CB3)" {
	netns_start
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_jitter=0%'
	open_by_five_refusals "$server_port"
	peer_now server full
	before=$(syns_sent)
	for i in $(seq 16); do start "waiting$i" under "$bin/dial" -n 1000 -i 10 127.0.0.1 "$server_port"; done
	probe_is_out() { [ "$(syns_sent)" -gt "$before" ]; }
	wait_until probe_is_out
	sleep 1.2 # long enough for fifteen others to try a hundred times each
	assert_equal "$(syns_sent)" $((before + 1))
	assert_equal "$(destination "127.0.0.1:$server_port" state)" half_open
	assert_equal "$(destination "127.0.0.1:$server_port" probes.in_flight)" 1
}

@test "until nc -z ...; do sleep 0.1; done, without configuration: a late server is seen in time (B14)" {
	for late in 0.6 5; do
		peer server 127.0.0.1 refuse
		shim_part
		(
			sleep "$late"
			echo answer >"$dir/server.in"
			now_ms >"$dir/up"
		) 3>&- &
		started+=("$!")
		run under bash -c "until nc -z 127.0.0.1 $server_port; do sleep 0.1; done"
		assert_success
		seen=$(now_ms)
		wait "$!"
		# Bare it is seen up to 100 ms late: the loop's own pause.
		within $((seen - $(cat "$dir/up"))) 2100
		kill "$server_pid"
		rm -rf "$dir/server.in" "$RESIL_STATE_DIR"
	done
}

@test "the waits of this machine's own addresses end at two seconds where nobody set them; others at thirty (B14)" {
	shim_part
	run resil which 127.0.0.1:80
	assert_line --regexp '^recovery_max.2s.built-in, for this machine'
	run resil which '[::1]:80'
	assert_line --regexp '^recovery_max.2s.'
	run resil which 10.0.0.1:80
	assert_line --regexp '^recovery_max.30s.built-in$'
	printf '[defaults]\nrecovery_max = 30s\n' >"$dir/set.conf"
	run resil which -c "$dir/set.conf" 127.0.0.1:80
	assert_line --regexp '^recovery_max.30s.*set.conf:2'
	peer server 127.0.0.1 refuse
	for i in 1 2 3 4 5; do run under "$bin/dial" 127.0.0.1 "$server_port"; done
	# Every probe fails: the waits grow to two seconds and stay.
	run under "$bin/dial" -n 80 -i 100 127.0.0.1 "$server_port"
	longest=$(resil events --json | python3 -c 'import json, sys; print(max(e["retry_after_ms"] for e in map(json.loads, sys.stdin) if e["type"] == "transition" and e["to"] == "open"))')
	[ "$longest" -le 2000 ] && [ "$longest" -gt 1500 ] || fail "the longest wait was $longest ms"
}

@test "kill -9 of the process that holds the probe, at a hundred moments: another probes within a second (B7 CB3)" {
	netns_start
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=50ms;recovery_max=50ms;recovery_jitter=0%'
	open_by_five_refusals "$server_port"
	peer_now server full
	TEST_TIMEOUT=100
	run "${via[@]}" timeout 100 python3 "$root/tests/programs/kill-probe.py" 100 $((RANDOM)) $((1000 + TEST_ALLOWANCE_MS)) \
		env "LD_PRELOAD=$shim" "$bin/dial" -n 100000 -i 2 127.0.0.1 "$server_port" 3>&-
	assert_success
	echo "# $output" >&3
}

@test "a hundred threads at the very expiry: one transition, one event, half_open_max_calls probes (B4 B5 CB4)" {
	peer server 127.0.0.1 refuse
	run bare "$bin/threads" 100 127.0.0.1 "$server_port" </dev/null
	assert_output "ECONNREFUSED 100"
	shim_part
	# One group for both programs, which is what a service of several executables would set.
	export RESIL_GROUP=shop RESIL_SET='recovery_timeout=300ms;recovery_jitter=0%;half_open_max_calls=3;connect_timeout=500ms'
	open_by_five_refusals "$server_port"
	peer_now server full
	wait_until retry_is_due "127.0.0.1:$server_port"
	run under "$bin/threads" 100 127.0.0.1 "$server_port" </dev/null
	assert_line "ETIMEDOUT 3"
	assert_line "ECONNREFUSED 97"
	assert_equal "$(transitions "127.0.0.1:$server_port" | xargs)" "closed>open open>half_open half_open>open"
}

@test "thirty-two processes trip at once: one transition event, one expiry for all (B4 CB10)" {
	peer server 127.0.0.1 refuse
	shim_part
	mkfifo "$dir/gate"
	exec {gate}<>"$dir/gate"
	for i in $(seq 32); do
		env LD_PRELOAD="$shim" "$bin/dial" -b 127.0.0.1 "$server_port" <"$dir/gate" >"$dir/dial.$i" 3>&- &
		started+=("$!")
	done
	printf '%32s' '' >&"$gate"
	for i in $(seq 32); do wait_until test -s "$dir/dial.$i"; done
	assert_equal "$(cat "$dir"/dial.* | cut -d' ' -f1 | sort | uniq -c | xargs)" "32 ECONNREFUSED"
	assert_equal "$(transitions "127.0.0.1:$server_port" | xargs)" "closed>open"
	assert_equal "$(destination "127.0.0.1:$server_port" opened_total)" 1
}

@test "a new process and an exec while the circuit is open change nothing (B18 CB10)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=30s;recovery_jitter=0%'
	open_by_five_refusals "$server_port"
	first=$(destination "127.0.0.1:$server_port" retry_after_ms)
	run traced "$dir/trace" under "$bin/dial" -n 3 127.0.0.1 "$server_port"
	run traced "$dir/trace2" under bash -c 'exec "$@"' dial "$bin/dial" -n 3 127.0.0.1 "$server_port"
	assert_equal "$(connects_to "$server_port" "$dir/trace") $(connects_to "$server_port" "$dir/trace2")" "0 0"
	sleep 0.1
	second=$(destination "127.0.0.1:$server_port" retry_after_ms)
	[ "$second" -lt "$first" ] || fail "the expiry moved: $first ms, then $second ms"
	assert_equal "$(transitions "127.0.0.1:$server_port" | xargs)" "closed>open"
	assert_equal "$(destination "127.0.0.1:$server_port" calls.rejected)" 6
}

@test "forced open outlives three recovery times, and auto makes the next call a probe (B15 CB5)" {
	peer server 127.0.0.1 answer
	shim_part
	export RESIL_SET='recovery_timeout=100ms;recovery_jitter=0%'
	run dial 127.0.0.1 "$server_port"
	assert_success
	run resil force "127.0.0.1:$server_port" open --forever
	assert_success
	for i in 1 2 3 4; do
		run dial 127.0.0.1 "$server_port"
		assert_output --partial ECONNREFUSED
		sleep 0.1
	done
	assert_equal "$(peer_accepted server)" 1
	assert_equal "$(destination "127.0.0.1:$server_port" mode)" forced_open
	run resil force "127.0.0.1:$server_port" auto
	assert_success
	run dial -x 127.0.0.1 "$server_port"
	assert_success
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
	assert_equal "$(destination "127.0.0.1:$server_port" mode)" auto
}

@test "forced closed never rejects; the force ends with its --for (B15)" {
	peer server 127.0.0.1 refuse
	shim_part
	run dial 127.0.0.1 "$server_port"
	local began
	began=$(now_ms)
	run resil force "127.0.0.1:$server_port" closed --for 2s
	assert_success
	run traced "$dir/trace" under "$bin/dial" -n 9 127.0.0.1 "$server_port"
	[ $(($(now_ms) - began)) -lt 2000 ] || too_late "the force may have ended before the ninth"
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 9
	mode_is() { [ "$(destination "127.0.0.1:$server_port" mode)" = "$1" ]; }
	wait_until mode_is auto
	run traced "$dir/trace" under "$bin/dial" -n 9 127.0.0.1 "$server_port"
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 5
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
}

@test "breaker = observe opens and counts, and never rejects (B15)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='breaker=observe;recovery_timeout=1m'
	run traced "$dir/trace" under "$bin/dial" -n 9 127.0.0.1 "$server_port"
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 9
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 9
}

@test "an open circuit whose time is up says retry_after_ms 0, also without traffic (B16)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=200ms;recovery_jitter=0%'
	open_by_five_refusals "$server_port"
	sleep 0.3
	assert_equal "$(destination "127.0.0.1:$server_port" retry_after_ms)" 0
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
}

@test "each reopening multiplies the wait, up to recovery_max (B14)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='failure_threshold=1;recovery_timeout=100ms;recovery_backoff=3;recovery_max=500ms;recovery_jitter=0%'
	under "$bin/dial" -n 300 -i 5 127.0.0.1 "$server_port" >"$dir/dial.out" || true
	run resil events --json
	waits=$(python3 -c '
import json, sys
for line in sys.stdin:
    e = json.loads(line)
    if e["type"] == "transition" and e["to"] == "open":
        print(e["retry_after_ms"])' <<<"$output" | head -n 4 | xargs)
	assert_equal "$waits" "100 300 500 500"
}

@test "jitter spreads the wait both ways and no further (B14)" {
	shim_part
	export RESIL_SET='failure_threshold=1;recovery_timeout=1000ms;recovery_jitter=20%'
	for i in 1 2 3 4 5 6 7 8; do
		peer "s$i" 127.0.0.1 refuse
		port=s${i}_port
		run dial 127.0.0.1 "${!port}"
	done
	run resil events --json
	waits=$(python3 -c '
import json, sys
waits = [e["retry_after_ms"] for e in map(json.loads, sys.stdin) if e["type"] == "transition"]
print(len(waits), len(set(waits)) > 1, all(800 <= w <= 1200 for w in waits))' <<<"$output")
	assert_equal "$waits" "8 True True"
}

@test "success_threshold probes close, one after the other (B5 B8)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=100ms;recovery_jitter=0%;success_threshold=3'
	open_by_five_refusals "$server_port"
	peer_now server answer
	wait_until retry_is_due "127.0.0.1:$server_port"
	run dial -x -n 2 127.0.0.1 "$server_port"
	assert_success
	assert_equal "$(destination "127.0.0.1:$server_port" state)" half_open
	run dial -x 127.0.0.1 "$server_port"
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
}

@test "a failing probe reopens at once, with no minimum of calls (B8)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=100ms;recovery_jitter=0%'
	open_by_five_refusals "$server_port"
	wait_until retry_is_due "127.0.0.1:$server_port"
	run dial 127.0.0.1 "$server_port"
	assert_equal "$(transitions "127.0.0.1:$server_port" | xargs)" "closed>open open>half_open half_open>open"
}

@test "a verdict from before a transition changes nothing and is counted as stale (B2)" {
	peer server 127.0.0.1 full
	shim_part
	export RESIL_SET='failure_threshold=1;connect_timeout=600ms'
	start slow under "$bin/dial" 127.0.0.1 "$server_port"
	in_flight() { [ "$(destination "127.0.0.1:$server_port" calls.in_flight 2>/dev/null)" = 1 ]; }
	wait_until in_flight
	run resil reset "127.0.0.1:$server_port"
	assert_success
	wait_until test -s "$dir/slow.out"
	assert_equal "$(cut -d' ' -f1 "$dir/slow.out")" ETIMEDOUT
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
	assert_equal "$(destination "127.0.0.1:$server_port" consecutive_failures)" 0
	run resil metrics
	assert_output --regexp 'resil_stale_results_total\{[^}]*\} 1'
}

@test "a probe without a verdict by probe_timeout has failed (B7)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=100ms;recovery_jitter=0%;probe_timeout=300ms'
	open_by_five_refusals "$server_port"
	peer_now server full
	wait_until retry_is_due "127.0.0.1:$server_port"
	start probe under "$bin/dial" 127.0.0.1 "$server_port"
	wait_until state_is "127.0.0.1:$server_port" half_open
	sleep 0.4
	run dial 127.0.0.1 "$server_port" # whoever comes next finds out
	assert_output --partial ECONNREFUSED
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
}

@test "failure, a hundred successes, failure: a streak of one (CB12)" {
	peer server 127.0.0.1 refuse
	shim_part
	run dial 127.0.0.1 "$server_port"
	peer_now server answer
	run dial -x -n 100 127.0.0.1 "$server_port"
	assert_success
	assert_equal "$(destination "127.0.0.1:$server_port" consecutive_failures)" 0
	peer_now server refuse
	run dial 127.0.0.1 "$server_port"
	assert_equal "$(destination "127.0.0.1:$server_port" consecutive_failures)" 1
	assert_equal "$(destination "127.0.0.1:$server_port" calls.total)" 102
}

@test "failure_threshold 0, 1 and the largest each do what they say (B10 CB8)" {
	shim_part
	for row in "0 closed 9" "1 open 1" "4095 closed 9"; do
		read -r threshold state connects <<<"$row"
		rm -rf "$RESIL_STATE_DIR"
		peer "server$threshold" 127.0.0.1 refuse
		port=server${threshold}_port
		export RESIL_SET="failure_threshold=$threshold;recovery_timeout=1m"
		run traced "$dir/trace" under "$bin/dial" -n 9 127.0.0.1 "${!port}"
		assert_equal "$threshold: $(connects_to "${!port}" "$dir/trace")" "$threshold: $connects"
		assert_equal "$threshold: $(destination "127.0.0.1:${!port}" state)" "$threshold: $state"
	done
	export RESIL_SET="failure_threshold=4096"
	run under true
	assert_output --partial 4096
}

@test "a rejection is no failure and in no rate; rejected counts calls (B11)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=1m'
	run dial -n 20 127.0.0.1 "$server_port"
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 5
	assert_equal "$(destination "127.0.0.1:$server_port" calls.rejected)" 15
	assert_equal "$(destination "127.0.0.1:$server_port" failures.refused)" 5
}

@test "no route at all is local trouble: neutral, and ends no streak (A6 B12)" {
	netns_start
	shim_part
	run dial -n 6 198.51.100.1 7001
	assert_equal "$(cut -d' ' -f1 <<<"$output" | sort -u)" ENETUNREACH
	assert_equal "$(destination 198.51.100.1:7001 calls.neutral)" 6
	assert_equal "$(destination 198.51.100.1:7001 state)" closed
	# With a route it is the destination's trouble.
	"${via[@]}" ip route add unreachable 198.51.100.0/24
	run dial -n 4 198.51.100.1 7001
	"${via[@]}" ip route del unreachable 198.51.100.0/24
	run dial -n 2 198.51.100.1 7001
	assert_equal "$(destination 198.51.100.1:7001 consecutive_failures)" 4
	"${via[@]}" ip route add unreachable 198.51.100.0/24
	run dial -n 2 198.51.100.1 7001
	assert_equal "$(destination 198.51.100.1:7001 state)" open
	assert_equal "$(destination 198.51.100.1:7001 failures.unreachable)" 5
}

@test "a dual-stack name, IPv6 refused and IPv4 fine, threshold 1: stays closed (A3 CN4)" {
	dual_stack
	dual_peers refuse answer
	run bare curl -sS "http://dual:$v4_port/"
	assert_output ok
	shim_part
	export RESIL_SET='failure_threshold=1'
	for client in "curl -sS http://dual:$v4_port/" "$bin/dial dual $v4_port" "$bin/dial -a dual $v4_port"; do
		for i in 1 2 3; do
			run under $client
			assert_success
		done
	done
	run resil status --json
	assert_output --partial "\"name\":\"dual:$v4_port\""
	refute_output --partial '"state":"open"'
	refute_output --partial '"name":"127.0.0.1'
	assert_equal "$(peer_accepted v4)" 10
}

@test "a dual-stack name, both dead, threshold 1: one call opens (A3)" {
	dual_stack
	dual_peers refuse refuse
	run bare curl -sS "http://dual:$v4_port/"
	assert_failure 7
	shim_part
	export RESIL_SET='failure_threshold=1;recovery_timeout=1m'
	run under curl -sS "http://dual:$v4_port/"
	assert_failure 7
	assert_equal "$(destination "dual:$v4_port" state -g curl)" open
	assert_equal "$(destination "dual:$v4_port" calls.failure -g curl)" 1
	run under "$bin/dial" dual "$v4_port"
	assert_equal "$(destination "dual:$v4_port" state -g dial)" open
	assert_equal "$(destination "dual:$v4_port" calls.failure -g dial)" 1
}

@test "a dual-stack name, both dead: five runs of curl open it at the default (A3 B10)" {
	dual_stack
	dual_peers refuse refuse
	shim_part
	export RESIL_SET='recovery_timeout=1m'
	for i in 1 2 3 4; do run under curl -sS "http://dual:$v4_port/"; done
	assert_equal "$(destination "dual:$v4_port" state)" closed
	run under curl -sS "http://dual:$v4_port/"
	assert_equal "$(destination "dual:$v4_port" state)" open
	run under curl -sS "http://dual:$v4_port/"
	assert_failure 7
	assert_equal "$(destination "dual:$v4_port" calls.rejected)" 1
	assert_equal "$(destination "dual:$v4_port" calls.failure)" 5
}

@test "a dual-stack name recovers by its living address: the probe goes on to the next one (A3 B5)" {
	dual_stack
	dual_peers refuse refuse
	shim_part
	export RESIL_SET='failure_threshold=1;recovery_timeout=100ms;recovery_jitter=0%'
	run dial dual "$v4_port"
	assert_equal "$(destination "dual:$v4_port" state)" open
	peer_now v4 answer
	wait_until retry_is_due "dual:$v4_port"
	run dial -x dual "$v4_port"
	assert_success
	assert_equal "$(destination "dual:$v4_port" state)" closed
}

@test "IPv6 without a route and IPv4 a black hole: a connect_timeout each call, no endless wait (CN4)" {
	netns_start
	peer v4 127.0.0.1 full
	dual_stack
	printf '2001:db8::1 dual\n127.0.0.1 dual\n' >"$dir/hosts"
	shim_part
	export RESIL_SET='connect_timeout=300ms;failure_threshold=1'
	run under "$bin/dial" dual "$v4_port"
	assert_failure
	within $(($(cut -d' ' -f2 <<<"$output") / 1000)) 320
	assert_equal "$(destination "dual:$v4_port" failures.connect_timeout)" 1
	assert_equal "$(destination "dual:$v4_port" state)" open
}

@test "executables of one RESIL_GROUP share their circuits; others do not (B19)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=1m'
	for i in 1 2 3; do RESIL_GROUP=shop run under curl -sS "http://127.0.0.1:$server_port/"; done
	for i in 1 2; do RESIL_GROUP=shop run under "$bin/dial" 127.0.0.1 "$server_port"; done
	assert_equal "$(destination "127.0.0.1:$server_port" state -g shop)" open
	RESIL_GROUP=shop run traced "$dir/trace" under nc -z 127.0.0.1 "$server_port"
	assert_failure 1
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 0
	run traced "$dir/trace" under nc -z 127.0.0.1 "$server_port"
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 1
}

@test "a thread cancelled in its connect is neutral, however long it had waited (A6)" {
	peer full 127.0.0.1 full
	run bare "$bin/cancel" "$full_port" 100
	assert_output ok
	shim_part
	run under "$bin/cancel" "$full_port" 1100
	assert_output ok
	assert_equal "$(destination "127.0.0.1:$full_port" calls.neutral)" 1
	assert_equal "$(destination "127.0.0.1:$full_port" calls.failure)" 0
}

@test "changes between two users, twenty times: one region for each, and each user's circuit opens (E15)" {
	[ "$(id -u)" = 0 ] || skip "needs root"
	unset RESIL_STATE_DIR
	export RESIL_GROUP="identities-$$" RESIL_SET='breaker=observe'
	peer refuser 127.0.0.1 refuse
	shim_part
	run under "$bin/identities" "$refuser_port" 20
	rm -f /dev/shm/resil-0/"$RESIL_GROUP".* /dev/shm/resil-65534/"$RESIL_GROUP".*
	assert_output 2
}

@test "a probe that connects and closes before any octet is neutral, three times: the next connect probes (CB1 B7)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=100ms;recovery_jitter=0%;success_threshold=1'
	open_by_five_refusals "$server_port"
	peer_now server answer
	wait_until retry_is_due "127.0.0.1:$server_port"
	run dial -n 3 127.0.0.1 "$server_port"
	assert_success
	assert_equal "$(destination "127.0.0.1:$server_port" state)" half_open
	assert_equal "$(destination "127.0.0.1:$server_port" calls.neutral)" 3
	run dial -x 127.0.0.1 "$server_port"
	assert_success
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
}

@test "a probe that connects and sends nothing outlives probe_timeout: neutral, the next connect probes (B7)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=100ms;recovery_jitter=0%;success_threshold=1;probe_timeout=200ms'
	open_by_five_refusals "$server_port"
	peer_now server answer
	wait_until retry_is_due "127.0.0.1:$server_port"
	start warmer under "$bin/dial" -k 60 127.0.0.1 "$server_port"
	wait_until is_half_open "127.0.0.1:$server_port"
	# Rejected while its time lasts, and admitted behind it: not as the probe of another opening.
	wait_until dial -x 127.0.0.1 "$server_port"
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
	assert_equal "$(destination "127.0.0.1:$server_port" opened_total)" 1
}

@test "a region of another layout beside ours, as while a library is upgraded under running processes: each goes on with its own (E10 B18)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=1m;recovery_max=1m'
	open_by_five_refusals "$server_port"
	local ours theirs sum
	ours=$(ls "$RESIL_STATE_DIR"/*.v*)
	theirs=${ours%.v*}.v1
	(umask 077 && head -c 200000 /dev/urandom >"$theirs")
	sum=$(sha256sum <"$theirs")
	run dial -n 3 127.0.0.1 "$server_port"
	assert_failure 1
	assert_equal "$(destination "127.0.0.1:$server_port" calls.rejected)" 3
	run resil status
	assert_success
	assert_equal "$(grep -c "127.0.0.1:$server_port" <<<"$output")" 1
	assert_equal "$(sha256sum <"$theirs")" "$sum"
}
