#!/usr/bin/env bats
# A host in want of something: the program goes on as without us, and the log says at most one line for each thing that was not to be had (E7).
load lib/common

scarce() { # CASE [MORE]: bare, then under the shim, with the log in a file
	peer dead 127.0.0.1 refuse
	run bare "$bin/scarce" "$1" "$dead_port" ${2:+"$2"}
	assert_success
	bare_output=$output
	shim_part
	RESIL_LOG=$dir/log run under "$bin/scarce" "$1" "$dead_port" ${2:+"$2"}
	assert_success
	assert_output "$bare_output"
}
# How many lines the log has besides those about circuits.
remarks() { grep -vcE ' (closed|open|half_open) -> | rejected: ' "$dir/log" || true; }
dead_state() { destination "127.0.0.1:$dead_port" state; }

@test "threads with the smallest stack there may be connect, and look names up (E7)" {
	scarce stack
	assert_equal "$(dead_state)" open
}

@test "little address space, from none to 16 MB when the first connect comes (E7)" {
	scarce memory
}

@test "a limit of descriptors as high as may be, sockets above 1024 and at the very top: guarded like others (E7)" {
	scarce descriptors
	assert_equal "$(dead_state)" open
	assert_equal "$(destination "127.0.0.1:$dead_port" calls.rejected)" 4
}

@test "static TLS: ours is small, and as many libraries can be loaded as without us (E7)" {
	for i in $(seq 0 63); do
		[ "$i" != 0 ] || echo '__thread char big[200] __attribute__((tls_model("initial-exec"))) = "x"; char *at(void) { return big; }' |
			gcc -shared -fPIC -o "$dir/tls.so.0" -x c -
		[ "$i" = 0 ] || cp "$dir/tls.so.0" "$dir/tls.so.$i"
	done
	scarce tls "$dir/tls.so"
	size=$(readelf -lW "$shim" | awk '$1 == "TLS" { print $6 }')
	[ $((size)) -le 128 ] || fail "static TLS of $((size)) bytes"
}

# The shim, a program and the state where another user finds them.
as_nobody() { # COMMAND...
	setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "$@"
}
give_to_nobody() {
	need_root "another user is needed, since root has no such limit"
	place=$(mktemp -d /tmp/resil-test-XXXXXX)
	mkdir "$place/state" "$place/run"
	cp "$shim" "$bin/scarce" "$place"
	chmod 755 "$place"
	chmod 700 "$place/state" "$place/run"
	chown 65534 "$place/state" "$place/run"
}
teardown() {
	[ -z "${place-}" ] || rm -rf "$place"
	common_teardown
}

@test "no thread is to be had: said once, and the circuit does its work (E7)" {
	shim_part
	give_to_nobody
	peer dead 127.0.0.1 refuse
	run as_nobody timeout -k 2 "$TEST_TIMEOUT" "$place/scarce" threads "$dead_port"
	assert_output ok
	run as_nobody timeout -k 2 "$TEST_TIMEOUT" env LD_PRELOAD="$place/libresil.so" RESIL_STATE_DIR="$place/state" RESIL_RUNTIME_DIR="$place/run" \
		RESIL_LOG="$place/state/log" "$place/scarce" threads "$dead_port"
	assert_success
	assert_output ok
	cp "$place/state/log" "$dir/log"
	assert_equal "$(remarks)" 1
	grep -q 'no thread is to be had' "$dir/log"
	chown -R 0 "$place/state" # who looks is root, and refuses another's
	RESIL_STATE_DIR=$place/state assert_equal "$(RESIL_STATE_DIR=$place/state dead_state)" open
}

# --- files ---

# In a mount namespace of its own, after the commands of SETUP: dial seven times, bare and under the shim.
mounted() { # SETUP
	need_root "mounts of its own"
	unshare -m true 2>/dev/null || skip "a mount namespace is not to be had here"
	peer dead 127.0.0.1 refuse
	shim_part
	# The log may be where nothing can be written: what is said there is said to nobody.
	run timeout -k 2 "$TEST_TIMEOUT" unshare -m sh -ec "$1"'
		dir=$1 shim=$2 dial=$3 port=$4
		told() { code=0; "$@" >"$dir/out" 2>&1 || code=$?; cut -d" " -f1 "$dir/out"; echo "code $code"; }
		told "$dial" -n 7 127.0.0.1 "$port" >"$dir/bare"
		told env LD_PRELOAD="$shim" "$dial" -n 7 127.0.0.1 "$port" >"$dir/under"
		told env LD_PRELOAD="$shim" "$dial" -a -n 7 127.0.0.1 "$port" >"$dir/under-async"' sh "$dir" "$shim" "$bin/dial" "$dead_port"
	assert_success
	assert_output ""
	assert_equal "$(grep -c ECONNREFUSED "$dir/bare")" 7
	assert_equal "$(cat "$dir/under")" "$(cat "$dir/bare")"
	assert_equal "$(cat "$dir/under-async")" "$(cat "$dir/bare")"
}
no_shared_state() { # TIMES
	assert_equal "$(grep -c 'no shared state' "$dir/log")" "$1"
	assert_equal "$(remarks)" "$1"
}

