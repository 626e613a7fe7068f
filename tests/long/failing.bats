#!/usr/bin/env bats
# Refused by the system, at every place where we ask it for something: the program runs on, and says what it says without us (E7, CP10).
# Stands on a build of the shim whose own system calls fail in turn (src/base/fail.h).
load ../lib/common

setup_file() {
	local build=${BUILD:-build}
	case $build in /*) ;; *) build=$BATS_TEST_DIRNAME/../../$build ;; esac
	env -u LD_PRELOAD make -s -C "$BATS_TEST_DIRNAME/../.." BUILD="$build/failing" EXTRA_CFLAGS=-DRESIL_FAIL_OWN "$build/failing/libresil.so" >&2
}

setup() {
	common_setup
	shim=$build/failing/libresil.so
}

# What changes from run to run is taken out: dial's and curl's times.
told() { # bare|under COMMAND...
	"$@" 2>&1 | sed -E 's/^(-?[A-Z0-9]+) [0-9]+$/\1/; s/after [0-9]+ ms/after N ms/'
	echo "code ${PIPESTATUS[0]}"
}

# What the log says besides what circuits do, without time and process.
remarks() { sed -E 's/^[^ ]+ resil\[[0-9]+\]: //' "$dir/log" 2>/dev/null | grep -vE ' -> | rejected: | has passed$' || true; }

# each_refused COMMAND...: bare once, then under the shim with its n-th call refused, and with all from the n-th on, for every n.
each_refused() {
	local expected count n how seen=0
	expected=$(told bare "$@")
	export RESIL_FAIL_COUNT=$dir/count
	assert_equal "$(told under "$@")" "$expected"
	count=$(cat "$dir/count")
	[ "$count" -gt 10 ] || fail "only $count calls of ours were counted"
	export RESIL_LOG=$dir/log
	for how in NTH AFTER; do
		for ((n = 1; n <= count; n++)); do
			rm -rf "$RESIL_STATE_DIR" "$RESIL_RUNTIME_DIR" "$dir/log"
			output=$(export "RESIL_FAIL_$how=$n" "RESIL_FAIL_ERRNO=${errno:-12}"; told under "$@")
			[ "$output" = "$expected" ] || fail "$how $n of $count: '$output' in place of '$expected'"
			remarks >"$dir/remarks"
			[ "$how" = AFTER ] || [ "$(wc -l <"$dir/remarks")" -le 1 ] || fail "$n of $count: more than one line: $(cat "$dir/remarks")"
			[ -z "$(sort "$dir/remarks" | uniq -d)" ] || fail "$how $n of $count: said twice: $(cat "$dir/remarks")"
			seen=$((seen + 1))
		done
	done
	echo "# $count calls of ours, $seen runs: $*" >&3
}

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
