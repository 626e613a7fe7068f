#!/usr/bin/env bats
# The life of descriptors and the ways to begin and to await a connection: each case runs without the shim first, so that it tests the world.
load lib/common
load lib/netns

# descriptors CASE: programs/descriptors.c, bare and under a connect_timeout of 300 ms.
descriptors() {
	peer full 127.0.0.1 full
	peer server 127.0.0.1 answer
	run bare "$bin/descriptors" "$1" "$full_port" "$server_port" 0
	assert_success
	assert_output ok
	shim_part
	# Never by the circuit: these cases are about the limit.
	export RESIL_SET='connect_timeout=300ms;failure_threshold=0'
	run under "$bin/descriptors" "$1" "$full_port" "$server_port" 300
	assert_success
	assert_output ok
}

@test "a limit runs while close_range(3, ~0U) takes everything: the pipe in its place is whole, the next limit holds (CP2 E6)" { descriptors close_range; }
@test "the same by a loop of close to the limit of descriptors (CP2 E6)" { descriptors close_loop; }
@test "the same by closefrom(3) (CP1 CP2 E6)" { descriptors closefrom; }
@test "close_range with CLOSE_RANGE_CLOEXEC closes nothing: the limit goes on (CP2)" { descriptors close_range_cloexec; }
@test "a child execs and closes everything; the parent's limit goes on (CP2 E4)" { descriptors exec; }
@test "a vfork child connects, dups, closes and execs: the parent's table is untouched (CP3 E3)" { descriptors vfork; }
@test "a child by clone(CLONE_VM|CLONE_VFORK) likewise (CP3 E3)" { descriptors clone; }
@test "a dup2, dup3 or close_range that fails closes nothing: the limit goes on (E1 C5)" { descriptors failing; }
@test "closed where no hook sees it, the number left alone: the timer forgets it (C7 E5)" { descriptors forgotten; }
@test "a dup'ed connect, one number closed: the other's limit goes on, one verdict (A1 C5)" {
	descriptors twin_closes
	assert_equal "$(destination "127.0.0.1:$full_port" failures.connect_timeout)" 1
	assert_equal "$(destination "127.0.0.1:$full_port" calls.total)" 1
}
@test "a dup'ed connect, its refusal read on the other number: it is told once (A1)" {
	peer refuser 127.0.0.1 refuse
	run bare "$bin/descriptors" twin_reads 1 "$refuser_port" 0
	assert_output ok
	shim_part
	run under "$bin/descriptors" twin_reads 1 "$refuser_port" 0
	assert_output ok
	assert_equal "$(destination "127.0.0.1:$refuser_port" failures.refused)" 1
	assert_equal "$(destination "127.0.0.1:$refuser_port" calls.total)" 1
}
@test "the timer opens no file while it waits: it would stand on the app's lowest number (E1 E6)" {
	peer full 127.0.0.1 full
	shim_part
	export RESIL_SET='connect_timeout=2500ms'
	run under strace -f -qq -o "$dir/trace" -e trace=openat,futex curl -sS -m 5 "http://127.0.0.1:$full_port/"
	assert_failure
	run grep -c 'FUTEX_WAIT_BITSET' "$dir/trace"
	assert [ "$output" -gt 2 ] # it has been there
	# The app's own thread, whose id is the process's, reads it once when it joins the group.
	run awk 'match($0, /\/proc\/[0-9]+\/stat"/) && index($0, "/proc/" $1 "/") == 0' "$dir/trace"
	assert_output ""
}

