#!/usr/bin/env bats
# Many calls at once: everything that may happen to them together, and many kept connections with limits that are met.
load ../lib/common

# Sums of all destinations' calls: total, and what is left when the verdicts are taken off; in flight.
sums() {
	resil status --json | python3 -c '
import json, sys
calls = [d["calls"] for g in json.load(sys.stdin)["groups"] for d in g["destinations"]]
print(sum(c["total"] for c in calls), sum(c["total"] - c["success"] - c["failure"] - c["neutral"] for c in calls), sum(c["in_flight"] for c in calls))'
}

@test "a storm of calls that hang, stall, drip, break off, are dup'ed, pipelined and closed by others: each has one verdict (A1 B2 C7)" {
	shim_part
	export RESIL_SET='answer_timeout=50ms;stall_timeout=50ms;deadline=150ms;failure_threshold=0'
	run under "$bin/storm" 10 24
	assert_success
	read -r calls _ <<<"$output"
	[ "$calls" -gt 1000 ] || fail "only $calls calls"
	read -r total open in_flight < <(sums)
	[ "$total" -ge "$calls" ] || fail "$calls calls, $total verdicts"
	assert_equal "$open $in_flight" "0 0"
}

@test "kept connections, as many as may be, 50,000 at most: limits that are met cost the timer under 1 % of a core (C8)" {
	local most
	most=$(($(ulimit -Hn) - 500))
	[ "$most" -lt 50000 ] || most=50000
	bare "$bin/many" $((most / 10)) 1
	shim_part
	for how in "" expire; do
		# shellcheck disable=SC2086 # none or one word
		run under env RESIL_SET='answer_timeout=1s;deadline=2s' "$bin/many" "$most" 6 $how
		assert_success
		[[ $output =~ ^([0-9]+)\ calls,\ ([0-9]+)\ us\ of\ ([0-9]+)$ ]] || fail "$output"
		echo "# $most connections${how:+, one that expires}: $output" >&3
		[ $((BASH_REMATCH[2] * 100)) -le "${BASH_REMATCH[3]}" ] || fail "$output"
	done
}
