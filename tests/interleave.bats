#!/usr/bin/env bats
# The lock-free parts of src/core under every order of their steps, up to a few preemptions, and killed at each step (tests/interleave).
load lib/common

@test "every order of steps: admissions, verdicts, expiries, names, events, rates, places and who waits for them, rejections, faults, members (B4 B5 B7 B11 B17 D1 D2)" {
	run "$build/interleave"
	echo "$output"
	assert_success
}
