# A build of the shim whose own system calls fail in turn (src/base/fail.h), and each of its n refused once. Load it after `lib/common`.

setup_file() {
	local build=${BUILD:-build}
	case $build in /*) ;; *) build=$root/$build ;; esac
	env -u LD_PRELOAD make -s -C "$root" BUILD="$build/failing" EXTRA_CFLAGS=-DRESIL_FAIL_OWN "$build/failing/libresil.so" >&2
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
