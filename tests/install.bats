#!/usr/bin/env bats
# make install: whatever the prefix and whoever installs; and a build that leaves room for what matters.
load lib/common

setup() {
	common_setup
	shim_part
	unset MAKEFLAGS MFLAGS MAKELEVEL # of a `make check`
	# A copy of what is built: another PREFIX compiles one file anew, and other tests use the command meanwhile.
	mkdir "$dir/build"
	cp -a "$build/obj" "$build/libresil.so" "$build/resil" "$build/exports.map" "$build/prefix" "$dir/build/"
}
installing() { run bare "$@" make -C "$root" BUILD="$dir/build" install PREFIX="$prefix"; }

@test "another PREFIX after a build is compiled in; the installed command finds the shim beside itself" {
	prefix=/opt/resil
	installing env DESTDIR="$dir/staged"
	assert_success
	assert_output --partial src/cli/run.c
	refute_output --partial src/core
	[ -e "$dir/staged/etc/resil/resil.conf.example" ]
	assert_output --partial "the example of a configuration is $dir/staged/etc/resil/resil.conf.example"
	assert_line 'the command: PATH=/opt/resil/bin:$PATH; the shim without it: LD_PRELOAD=/opt/resil/lib/libresil.so'
	run bare "$dir/staged/opt/resil/bin/resil" run -- sh -c 'echo "$LD_PRELOAD"'
	assert_success
	assert_output "$dir/staged/opt/resil/lib/libresil.so"
	rm "$dir/staged/opt/resil/lib/libresil.so"
	run bare "$dir/staged/opt/resil/bin/resil" run -- true
	assert_failure 125
	assert_output --partial "or /opt/resil/lib/libresil.so"
	# The same again compiles nothing.
	installing env DESTDIR="$dir/staged"
	assert_success
	refute_output --partial run.c
}

@test "who may not write to /etc installs under a PREFIX of their own, and is told where the example is" {
	need_root "to be someone else"
	prefix=$dir/mine/.local
	mkdir "$dir/mine"
	chown -R 65534 "$dir/mine" "$dir/build"
	chmod 755 "$dir" "$(dirname "$dir")" "$(dirname "$(dirname "$dir")")"
	nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	"${nobody[@]}" test -r "$root/Makefile" || skip "others may not read $root"
	[ ! -w /etc/resil ] || "${nobody[@]}" test ! -w /etc/resil || skip "others may write to /etc/resil"
	installing "${nobody[@]}"
	assert_success
	assert_output --partial "/etc/resil cannot be written: the example of a configuration is $prefix/etc/resil/resil.conf.example"
	[ -x "$prefix/bin/resil" ] && [ -e "$prefix/etc/resil/resil.conf.example" ]
	run bare "${nobody[@]}" make -C "$root" BUILD="$dir/build" uninstall PREFIX="$prefix"
	assert_success
	[ -z "$(find "$prefix" -type f)" ] || fail "left behind: $(find "$prefix" -type f)"
}

@test "make says a word a file; V=1 shows the commands" {
	rm "$dir/build/resil"
	run bare make -C "$root" BUILD="$dir/build" all
	assert_success
	assert_line --regexp '^  LINK  .*/build/resil$'
	[ "$(wc -c <<<"$output")" -lt 1000 ] || fail "${#output} bytes: $output"
	rm "$dir/build/resil"
	run bare make -C "$root" BUILD="$dir/build" V=1 all
	assert_success
	assert_output --regexp '(gcc|cc|clang).* -o .*/build/resil'
}
