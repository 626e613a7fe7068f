#!/usr/bin/env bats
# The two walks of someone new and of someone on call, each command as typed, with its time.
load lib/common
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
}
# walk COMMAND: runs and times it as one step; its output in $output.
steps=0
walk() {
	local begun
	begun=$(now_ms)
	run bash -c "$1" 3>&-
	steps=$((steps + 1))
	echo "# $steps. $1 ($(($(now_ms) - begun)) ms)" >&3
}

@test "from the checkout to a Python service that is guarded and visible in top: five commands" {
	cat >"$dir/service.py" <<-'PY'
		import sys, time, urllib.request
		while True:
		    urllib.request.urlopen("http://127.0.0.1:" + sys.argv[1]).read()
		    time.sleep(0.05)
	PY
	# A copy of what is built: another PREFIX compiles one file anew, and other tests use the command meanwhile.
	mkdir "$dir/build"
	cp -a "$build/obj" "$build/libresil.so" "$build/resil" "$build/exports.map" "$build/prefix" "$dir/build/"
	unset MAKEFLAGS MFLAGS MAKELEVEL
	peer server 127.0.0.1 answer
	walk "make -s -C $root BUILD=$dir/build all"
	assert_success
	walk "make -s -C $root BUILD=$dir/build install PREFIX=$dir/usr DESTDIR=$dir/"
	assert_success
	PATH=$dir/$dir/usr/bin:$PATH
	walk "resil doctor python3"
	assert_success
	walk "resil run -- python3 $dir/service.py $server_port >/dev/null 2>&1 & echo \$! >$dir/pid"
	started+=("$(cat "$dir/pid")")
	is_seen() { state_is "127.0.0.1:$server_port" closed; }
	wait_until is_seen
	walk "resil top -n 1 -d 100ms"
	assert_output --partial "127.0.0.1:$server_port"
	assert_equal "$steps" 5
}

@test "from 'Connection refused' in a program's log to its cause: one command" {
	peer server 127.0.0.1 refuse
	for i in 1 2 3 4 5 6; do
		RESIL_SET='recovery_timeout=5m;recovery_max=5m' under curl -sS "http://127.0.0.1:$server_port/" >>"$dir/log" 2>&1 || true
	done
	run tail -n 1 "$dir/log"
	assert_output --partial "connect to"
	PATH=$build:$PATH
	walk "resil why"
	assert_line --partial "127.0.0.1:$server_port in group curl is open: resil rejects its calls at once"
	assert_line --partial "5 consecutive failures (last: refused)"
	assert_line --partial "Stop it"
	assert_equal "$steps" 1
}