@test "closed by syscall(SYS_close), the number used again: the old limit hits nothing (CP4 C7 E12)" { descriptors reuse_after_syscall; }
@test "closed by fclose, the number used again: the old limit hits nothing (CP4 C7)" { descriptors reuse_after_fclose; }
@test "closed where no hook sees it, the number used again: the old limit hits nothing (CP4 C7)" { descriptors reuse_unseen; }
@test "dup2 and dup3 onto a guarded number are its close (E12)" { descriptors dup2_onto; }
@test "after a dup both numbers lead to the same call, whichever is closed (C5)" { descriptors dup; }
@test "after fork the limit holds for whichever waits (E4)" { descriptors fork; }
@test "after fork, setsid, fork the limit holds in the daemon that is left (E4)" { descriptors daemon; }
@test "dup2 onto every number that may be ours: each is the program's, and the limits hold (E6)" { descriptors wanted_numbers; }
@test "after daemon() the limit holds in the child that is left (E4)" { descriptors libc_daemon; }
@test "the timer works when no descriptor is left (E6)" { ulimit -n 64; descriptors emfile; }
@test "the timer works when no descriptor is left and the program had lowered its limit itself (E6 E7)" { descriptors emfile_lowered; }
@test "memory streams, pipes' streams and popen are closed as ever; errno is 0 at main (CP7 CP8 E8)" { descriptors streams; }
@test "an expired connect answers ETIMEDOUT to everything until it is closed, and raises no SIGPIPE (C11)" { descriptors sticky; }

@test "a program that starts without descriptors 0, 1 and 2 finds none of ours there (CP5 E6)" {
	peer full 127.0.0.1 full
	bare sh -c 'exec "$0" "$@" <&- >&- 2>&-' "$bin/descriptors" bare_start "$full_port" 1 0
	shim_part
	export RESIL_SET='connect_timeout=300ms'
	under sh -c 'exec "$0" "$@" <&- >&- 2>&-' "$bin/descriptors" bare_start "$full_port" 1 300
}

@test "closed in the middle of a connect a thousand times: nothing is left in flight (CN5 B7)" {
	peer full 127.0.0.1 full
	run bare "$bin/descriptors" close_midway "$full_port" 1 0
	assert_output ok
	shim_part
	run under "$bin/descriptors" close_midway "$full_port" 1 0
	assert_output ok
	assert_equal "$(destination "127.0.0.1:$full_port" calls.in_flight)" 0
	assert_equal "$(destination "127.0.0.1:$full_port" calls.neutral)" 1000
	assert_equal "$(destination "127.0.0.1:$full_port" state)" closed
}

@test "a probe closed in the middle of its connect frees its slot: the next connect probes, a thousand times (CN5 B7)" {
	netns_start
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=50ms;recovery_jitter=0%'
	run under "$bin/dial" -n 5 127.0.0.1 "$server_port"
	peer_now server full
	sleep 0.1
	before=$(syns_sent)
	RESIL_GROUP=dial run under "$bin/descriptors" close_midway "$server_port" 1 0
	assert_output ok
	assert_equal "$(syns_sent)" $((before + 1000))
	assert_equal "$(destination "127.0.0.1:$server_port" state)" half_open
	assert_equal "$(destination "127.0.0.1:$server_port" probes.in_flight)" 0
}

await() { # WAY: the three ends of a connect, read in three ways
	local end name
	peer full 127.0.0.1 full
	peer server 127.0.0.1 answer
	peer dead 127.0.0.1 refuse
	for end in error connect write; do
		run bare "$bin/await" "$1" "$end" "$server_port"
		assert_output --regexp '^0 '
		run bare "$bin/await" "$1" "$end" "$dead_port"
		assert_output --regexp '^ECONNREFUSED '
	done
	shim_part
	export RESIL_SET='connect_timeout=300ms;recovery_timeout=1m'
	for end in error connect write; do
		rm -rf "$RESIL_STATE_DIR"
		run under "$bin/await" "$1" "$end" "$server_port"
		assert_output --regexp '^0 '
		for _ in 1 2 3 4 5; do
			run under "$bin/await" "$1" "$end" "$dead_port"
			assert_output --regexp '^ECONNREFUSED '
		done
		assert_equal "$end: $(destination "127.0.0.1:$dead_port" state)" "$end: open"
		run traced "$dir/trace" under "$bin/await" "$1" "$end" "$dead_port"
		assert_output --regexp '^ECONNREFUSED '
		assert_equal "$end: $(connects_to "$dead_port" "$dir/trace")" "$end: 0"
		run under "$bin/await" "$1" "$end" "$full_port"
		assert_output --regexp '^ETIMEDOUT '
		[ "${output#* }" -ge 299 ] || fail "$end: before its limit: $output"
		within "${output#* }" 320
		assert_equal "$end: $(destination "127.0.0.1:$full_port" failures.connect_timeout)" "$end: 1"
		assert_equal "$end: $(destination "127.0.0.1:$server_port" calls.success)" "$end: 1"
	done
}
@test "awaited by poll, read by SO_ERROR, a second connect or a write (CN1 C5)" { await poll; }
@test "awaited by select, read by SO_ERROR, a second connect or a write (CN1 C5)" { await select; }
@test "awaited by epoll, level, read by SO_ERROR, a second connect or a write (CN1 C5)" { await level; }
@test "awaited by epoll, edge, read by SO_ERROR, a second connect or a write (CN1 C5)" { await edge; }
@test "awaited by epoll, edge, registered before the connect, read in the three ways (CN1 C5)" { await early; }

