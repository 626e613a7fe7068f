#!/usr/bin/env bats
# A connect in a signal handler that interrupted malloc: the first limit starts the timer, pthread_create allocates, and libc's lock is held.
load lib/common

@test "connect in a signal handler that interrupts malloc (E2)" {
	peer dead 127.0.0.1 refuse
	run bare "$bin/moments" in_malloc "$dead_port"
	assert_output ok
	shim_part
	run under "$bin/moments" in_malloc "$dead_port"
	assert_success
	assert_output ok
}
