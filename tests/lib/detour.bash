# A build of the shim in which every guarded TCP connect takes the detour that RESIL_TEST_DETOUR names (src/engine/detour_test.c), so that
# the mechanism is tested whatever asks for it. Load it after `lib/common`.

setup_file() {
	local build=${BUILD:-build}
	case $build in /*) ;; *) build=$root/$build ;; esac
	mkdir -p "$build/detoured"
	# Several files of tests ask for it at once.
	flock "$build/detoured" env -u LD_PRELOAD make -s -C "$root" BUILD="$build" "$build/detoured/libresil.so" >&2
}

setup() {
	common_setup
	shim=$build/detoured/libresil.so
}

# detoured "WORDS" COMMAND...: under the shim, by way of a detour.
detoured() {
	local words=$1
	shift
	RESIL_TEST_DETOUR=$words under "$@"
}

# same CASE...: each as it is without us (programs/detoured.py).
same() {
	local expected
	expected=$(bare python3 "$root/tests/programs/detoured.py" "$@" 2>&1)
	[ "$(wc -l <<<"$expected")" = $# ] || fail "$expected"
	shim_part
	assert_equal "$(detoured "${words:-relay}" python3 "$root/tests/programs/detoured.py" "$@" 2>&1)" "$expected"
}