# calls CASE PORT: programs/calls.c must say under the shim what it says without.
same_as_bare() {
	run bare "$bin/calls" "$@" </dev/null
	bare_output=$output
	shim_part
	run under "$bin/calls" "$@" </dev/null
	assert_output "$bare_output"
}

fast_open() { # CASE
	netns_start
	peer server 127.0.0.1 answer
	peer dead 127.0.0.1 refuse
	peer full 127.0.0.1 full
	run bare "$bin/calls" "$1" "$dead_port"
	assert_output "$1 ECONNREFUSED"
	same_as_bare "$1" "$server_port"
	export RESIL_SET='connect_timeout=300ms;recovery_timeout=1m'
	before=$(syns_sent)
	for _ in 1 2 3 4 5 6; do
		run under "$bin/calls" "$1" "$dead_port"
		assert_output "$1 ECONNREFUSED"
	done
	assert_equal "SYNs: $(($(syns_sent) - before))" "SYNs: 5"
	begin=$(now_ms)
	run under "$bin/calls" "$1" "$full_port"
	assert_output "$1 ETIMEDOUT"
	within $(($(now_ms) - begin)) 700 # a process start included, on a busy machine
	assert_equal "$(destination "127.0.0.1:$full_port" failures.connect_timeout)" 1
	assert_equal "$(destination "127.0.0.1:$server_port" calls.success)" 1
}
@test "sendto with MSG_FASTOPEN is admitted, timed and judged like a connect (CN2)" { fast_open sendto; }
@test "sendmsg with MSG_FASTOPEN is admitted, timed and judged like a connect (CN2)" { fast_open sendmsg; }
@test "TCP_FASTOPEN_CONNECT is admitted, timed and judged like a connect (CN2)" { fast_open fastopen_connect; }

@test "syscall(SYS_connect) is seen, other numbers pass with all six arguments (E12)" {
	peer server 127.0.0.1 answer
	peer dead 127.0.0.1 refuse
	same_as_bare syscall "$server_port"
	export RESIL_SET='failure_threshold=1;recovery_timeout=1m'
	run under "$bin/calls" syscall "$dead_port"
	assert_line "connect ECONNREFUSED"
	run traced "$dir/trace" under "$bin/calls" syscall "$dead_port"
	assert_line "connect ECONNREFUSED"
	assert_equal "$(connects_to "$dead_port" "$dir/trace")" 0
}

@test "short, oversized, mapped, scoped and broken addresses: the errors of the system (CN6 E1)" {
	peer server 127.0.0.1 answer
	same_as_bare addresses "$server_port"
	peer dead 127.0.0.1 refuse
	run bare "$bin/calls" addresses "$dead_port" </dev/null
	bare_output=$output
	export RESIL_SET='failure_threshold=0'
	run under "$bin/calls" addresses "$dead_port" </dev/null
	assert_output "$bare_output"
	# A mapped address is its IPv4 address, whoever asks.
	run resil status --json
	assert_equal "$(grep -o "\"name\":\"[^\"]*:$dead_port\"" <<<"$output" | grep -v fe80 | sort -u)" "\"name\":\"127.0.0.1:$dead_port\""
}

