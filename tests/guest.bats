#!/usr/bin/env bats
# A guest in someone else's process: what it takes, what it costs, and that it leaves no trace where it has nothing to do.
load lib/common

# Instructions of a command, by callgrind; only inside of the function when one is named.
instructions() { # [-f FUNCTION] COMMAND...
	local toggle=()
	if [ "$1" = -f ]; then
		toggle=("--toggle-collect=$2")
		shift 2
	fi
	timeout "$TEST_TIMEOUT" env ${preload:+LD_PRELOAD=$preload} valgrind --tool=callgrind --callgrind-out-file=/dev/null ${toggle[@]+"${toggle[@]}"} \
		"$@" 2>"$dir/callgrind" >/dev/null </dev/null 3>&- || fail "callgrind: $(cat "$dir/callgrind")"
	sed -n 's/.*Collected : //p' "$dir/callgrind" | tail -n 1
}

@test "true under the shim: no thread, no file, no descriptor kept (E5)" {
	run bare sh -c 'echo /proc/self/fd/*; grep Threads /proc/self/status'
	bare_output=$output
	shim_part
	run under sh -c 'echo /proc/self/fd/*; grep Threads /proc/self/status'
	assert_output "$bare_output"
	run timeout "$TEST_TIMEOUT" strace -f -o "$dir/trace" -e trace=clone,clone3,openat,open,creat,mkdir,mkdirat,memfd_create,socket \
		-E "LD_PRELOAD=$shim" true
	assert_success
	refute_output
	run grep -E 'clone|O_CREAT|O_WRONLY|O_RDWR|mkdir|memfd|socket\(' "$dir/trace"
	refute_output
	[ ! -e "$RESIL_STATE_DIR" ] && [ ! -e "$RESIL_RUNTIME_DIR" ]
}

@test "true under the shim costs under 150,000 instructions more (E5)" {
	shim_part
	preload= plain=$(instructions true)
	[ "$plain" -gt 1000 ] || fail "callgrind counted $plain"
	preload=$shim guest=$(instructions true)
	echo "# true: $((guest - plain)) instructions more" >&3
	[ $((guest - plain)) -lt 150000 ]
}

@test "a rejected connect makes no system call (B6)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=5m;recovery_max=5m'
	run timeout "$TEST_TIMEOUT" strace -f -o "$dir/trace" -E "LD_PRELOAD=$shim" "$bin/cost" rejected "$server_port" 1000
	assert_success
	run awk '/getppid/ { if (n++) exit; next } n' "$dir/trace"
	refute_output
	assert_equal "$(destination "127.0.0.1:$server_port" calls.rejected)" 1001
}

@test "a rejected connect costs under 500 instructions" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=5m;recovery_max=5m'
	preload=$shim
	few=$(instructions -f measured "$bin/cost" rejected "$server_port" 1000)
	rm -rf "$RESIL_STATE_DIR"
	many=$(instructions -f measured "$bin/cost" rejected "$server_port" 3000)
	echo "# a rejected connect: $(((many - few) / 2000)) instructions" >&3
	[ "$many" -gt "$few" ] || fail "callgrind counted $few and $many"
	[ $(((many - few) / 2000)) -lt 500 ]
}

