#!/usr/bin/env bats
# A filter set by syscall(SYS_prctl, PR_SET_SECCOMP, ...): must be seen like the one set by prctl(2).
load lib/common

@test "a filter set by syscall(SYS_prctl, ...): no system call of ours under it (E14 E12)" {
	peer dead 127.0.0.1 refuse
	run bare "$bin/hosted" seccomp_syscall_prctl "$dead_port"
	assert_output ok
	shim_part
	run under "$bin/hosted" seccomp_syscall_prctl "$dead_port"
	assert_success
	assert_output ok
}
