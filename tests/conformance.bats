#!/usr/bin/env bats
# Identical with and without the shim, by programs that nobody here wrote: the short form of `make conformance` (scripts/conformance).
load lib/common

# A part of the conformance run; each of its lines must be an ok.
part() {
	shim_part
	BUILD=$build run timeout $((TEST_TIMEOUT * 3)) "$root/tests/conformance/$1" "${@:2}"
	grep -E '^(ok|# oracle)' <<<"$output" | sed 's/^/# /' >&3 || true
	! grep -qE '^ok .* # SKIP' <<<"$output" || skip "$(sed -n 's/^ok .*# SKIP //p' <<<"$output" | head -n 1)"
	assert_success
	refute_line --regexp '^not ok'
	assert_line --regexp '^ok '
}

@test "CPython's suites of select, poll, epoll, selectors and sockets end as they do bare, test by test (E1)" {
	part python --match='*.SelectTestCase.*' --match='*.TestEPoll.*' --match='*.test_poll1' --match='*.test_poll3' --match='*.test_threaded_poll' \
		--match='*.EpollSelectorTestCase.test_[cmru]*' --match='*.BasicTCPTest.*' --match='*.NonBlockingTCPTests.*' --match='*.BasicUDPTest.*' \
		--match='*.TCPTimeoutTest.*' --match='*.NetworkConnection*' \
		test_select test_epoll test_poll test_selectors test_socket
}

@test "curl, urllib, redis-cli, git and bash ask the kernel the same and get the same, call by call (E1)" {
	part oracle curl-refused urllib redis-cli git bash
}

@test "redis-server under redis-benchmark, both under the shim: no error (E1)" {
	REQUESTS=1000 part redis
}

@test "the oracle notices a call too many, and a result that is not the kernel's" {
	peer server 127.0.0.1 answer
	shim_part
	mkdir "$dir/more" "$dir/other"
	printf '%s\n' '#include <dlfcn.h>' '#include <errno.h>' '#include <sys/socket.h>' \
		'int connect(int fd, const struct sockaddr *to, socklen_t n)' \
		'{ int r = ((int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect"))(fd, to, n);' \
		'  CHANGE; return r; }' >"$dir/wrong.c"
	gcc -D_GNU_SOURCE -shared -fPIC '-DCHANGE=int on = 1; setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on)' -o "$dir/more/libresil.so" "$dir/wrong.c"
	gcc -D_GNU_SOURCE -shared -fPIC '-DCHANGE=(void)r; errno = ENETDOWN; return -1' -o "$dir/other/libresil.so" "$dir/wrong.c"
	for wrong in more other; do
		run timeout "$TEST_TIMEOUT" python3 "$root/tests/conformance/oracle.py" "$dir/$wrong/libresil.so" "$dir" "$wrong" \
			bash -c "exec 3<>/dev/tcp/127.0.0.1/$server_port"
		assert_failure 1
		assert_line --regexp '^not ok'
		[ "$wrong" = other ] || assert_line --regexp 'shim: setsockopt.*SO_KEEPALIVE'
	done
}