@test "an admitted connect, from the second on, adds at most two system calls" {
	peer server 127.0.0.1 answer
	for kind in blocking async; do
		for how in bare under; do
			[ "$how" = bare ] || shim_part
			[ "$how" = bare ] && set=() || set=(-E "LD_PRELOAD=$shim")
			run timeout "$TEST_TIMEOUT" strace -f -o "$dir/trace" ${set[@]+"${set[@]}"} "$bin/cost" "$kind" "$server_port" 20
			assert_success
			# The most between two marks, the first connect left out: it attaches, and starts the thread that holds limits. Only the app's
			# own thread: the other one sleeps through all of this.
			most=$(awk 'NR == 1 { app = $1 } $1 != app { next }
				/resumed/ { next }
				/getppid/ { if (++n % 2 == 0 && n > 2 && calls > most) most = calls; calls = 0; next }
				!/exited/ { calls++ }
				END { print most + 0 }' "$dir/trace")
			[ "$how" = bare ] && plain=$most
		done
		echo "# $kind: $plain system calls bare, $most under the shim" >&3
		[ "$most" -le $((plain + 2)) ] || fail "$kind: $plain system calls bare, $most under the shim"
	done
}

@test "only taken names are exported, each of them libc's own or a TLS library's (E9)" {
	shim_part
	libc=$(ldconfig -p | sed -n 's/.*libc\.so\.6 (libc6,x86-64.*=> //p' | head -n 1)
	[ -n "$libc" ] || skip "another kind of machine"
	tls=$(sed -nE 's/^TAKEN_TLS\([^,]*, ([A-Za-z_0-9]+),.*/\1/p' "$root/src/base/taken.h" | sort)
	assert_equal "$(xargs <<<"$tls")" "SSL_read SSL_read_ex SSL_write SSL_write_ex gnutls_record_recv gnutls_record_recv_packet gnutls_record_recv_seq gnutls_record_send gnutls_record_send2 gnutls_record_send_range"
	{ nm -D --defined-only "$libc"; awk '{ print 0, "T", $1 }' <<<"$tls"; } | awk '{ print $3 }' | sed 's/@.*//' | sort -u >"$dir/libc"
	nm -D --defined-only "$shim" | awk '{ print $3 }' | sed 's/@.*//' | sort -u >"$dir/ours"
	[ "$(wc -l <"$dir/ours")" -gt 20 ] || fail "$(cat "$dir/ours")"
	run comm -13 "$dir/libc" "$dir/ours"
	refute_output
}

@test "the shim needs libc alone, no symbol newer than 2.17 and no executable stack (E9)" {
	shim_part
	run readelf -d "$shim"
	assert_equal "$(sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' <<<"$output" | grep -vE '^(libc|libdl|libpthread|ld-linux.*)\.so' || true)" ""
	run readelf -lW "$shim"
	assert_output --regexp 'GNU_STACK.* RW '
	refute_output --regexp 'GNU_STACK.* RWE'
	newest=$(nm -D "$shim" | grep -o 'GLIBC_2\.[0-9]*' | sort -u -t. -k2 -n | tail -n 1)
	[ "${newest#GLIBC_2.}" -le 17 ] || fail "needs $newest"
}

@test "jemalloc and tcmalloc preloaded beside the shim, either order (CP9)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='recovery_timeout=5m;recovery_max=5m' # longer than six starts
	for lib in libjemalloc.so.2 libtcmalloc_minimal.so.4; do
		ldconfig -p | grep -q "$lib" || skip "$lib is not here"
		for preload in "$lib $shim" "$shim $lib"; do
			rm -rf "$RESIL_STATE_DIR"
			for i in 1 2 3 4 5 6; do
				run timeout "$TEST_TIMEOUT" env "LD_PRELOAD=$preload" curl -sS "http://127.0.0.1:$server_port/"
				assert_failure 7
			done
			assert_equal "$preload: $(destination "127.0.0.1:$server_port" calls.rejected)" "$preload: 1"
		done
	done
}

@test "a program built with ASan, shared and static runtime (CP9)" {
	peer server 127.0.0.1 refuse
	source=$root/tests/programs/dial.c
	gcc -fsanitize=address -D_GNU_SOURCE -o "$dir/shared" "$source" 2>"$dir/cc" || skip "no ASan here: $(tail -n 1 "$dir/cc")"
	gcc -fsanitize=address -static-libasan -D_GNU_SOURCE -o "$dir/static" "$source"
	runtime=$(gcc -print-file-name=libasan.so)
	for program in shared static; do
		run bare "$dir/$program" 127.0.0.1 "$server_port"
		assert_output --regexp '^ECONNREFUSED'
	done
	shim_part
	export RESIL_SET='recovery_timeout=5m;recovery_max=5m'
	for program in shared static; do
		first=
		[ "$program" = static ] || first="$(realpath "$runtime") "
		run timeout "$TEST_TIMEOUT" env "LD_PRELOAD=$first$shim" "$dir/$program" -n 7 127.0.0.1 "$server_port"
		assert_failure 1
		assert_equal "$(cut -d' ' -f1 <<<"$output" | sort | uniq -c | xargs)" "7 ECONNREFUSED"
		assert_equal "$(destination "127.0.0.1:$server_port" calls.rejected -g "$program")" 2
	done
}

