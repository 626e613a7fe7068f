#!/usr/bin/env bats
# A TSan host with a non-blocking connect: our timer has ended by exit and nobody has joined it, which TSan reports as a leak of the program's,
# with exit code 66.
load lib/common

@test "a program built with TSan, non-blocking: nothing is reported (CP9 E1)" {
	peer server 127.0.0.1 refuse
	gcc -fsanitize=thread -O1 -g -D_GNU_SOURCE -pthread -o "$dir/dial" "$root/tests/programs/dial.c" 2>"$dir/cc" || skip "no TSan here: $(tail -n 1 "$dir/cc")"
	run bare "$dir/dial" -a -n 7 127.0.0.1 "$server_port"
	assert_failure 1
	shim_part
	run under "$dir/dial" -a -n 7 127.0.0.1 "$server_port"
	assert_failure 1
	refute_output --partial ThreadSanitizer
}
