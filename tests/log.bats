#!/usr/bin/env bats
# Where the shim tells what happens: standard error, a file that is rotated, syslog and the journal (in a mount namespace of our own).
load lib/common
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
	export RESIL_SET='recovery_timeout=5m;recovery_max=5m'
}
calls() { # NUMBER
	local i
	for ((i = 0; i < $1; i++)); do under "$bin/dial" 127.0.0.1 "$server_port" >/dev/null || true; done
}

@test "a transition and the first of a run of rejections are told, never a line a call; stderr and a file" {
	peer server 127.0.0.1 refuse
	name=127.0.0.1:$server_port
	RESIL_LOG=stderr calls 30 2>"$dir/err"
	[ "$(wc -l <"$dir/err")" = 2 ] || fail "$(cat "$dir/err")"
	run cat "$dir/err"
	assert_line --regexp "^resil: $name closed -> open: 5 consecutive failures \(last: refused\); next probe in [0-9]+ms$"
	assert_line "resil: $name rejected: open"
	resil reset "$name"
	RESIL_LOG=$dir/log calls 30
	# 25 rejections before the reset were a run that goes on in the count, or ended: one line at most.
	run cat "$dir/log"
	assert_line --regexp "^20[^ ]+Z resil\[[0-9]+\]: $name closed -> open: "
	[ "${#lines[@]}" = 2 ] || fail "$output"
}

@test "a log that is renamed away is begun anew by the next line, in a running process" {
	peer server 127.0.0.1 answer
	name=127.0.0.1:$server_port
	RESIL_LOG=$dir/log RESIL_SET='failure_threshold=1;recovery_timeout=1ms;recovery_max=1ms' start one under "$bin/dial" -n 1000000 -i 5 127.0.0.1 "$server_port"
	peer_now server refuse
	wait_until test -s "$dir/log"
	mv "$dir/log" "$dir/log.1"
	kept=$(stat -c %i "$dir/log.1")
	wait_until test -s "$dir/log"
	[ "$(stat -c %i "$dir/log")" != "$kept" ]
	assert_equal "$(stat -c %a "$dir/log")" 600
	[ -z "$(find "/proc/$one_pid/fd" -lname "$dir/log*")" ] || fail "kept open"
}

# A machine of our own with a syslog and a journal that write what they get to $dir/SYSLOG and $dir/JOURNAL, each datagram with a line "--" after it.
listen='
import os, select, socket, sys
places = {"/dev/log": sys.argv[1] + "/SYSLOG", "/run/systemd/journal/socket": sys.argv[1] + "/JOURNAL"}
socks = {}
for at, to in places.items():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(at)
    socks[s] = open(to, "wb", buffering=0)
open(sys.argv[1] + "/ready", "w").close()
while True:
    for s in select.select(list(socks), [], [])[0]:
        socks[s].write(s.recv(65536) + b"\n--\n")
'
machine() {
	need_root "to mount"
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	cat >"$dir/inside" <<-END
		mkdir -p "$dir/dev" && mount -t tmpfs dev "$dir/dev" && touch "$dir/dev/null" "$dir/dev/urandom" && mkdir "$dir/dev/shm"
		mount --bind /dev/null "$dir/dev/null" && mount --bind /dev/urandom "$dir/dev/urandom"
		mount --rbind "$dir/dev" /dev && mount -t tmpfs run /run && mkdir -p /run/systemd/journal
		/usr/bin/python3 -c "\$LISTEN" "$dir" &
		until [ -e "$dir/ready" ]; do sleep 0.02; done
		for i in 1 2 3 4 5 6 7; do LD_PRELOAD=$shim "$bin/dial" 127.0.0.1 $server_port; done
		kill %1
	END
	LISTEN=$listen timeout -k 2 "$TEST_TIMEOUT" unshare -m bash "$dir/inside" >"$dir/inside.out" 2>&1 3>&- || fail "$(cat "$dir/inside.out")"
}

@test "the journal gets fields of their own and a priority; a name cannot add a field" {
	peer server 127.0.0.1 refuse
	name=127.0.0.1:$server_port
	printf '[resil]\nlog = journal\n' >"$dir/resil.conf"
	RESIL_CONF=$dir/resil.conf RESIL_GROUP=$'a\nMESSAGE=forged' machine
	run cat "$dir/JOURNAL"
	assert_equal "$(grep -c '^--$' <<<"$output")" 2
	for field in SYSLOG_IDENTIFIER=resil PRIORITY=4 RESIL_TYPE=transition "RESIL_DESTINATION=$name" RESIL_FROM=closed RESIL_TO=open \
		"RESIL_REASON=5 consecutive failures (last: refused)" PRIORITY=5 RESIL_TYPE=rejected; do
		assert_line "$field"
	done
	assert_line --regexp "^MESSAGE=$name closed -> open: 5 consecutive failures"
	[ -z "$(grep -vE '^(--|(SYSLOG_IDENTIFIER|PRIORITY|RESIL_[A-Z]+|MESSAGE)=.*|)$' <<<"$output")" ] || fail "$output"
	refute_line --regexp '^MESSAGE=forged'
	[ ! -s "$dir/SYSLOG" ]
}

@test "syslog gets daemon.warning for an opening, daemon.notice for the rest" {
	peer server 127.0.0.1 refuse
	name=127.0.0.1:$server_port
	RESIL_LOG=syslog machine
	run cat "$dir/SYSLOG"
	assert_line --regexp "^<28>resil\[[0-9]+\]: $name closed -> open: "
	assert_line --regexp "^<29>resil\[[0-9]+\]: $name rejected: open$"
	[ ! -s "$dir/JOURNAL" ]
}