@test "connected twice, let go by AF_UNSPEC, connected again (CN6 E1)" {
	peer server 127.0.0.1 answer
	same_as_bare again "$server_port"
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 0
	assert_equal "$(destination "127.0.0.1:$server_port" calls.in_flight)" 0
}

@test "a signal interrupts a blocking connect as ever; EINTR is neutral (E1 A6)" {
	peer full 127.0.0.1 full
	same_as_bare eintr "$full_port"
	assert_output "connect EINTR"
	assert_equal "$(destination "127.0.0.1:$full_port" calls.failure)" 0
}

@test "a signal with SA_RESTART does not interrupt a blocking connect, and its limit stays (E1 C5)" {
	peer full 127.0.0.1 full
	run timeout 0.6 "$bin/calls" restart "$full_port"
	assert_failure 124
	shim_part
	export RESIL_SET='connect_timeout=300ms'
	begin=$(now_ms)
	run under "$bin/calls" restart "$full_port"
	assert_output "connect ETIMEDOUT"
	within $(($(now_ms) - begin)) 700 # a process start included, on a busy machine
}

@test "the app's own SO_SNDTIMEO, if shorter, wins, and is found as it was (C2 E1)" {
	peer full 127.0.0.1 full
	same_as_bare own_timeout "$full_port"
}

@test "a blocking connect is ended on time without a thread (C5 E5)" {
	peer full 127.0.0.1 full
	shim_part
	export RESIL_SET='connect_timeout=300ms'
	run under strace -f -e trace=clone,clone3 -o "$dir/trace" "$bin/dial" 127.0.0.1 "$full_port"
	assert_output --regexp '^ETIMEDOUT '
	within $((${output#* } / 1000)) 320
	assert_equal "$(grep -c clone "$dir/trace" || true)" 0
}

@test "Python's subprocess with close_fds while a limit runs: the child's descriptors are its own, the limit holds (CP1)" {
	peer full 127.0.0.1 full
	cat >"$dir/sub.py" <<-'END'
		import os, socket, subprocess, sys, time
		s = socket.socket()
		s.setblocking(False)
		begin = time.monotonic()
		try:
		    s.connect(("127.0.0.1", int(sys.argv[1])))
		except BlockingIOError:
		    pass
		for n in range(5):
		    out = subprocess.run(["sh", "-c", "echo /proc/self/fd/*"], close_fds=True, capture_output=True, text=True)
		    print(out.stdout.strip().replace("/proc/self/fd/", ""))
		import select
		p = select.poll()
		p.register(s, select.POLLOUT)
		print("timed out" if p.poll(1000) and s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 110 else "pending")
	END
	run bare python3 "$dir/sub.py" "$full_port"
	assert_line pending
	bare_output=${output%pending}
	shim_part
	export RESIL_SET='connect_timeout=300ms'
	run under python3 "$dir/sub.py" "$full_port"
	assert_output "${bare_output}timed out"
}

@test "a handler forks in the midst of a blocking connect: the child, whose call it is not, uses it at once (E4)" {
	run bare "$bin/fork_in_handler"
	assert_output ok
	shim_part
	run under "$bin/fork_in_handler"
	assert_success
	assert_output ok
}
@test "forks in a loop while other threads connect, look names up and meet limits: nothing hangs (CP6 E4)" {
	peer full 127.0.0.1 full
	peer server 127.0.0.1 answer
	peer dead 127.0.0.1 refuse
	run bare "$bin/forks" "$full_port" "$server_port" "$dead_port"
	assert_output ok
	shim_part
	export RESIL_SET='connect_timeout=20ms;failure_threshold=0'
	run under "$bin/forks" "$full_port" "$server_port" "$dead_port"
	assert_success
	assert_output ok
}
