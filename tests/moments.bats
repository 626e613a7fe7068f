#!/usr/bin/env bats
# Connects at odd moments of a process's life (E2), what they leave untouched (E8), and a region that goes away or becomes another's (E15).
load lib/common

moments() { # CASE: bare, then under the shim, the same words
	peer dead 127.0.0.1 refuse
	run bare "$bin/moments" "$1" "$dead_port"
	assert_success
	assert_line ok
	bare_output=$output
	shim_part
	run under "$bin/moments" "$1" "$dead_port"
	assert_success
	assert_output "$bare_output"
}

@test "connect, send, recv, close and their kin allocate nothing (E2)" {
	# No limit: libc's own pthread_create allocates, and it is called for a limit only.
	export RESIL_SET='connect_timeout=off'
	moments allocations
}

@test "connects before main and before our constructor, at exit and after it (E2)" {
	moments edges
	assert_equal "$(grep -c 'after exit: ok' <<<"$output")" 2
	# A library whose constructor runs before ours: preloaded behind us, it is initialised first.
	cat >"$dir/early.c" <<-'END'
		#include <arpa/inet.h>
		#include <errno.h>
		#include <netdb.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <sys/socket.h>
		#include <unistd.h>
		static void all(const char *when)
		{
			struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(getenv("EARLY_PORT"))), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
			struct addrinfo *found;
			char byte;
			int fd = socket(AF_INET, SOCK_STREAM, 0), error = connect(fd, (void *)&to, sizeof to) ? errno : 0, other = dup(fd);
			int sent = send(fd, "x", 1, MSG_NOSIGNAL) < 0 ? errno : 0, got = recv(fd, &byte, 1, MSG_DONTWAIT) < 0 ? errno : 0;
			int looked = getaddrinfo("127.0.0.1", "80", NULL, &found);
			if (!looked) freeaddrinfo(found);
			fprintf(stderr, "%s %d %d %d %d %d %d\n", when, error, sent, got, looked, close(other), close(fd));
		}
		__attribute__((constructor)) static void first(void) { all("first"); }
		__attribute__((destructor)) static void last(void) { all("last"); }
	END
	gcc -D_GNU_SOURCE -shared -fPIC -o "$dir/early.so" "$dir/early.c"
	export EARLY_PORT=$dead_port
	run timeout "$TEST_TIMEOUT" env LD_PRELOAD="$dir/early.so" true
	assert_equal "${#lines[@]}" 2
	bare_output=$output
	for order in "$shim $dir/early.so" "$dir/early.so $shim"; do
		rm -rf "$RESIL_STATE_DIR"
		run timeout "$TEST_TIMEOUT" env LD_PRELOAD="$order" true
		assert_success
		assert_output "$bare_output"
	done
}

@test "connects between fork and exec while other threads connect and allocate (E2 E4)" { moments fork_exec; }

@test "errno at main, random numbers, locale, signal masks and handlers, timers, umask: as without us (E8 CP8)" { moments state; }

@test "setuid, setresuid, setreuid and seteuid: the next connect has its own user's region (E15)" {
	need_root "to become another user"
	unshare -m true 2>/dev/null || skip "a mount namespace is not to be had here"
	peer dead 127.0.0.1 refuse
	shim_part
	run timeout -k 2 "$TEST_TIMEOUT" unshare -m sh -ec 'mount -t tmpfs -o mode=1777 none /dev/shm; exec env -u RESIL_STATE_DIR LD_PRELOAD="$1" "$2" identity "$3"' \
		sh "$shim" "$bin/moments" "$dead_port"
	assert_success
	assert_output ok
}

region_file() { ls "$RESIL_STATE_DIR"/dial.* 2>/dev/null; }
has_region() { [ -n "$(region_file)" ]; }

@test "a region that was unlinked is there again about a second later, with everybody in it (E15)" {
	peer dead 127.0.0.1 refuse
	shim_part
	# Every connect is let through: a rejected one makes no system call, and so does not look (B6).
	export RESIL_SET='failure_threshold=0'
	start one under "$bin/dial" -n 2000 -i 20 127.0.0.1 "$dead_port"
	start two under "$bin/dial" -n 2000 -i 20 127.0.0.1 "$dead_port"
	wait_until has_region
	begin=$(now_ms)
	rm -rf "$RESIL_STATE_DIR"
	wait_until has_region
	within $(($(now_ms) - begin)) 1300
	# By inode: a file made under another name and linked keeps that name in maps.
	both_are_back() {
		local inode
		inode=$(stat -c %i "$(region_file)" 2>/dev/null) && grep -q " $inode " "/proc/$one_pid/maps" && grep -q " $inode " "/proc/$two_pid/maps"
	}
	wait_until both_are_back
	kill -0 "$one_pid" && kill -0 "$two_pid"
}

@test "RESIL_DISABLE=1: no file of ours is looked at, no region, and the system calls of a connect are the program's (CONTRACT 2)" {
	peer dead 127.0.0.1 refuse
	calls() { strace -f -o "$dir/trace" "$@" "$bin/dial" -a -n 7 127.0.0.1 "$dead_port" >/dev/null; sed -n '/prlimit64\|execve/d; /socket(/,$p' "$dir/trace" | sed 's/^[0-9]* //; s/[({].*//' | grep -v '^poll\|^write\|^ppoll'; }
	calls >"$dir/bare" || true
	shim_part
	export RESIL_DISABLE=1
	calls -E "LD_PRELOAD=$shim" >"$dir/under" || true
	[ "$(grep -c connect "$dir/bare")" = 7 ] || fail "$(cat "$dir/bare")"
	assert_equal "$(cat "$dir/under")" "$(cat "$dir/bare")"
	refute grep -E 'proc/self/exe|resil\.conf|/run/resil|clone' "$dir/trace"
	[ ! -e "$RESIL_STATE_DIR" ]
	RESIL_DISABLE=0 run under "$bin/dial" 127.0.0.1 "$dead_port"
	has_region
}