@test "/dev/shm that cannot be written: a process has its own state, and says so once (E7)" {
	unset RESIL_STATE_DIR
	export RESIL_LOG=$dir/log
	mounted 'mount -t tmpfs -o ro none /dev/shm'
	no_shared_state 2
}

@test "no /dev/shm at all: a process has its own state, and says so once (E7)" {
	unset RESIL_STATE_DIR
	export RESIL_LOG=$dir/log
	mounted 'new=$(mktemp -d); mount -t tmpfs none $new; for f in null zero urandom; do touch $new/$f; mount --bind /dev/$f $new/$f; done; mount --move $new /dev; rmdir $new'
	no_shared_state 2
}

@test "a full tmpfs: no SIGBUS, a process has its own state, and says so once (E7)" {
	export RESIL_STATE_DIR=$dir/small/state RESIL_LOG=$dir/log
	mkdir "$dir/small"
	mounted "mount -t tmpfs -o size=64k none '$dir/small'"
	no_shared_state 2
}

@test "a full disk for the log, and a log that takes nothing: the program hears nothing (E7 E8)" {
	export RESIL_LOG=$dir/small/log
	mkdir "$dir/small"
	mounted "mount -t tmpfs -o size=16k none '$dir/small'; cat /dev/zero >'$dir/small/fill' 2>/dev/null || true"
	assert_equal "$(dead_state)" open
	rm "$dir"/dead.in
	for RESIL_LOG in /dev/full /proc/nowhere "$dir" "$dir/fifo"; do
		[ "$RESIL_LOG" != "$dir/fifo" ] || mkfifo "$dir/fifo"
		rm -rf "$RESIL_STATE_DIR"
		run under "$bin/dial" -n 7 127.0.0.1 "$dead_port"
		assert_equal "$RESIL_LOG: $(cut -d' ' -f1 <<<"$output" | sort | uniq -c | xargs)" "$RESIL_LOG: 7 ECONNREFUSED"
	done
}

@test "RLIMIT_FSIZE: a log that may not grow ends before the limit, no SIGXFSZ (E7)" {
	peer dead 127.0.0.1 refuse
	shim_part
	export RESIL_LOG=$dir/log RESIL_SET='failure_threshold=1;recovery_timeout=1ms;recovery_max=1ms'
	run under sh -c 'ulimit -f 2; # blocks of 512
		 exec "$@"' sh "$bin/dial" -n 40 -i 3 127.0.0.1 "$dead_port"
	assert_failure 1
	assert_equal "$(cut -d' ' -f1 <<<"$output" | sort | uniq -c | xargs)" "40 ECONNREFUSED"
	size=$(stat -c %s "$dir/log")
	[ "$size" -gt 700 ] && [ "$size" -le 1024 ] || fail "the log has $size bytes"
}

@test "more destinations than guards are kept, their places given away again and again: calls are counted as ever (B17 E7)" {
	peer dead 127.0.0.1 refuse
	shim_part
	run under python3 -c "$(
		cat <<-'END'
			import socket, sys
			listener = socket.create_server(("0.0.0.0", 0), backlog=100)
			port, dead = listener.getsockname()[1], int(sys.argv[1])
			def call(i):
			    s = socket.socket()
			    s.connect((f"127.1.{i >> 8}.{i & 255}", port))
			    listener.accept()[0].close()
			    s.close()
			for i in list(range(2600)) + [2600] * 3:
			    call(i)
			for i in range(8):
			    try:
			        socket.create_connection(("127.0.0.1", dead))
			    except ConnectionRefusedError:
			        pass
			print(port)
		END
	)" "$dead_port"
	assert_success
	assert_equal "$(destination "127.1.10.40:$output" calls.neutral)" 3
	assert_equal "$(destination "127.1.10.40:$output" calls.in_flight)" 0
	assert_equal "$(dead_state)" open
	assert_equal "$(destination "127.0.0.1:$dead_port" calls.rejected)" 3
}
