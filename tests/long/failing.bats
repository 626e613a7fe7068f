#!/usr/bin/env bats
# Refused by the system, at every place where we ask it for something: the program runs on, and says what it says without us (E7, CP10).
# Stands on a build of the shim whose own system calls fail in turn (src/base/fail.h).
load ../lib/common
load ../lib/failing

@test "each of our system calls refused: blocking connects end as they do bare (CP10 E7)" {
	peer server 127.0.0.1 answer
	each_refused "$bin/dial" -n 3 127.0.0.1 "$server_port"
}

@test "each of our system calls refused: non-blocking connects end as they do bare (CP10 E7)" {
	peer server 127.0.0.1 answer
	errno=24 each_refused "$bin/dial" -a -n 2 127.0.0.1 "$server_port"
}

@test "each of our system calls refused: curl on a dead port says what it says bare (CP10 E7)" {
	peer dead 127.0.0.1 refuse
	errno=28 each_refused curl -sS "http://127.0.0.1:$dead_port/"
}

@test "each of our system calls refused: a limit is met or the kernel's own, and nothing hangs (CP10 E7)" {
	peer full 127.0.0.1 full
	export bin RESIL_SET='connect_timeout=100ms'
	rm -rf "$RESIL_STATE_DIR"
	RESIL_FAIL_COUNT=$dir/count under "$bin/dial" -a 127.0.0.1 "$full_port" >/dev/null || true
	for ((n = 1; n <= $(cat "$dir/count"); n++)); do
		rm -rf "$RESIL_STATE_DIR"
		run env RESIL_FAIL_NTH=$n LD_PRELOAD="$shim" timeout -k 2 3 "$bin/dial" -a 127.0.0.1 "$full_port"
		# 124: a limit that could not be put into force leaves the kernel's own, minutes away. ECONNRESET: it was put into force, and then whose
		# socket it is could not be read: the kernel's own answer stands (C7).
		[ "$status" = 124 ] || [[ $output == ETIMEDOUT* || $output == ECONNRESET* ]] || fail "$n: $status $output"
	done
}