@test "a program built with TSan, blocking: nothing is reported, and the circuit opens (CP9)" {
	peer server 127.0.0.1 refuse
	gcc -fsanitize=thread -O1 -g -D_GNU_SOURCE -pthread -I"$root/tests/programs" -o "$dir/dial" "$root/tests/programs/dial.c" 2>"$dir/cc" || skip "no TSan here: $(tail -n 1 "$dir/cc")"
	run bare "$dir/dial" -n 7 127.0.0.1 "$server_port"
	assert_failure 1
	assert_equal "$(cut -d' ' -f1 <<<"$output" | sort | uniq -c | xargs)" "7 ECONNREFUSED"
	shim_part
	export RESIL_SET='recovery_timeout=5m;recovery_max=5m'
	run under "$dir/dial" -n 7 127.0.0.1 "$server_port"
	assert_failure 1
	assert_equal "$(cut -d' ' -f1 <<<"$output" | sort | uniq -c | xargs)" "7 ECONNREFUSED"
	assert_equal "$(destination "127.0.0.1:$server_port" calls.rejected)" 2
}

@test "valgrind finds no fault in a program under the shim (E1)" {
	peer server 127.0.0.1 refuse
	shim_part
	run timeout "$TEST_TIMEOUT" env "LD_PRELOAD=$shim" valgrind -q --error-exitcode=9 "$bin/dial" -a -n 7 127.0.0.1 "$server_port"
	assert_failure 1
	assert_equal "$(cut -d' ' -f1 <<<"$output" | sort | uniq -c | xargs)" "7 ECONNREFUSED"
}

@test "no state folder, no runtime folder: the app runs on, unguarded or alone, and hears nothing (E7 E8)" {
	peer server 127.0.0.1 answer
	shim_part
	export RESIL_STATE_DIR=/proc/nowhere RESIL_RUNTIME_DIR=/proc/nowhere
	run under "$bin/dial" -n 3 127.0.0.1 "$server_port"
	assert_success
	assert_equal "${#lines[@]}" 3
	ln -s "$dir/elsewhere" "$dir/link"
	mkdir "$dir/elsewhere"
	RESIL_STATE_DIR=$dir/link run under "$bin/dial" -n 3 127.0.0.1 "$server_port"
	assert_success
	assert_equal "$(ls -A "$dir/elsewhere")" "" # symbolic links are refused (E11)
}

@test "few descriptors, little memory, no file to grow: the app runs on (E7)" {
	peer server 127.0.0.1 answer
	shim_part
	for limit in '-n 8' '-n 1048576' '-v 60000' '-f 0' '-u 1'; do
		rm -rf "$RESIL_STATE_DIR"
		# -n beyond the hard limit is what it is: the case is skipped where it cannot be set.
		run under sh -c "ulimit $limit 2>/dev/null || { echo skipped; exit 0; }; exec \"\$@\"" sh "$bin/dial" -n 2 127.0.0.1 "$server_port"
		assert_success
		refute_output --partial resil
	done
}

@test "random bytes in the region: no process crashes, and none hangs (E10)" {
	peer server 127.0.0.1 refuse
	shim_part
	run under "$bin/dial" -n 6 127.0.0.1 "$server_port"
	start member under "$bin/dial" -n 100000 -i 1 127.0.0.1 "$server_port"
	region=$(ls "$RESIL_STATE_DIR"/dial.*)
	for round in {1..16}; do
		python3 -c '
import random, sys
random.seed(int(sys.argv[2]))
with open(sys.argv[1], "r+b") as f:
    size = f.seek(0, 2)
    for n in range(5000):
        f.seek(random.randrange(size))
        f.write(random.randbytes(random.choice((1, 8, 64))))' "$region" "$round"
		run under "$bin/dial" -n 3 127.0.0.1 "$server_port"
		[ "$status" -le 1 ] || fail "round $round: exit code $status: $output"
		run resil status
		[ "$status" -lt 124 ] || fail "round $round: status: $status"
		run resil events
		[ "$status" -lt 124 ] || fail "round $round: events: $status"
		kill -0 "$member_pid" || fail "round $round: the member has died"
	done
}

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
