#!/usr/bin/env bats
# The lock-free parts of src/core under every order of their steps, up to a few preemptions, and killed at each step (tests/interleave).
load lib/common

@test "every order of steps: admissions, verdicts, expiries, names, events, rates (B4 B5 B7 B17)" {
	run "$build/interleave"
	echo "$output"
	assert_success
}
