#!/usr/bin/env bats
# Ten thousand lines to a collector that is away, by several programs of which some are killed, over a disk that fills up once: after
# `resil replay`, itself killed in its midst, the collector has every line that was acknowledged (D6).
load ../lib/common
load ../lib/services

per_connection=100 connections=20
acknowledged() { cat "$dir"/acknowledged.* 2>/dev/null | wc -l; }
at_least() { [ "$(acknowledged)" -ge "$1" ]; }
taken() { [ "$(grep -c '^took' "$dir/collector.out")" -ge "$1" ]; }
writer() { # NAME
	RESIL_SET="fallback=spool:$spool;failure_threshold=2;recovery_timeout=5m;recovery_max=5m" \
		start "writer_$1" under python3 "$root/tests/programs/spool_lines.py" write "$port" "$1" $connections $per_connection "$dir/acknowledged.$1"
}

@test "ten thousand lines by five programs, two of them killed, the disk full once, replay killed: all that was acknowledged, in order (D6 E7)" {
	need_root "a small tmpfs"
	unshare -m true 2>/dev/null || skip "a mount namespace is not to be had here"
	shim_part
	start holder bare unshare -m sleep 600
	via=(nsenter -t "$holder_pid" -m)
	wait_until in_a_namespace
	spool=$dir/spool port=$(free_port)
	mkdir "$spool"
	bare mount -t tmpfs -o size=8m none "$spool"
	mkdir -m 700 "$dir/there"
	for name in a b c d e; do writer "$name"; done
	wait_until at_least 20
	kill -9 "$writer_b_pid"
	# The disk is full: nothing is acknowledged any more.
	for _ in 1 2 3; do # what was set aside for connections that end is free again
		bare sh -c "cat /dev/zero >>$spool/fill" 2>"$dir/fill.err" || true
		nap 0.2
	done
	before=$(acknowledged)
	writer b
	kill -9 "$writer_d_pid"
	nap 0.3
	[ "$(acknowledged)" -le $((before + 5)) ] || fail "acknowledged on a full disk: $before, then $(acknowledged)"
	bare rm "$spool/fill"
	writer d
	for name in a b c d e; do
		pid=writer_${name}_pid
		wait_until is_gone "${!pid}"
	done
	assert_equal "$(acknowledged)" $((5 * connections))

	start collector bare python3 -u "$root/tests/programs/spool_lines.py" collect "$port" "$dir/there"
	wait_until file_has '^up ' "$dir/collector.out"
	start replay bare "$build/resil" replay "$spool"
	wait_until taken 10
	kill -9 "$replay_pid"
	wait_until is_gone "$replay_pid"
	run resil replay "$spool"
	assert_success
	run bare ls "$spool"
	assert_output ""
	run bare python3 "$root/tests/programs/spool_lines.py" compare "$dir/there" $per_connection 1 "$dir"/acknowledged.*
	assert_success
	echo "# $output" >&3
}
in_a_namespace() { [ "$(readlink "/proc/$holder_pid/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ]; }
