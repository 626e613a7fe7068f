#!/usr/bin/env bats
# A short form of `make torture`: processes under the shim, killed, stopped and executed anew at random, and an observer beside them.
load lib/common

tortured() {
	RESIL_TEST_SHIM=$shim run "$build/torture" "$@"
	echo "$output"
	assert_success
}

@test "sixty-four processes, killed and stopped at random: probes, slots, events and counters stay right (B4 B5 B7)" {
	tortured 8
}

@test "random bytes in the region while sixteen processes use it: none dies (E10)" {
	tortured scribble 4
}
