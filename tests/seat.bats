#!/usr/bin/env bats
# The operator's seat: someone on call meets a program that refuses to connect, and must see within a minute that resil is doing it, why, since
# when, and how to stop it.
load lib/common
load lib/dns
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
}
json() { python3 -c 'import json,sys; j = json.load(sys.stdin); print('"$1"')' <<<"$output"; }
asked() { run --separate-stderr resil "$@"; }
# calls N [RESIL_SET]: of `dial`, each a process of its own, to $name.
calls() {
	local i
	for ((i = 0; i < $1; i++)); do RESIL_SET=${2-} under "$bin/dial" 127.0.0.1 "$server_port" >/dev/null || true; done
}
opened() { # five failures and two rejections
	peer server 127.0.0.1 refuse
	name=127.0.0.1:$server_port
	calls 7 "${1-recovery_timeout=5m;recovery_max=5m}"
}

@test "why tells who rejects, since when, which failures, whose rule, what comes next, and how to stop it" {
	printf '[destination pay]\nmatch = 127.0.0.1\nfailure_threshold = 3\nrecovery_timeout = 5m\nrecovery_max = 5m\nreject_errno = EHOSTUNREACH\n' >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf
	opened ""
	asked why "$name"
	assert_success
	assert_line --index 0 "$name in group dial is open: resil rejects its calls at once with EHOSTUNREACH; nothing reaches the network"
	assert_line --regexp '^Since when: 20[0-9-]+T[0-9:.]+Z \([0-9]+s ago\)$'
	assert_line --regexp '^Why: 3 consecutive failures \(last: refused\), the last one met by dial \(pid [0-9]+\)$'
	assert_line "Meanwhile: 4 calls rejected, 0 probes failed"
	assert_line "Failures of all time: 3 of 3 calls that went out: refused 3"
	assert_line "Rule: [destination pay] at $dir/resil.conf:1, failure_threshold = 3 ($dir/resil.conf:3 [destination pay]); as a program started here would have it"
	assert_line --regexp "^Next: the first call in [0-9.]+s or later goes out as a probe; recovery_timeout = 5m \($dir/resil.conf:4 "
	assert_line --regexp "to try again now: resil reset $name -g dial$"
	assert_line --regexp "to let every call through: resil force $name closed --for 10m -g dial$"
	assert_line --regexp "to switch resil off for the group: resil off -g dial$"
	asked why --json
	assert_equal "$(json 'j["stories"][0]["rejecting"], j["stories"][0]["rejected"], j["stories"][0]["rule"]["failure_threshold"]')" \
		"True 4 {'value': '3', 'origin': '$dir/resil.conf:3 [destination pay]'}"
	# Each command that it names does what it says.
	for command in "$(json 'j["stories"][0]["undo"][1]')" "$(json 'j["stories"][0]["undo"][2]')"; do
		# shellcheck disable=SC2086 # words
		resil ${command#resil }
		asked why "$name" --json
		assert_equal "$(json 'j["stories"][0]["rejecting"]')" False
		undo=$(json 'j["stories"][0]["undo"][0]')
		# shellcheck disable=SC2086 # words
		resil ${undo#resil }
	done
}

@test "why takes the rule from the configuration of a living process of the group" {
	peer server 127.0.0.1 answer
	name=127.0.0.1:$server_port
	printf '[defaults]\nfailure_threshold = 4\n' >"$dir/theirs.conf"
	cd "$dir"
	RESIL_CONF=theirs.conf start one under "$bin/dial" -n 100000 -i 20 127.0.0.1 "$server_port"
	wait_until test -s "$dir/one.out"
	asked why "$name"
	assert_line --partial "failure_threshold = 4 (/proc/$one_pid/cwd/theirs.conf:2 [defaults]); as process $one_pid has it"
}

@test "why of a circuit that is well says that resil is not at fault, and tells of its last opening" {
	opened "recovery_timeout=1ms;recovery_max=1ms"
	peer_now server answer
	healed() {
		RESIL_GROUP=dial RESIL_SET="recovery_timeout=1ms;recovery_max=1ms" under curl -sS "http://127.0.0.1:$server_port/" >/dev/null 2>&1 || true
		[ "$(destination "$name" state)" = closed ]
	}
	wait_until healed
	asked why
	assert_success
	assert_output ""
	assert_equal "$stderr" "resil: every circuit is closed: resil rejects nothing; what fails, fails at its destination"
	asked why "$name"
	assert_line --index 0 "$name in group dial is closed: resil lets every call through; what fails now fails at the destination"
	assert_line --regexp '^Last opened: '
	assert_line --regexp '^Closed again: .*: probe succeeded$'
	refute_output --partial "Stop it"
}

@test "why: forced by hand, half-open, observed and off are told apart" {
	opened
	resil force "$name" open --for 10m 2>/dev/null
	asked why "$name"
	assert_line --index 0 --partial "is forced open by hand: resil rejects every call at once"
	assert_line --regexp '^By hand: for (9m5[0-9]s|10m00s) yet$'
	assert_line --partial "to undo what was set by hand: resil force $name auto -g dial"
	resil force "$name" observe --forever 2>/dev/null
	asked why "$name"
	assert_line --index 0 --partial "is only observed: it would be open; resil rejects nothing"
	assert_line 'By hand: until told otherwise'
	resil force "$name" auto
	resil off
	asked why "$name"
	assert_line --index 0 --partial "resil is off here: every call passes"
	assert_line "Stop it, to have resil back: resil on"
	resil on
	# A server that takes the call and says nothing keeps the probe.
	resil reset "$name"
	calls 5 "recovery_timeout=1ms;recovery_max=1ms"
	peer_now server hang
	RESIL_GROUP=dial RESIL_SET="recovery_timeout=1ms" start probe under curl -sS "http://127.0.0.1:$server_port/"
	wait_until state_is "$name" half_open
	asked why
	assert_line --index 0 --partial "is half-open: a probe finds out whether it is well again; resil rejects all other calls with ECONNREFUSED"
	assert_line "Next: 1 of 1 probes are under way"
}

@test "why tells of a rate what opened it: the rate, its keys and where they were set" {
	opened "failure_threshold=0;sliding_window=10;minimum_calls=5;failure_rate_threshold=40%;recovery_timeout=5m;recovery_max=5m"
	RESIL_SET="failure_threshold=0;sliding_window=10;minimum_calls=5;failure_rate_threshold=40%" asked why "$name"
	assert_line --regexp '^Why: 100.00% failed \(5 of 5 calls\)'
	assert_line --partial "Rule: [defaults], failure_rate_threshold = 40% (RESIL_SET), sliding_window = 10 (RESIL_SET);"
}

@test "why of a name's look-ups: they are what is rejected" {
	dns_start
	zone flaky.test servfail
	RESIL_GROUP=dial RESIL_SET='failure_threshold=2;trip_on=dns;recovery_timeout=5m;recovery_max=5m' asks flaky.test
	asked why dns:flaky.test
	assert_line --index 0 "dns:flaky.test in group dial is open: resil rejects its look-ups at once with EAI_FAIL; nothing reaches the network"
	assert_line --regexp '^Why: 2 consecutive failures \(last: dns\)'
}
asks() { # NAME: until its circuit is open
	is_open() {
		under "$bin/lookup" getaddrinfo "$1" >/dev/null || true
		state_is "dns:$1" open
	}
	wait_until is_open "$1"
}

@test "why: names that are not there" {
	opened
	asked why nope:1
	assert_failure 3
	asked why a b
	assert_failure 2
	asked why "$name" -g nope
	assert_failure 3
}

@test "advise: figures as comments, a deadline where there is none and calls enough, what observing would have rejected; check takes it" {
	peer server 127.0.0.1 answer
	name=127.0.0.1:$server_port
	export RESIL_GROUP=dial
	under curl -sS "http://$name/[1-120]" >/dev/null
	peer down 127.0.0.1 refuse
	RESIL_SET="breaker=observe;failure_threshold=2" under "$bin/dial" -n 7 127.0.0.1 "$down_port" >/dev/null || true
	asked advise
	assert_success
	assert_line "match = $name"
	assert_line "deadline = 1s"
	assert_line "# no time-out: a server that takes a call and says nothing is waited for as long as the program likes"
	assert_line --regexp "^# 127.0.0.1:$down_port: 7 calls, 7 failed"
	assert_line --regexp "^# observed: its thresholds opened it 1 times and would have rejected 5 calls;"
	assert_line "# no answer of it was seen (it never gave one, or its connections cannot be seen into): nothing to suggest a limit from"
	resil advise >"$dir/resil.conf"
	resil check "$dir/resil.conf"
	# In force it is a limit, and then there is nothing more to advise.
	export RESIL_CONF=$dir/resil.conf
	run -0 resil which "$name"
	assert_line --regexp "^deadline	1s	$dir/resil.conf"
	rm -r "$RESIL_STATE_DIR"
	under curl -sS "http://$name/[1-120]" >/dev/null
	asked advise "$name" --json
	assert_equal "$(json '[j["destinations"][0][k] for k in ("destination", "calls", "has_timeout", "suggested")]')" "['$name', 120, True, None]"
	asked advise
	assert_line "# its limits ended 0 calls"
	asked advise nope:1
	assert_failure 3
}

@test "doctor PID names the blind spot: a scrubbed environment, rights of another, a security module, sockets that are no TCP" {
	under bash -c 'env -u LD_PRELOAD sleep 1000 & echo $! >"$0/pid"; wait' "$dir" &
	started+=("$!")
	wait_until test -s "$dir/pid"
	pid=$(cat "$dir/pid")
	started+=("$pid")
	is_asleep() { [ "$(cat "/proc/$pid/comm")" = sleep ]; }
	wait_until is_asleep
	run -1 resil doctor "$pid"
	assert_line --regexp "^problem	shim	not loaded: its parent, process [0-9]+, has LD_PRELOAD, but it was started without"
	need_root "for another's rights, and to mount"
	chmod 755 "$dir" "$(dirname "$dir")" "$(dirname "$(dirname "$dir")")"
	cp /usr/bin/sleep "$dir/suid"
	chown 65533 "$dir/suid"
	chmod 4755 "$dir/suid"
	start one under setpriv --reuid 65534 --regid 65534 --clear-groups "$dir/suid" 1000
	is_suid() { [ "$(cat "/proc/$one_pid/comm")" = suid ]; }
	wait_until is_suid
	run -1 resil doctor "$one_pid"
	assert_line --regexp "^problem	shim	not loaded: .*set-user-ID"
	# Its bits are gone since; the kernel's word at its start is not.
	chmod 755 "$dir/suid"
	run -1 resil doctor "$one_pid"
	assert_line --regexp "^problem	shim	not loaded, though its LD_PRELOAD names it: it was started with rights that are not its user's"
	unshare -m true 2>/dev/null || skip "mounts of its own are not to be had here (a chroot): the labels are not tried"
	labelled() { # LABEL
		echo "$1" >"$dir/label"
		run unshare -m bash -c "mount --bind '$dir/label' /proc/$one_pid/attr/current && '$build/resil' doctor $one_pid"
	}
	labelled "resil-test (enforce)"
	assert_line --regexp "^note	confined	by AppArmor's profile resil-test \(enforce\): .*libresil.so mr,"
	labelled "system_u:system_r:httpd_t:s0"
	assert_line --regexp "^note	confined	by SELinux as system_u:system_r:httpd_t:s0: "
	labelled "unconfined"
	refute_line --partial confined
}

@test "doctor PID: a process whose environment is overwritten by its title has the group that it joined" {
	need_root "for a /dev/shm of its own"
	unshare -m true 2>/dev/null || skip "mounts of its own are not to be had here (a chroot)"
	peer server 127.0.0.1 answer
	cat >"$dir/titled.pl" <<-'E'
		use IO::Socket::INET;
		my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0]) or die;
		$0 = "t" x 20000;
		print "up\n";
		$| = 1;
		close STDOUT;
		sleep 1000;
	E
	run unshare -m bash -c '
		mount -t tmpfs none /dev/shm && unset RESIL_STATE_DIR RESIL_RUNTIME_DIR
		coproc titled { LD_PRELOAD=$1 RESIL_GROUP=billing exec perl "$2" "$3"; }
		read -r up <&"${titled[0]}"
		grep -qz ^RESIL_GROUP= "/proc/$titled_PID/environ" && echo "its environment is there"
		"$4" doctor "$titled_PID"
		kill "$titled_PID"' sh "$shim" "$dir/titled.pl" "$server_port" "$build/resil"
	refute_line "its environment is there"
	assert_line "ok	group	billing"
	assert_line --regexp "^ok	member	of billing for "
}

@test "doctor PID: sockets that are no TCP are told" {
	peer server 127.0.0.1 answer
	start one under python3 -c 'import socket, sys, time; a = socket.socketpair(); u = socket.socket(type=socket.SOCK_DGRAM); s = socket.create_connection(("127.0.0.1", int(sys.argv[1]))); print("up", flush=True); time.sleep(1000)' "$server_port"
	wait_until file_has up "$dir/one.out"
	run -0 resil doctor "$one_pid"
	assert_line "ok	connections	1 outgoing (1 established, 0 pending), 0 accepted; 1 guarded"
	assert_line --regexp "^note	connections	3 more sockets are no TCP connections"
}

@test "a full bulkhead, a fallback in use and a name's look-ups: each verb shows each, in words of its own" {
	dns_start
	zone flaky.test servfail
	peer full 127.0.0.1 hang
	peer away 127.0.0.1 refuse
	peer stand_in 127.0.0.1 answer
	local full=127.0.0.1:$full_port away=127.0.0.1:$away_port names=dns:flaky.test
	printf '%s\n' '[defaults]' 'failure_threshold = 1' 'recovery_timeout = 5m' 'recovery_max = 5m' '[destination full]' "match = $full" 'max_concurrent = 1' \
		'[destination away]' "match = $away" "fallback = 127.0.0.1:$stand_in_port" '[destination names]' 'match = flaky.test' 'trip_on = dns' >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf RESIL_GROUP=app
	start holder under curl -sS "http://$full/"
	is_taken() { [ "$(destination "$full" bulkhead.in_use)" = 1 ]; }
	wait_until is_taken
	under "$bin/dial" 127.0.0.1 "$full_port" || true
	for i in 1 2; do under "$bin/dial" 127.0.0.1 "$away_port"; done
	asks flaky.test
	under "$bin/lookup" getaddrinfo flaky.test || true
	# VERB # LINE: a line of what it says, FULL, AWAY, STAND for the destinations.
	while IFS= read -r row; do
		line=${row#*# }
		line=${line//FULL/$full} line=${line//AWAY/$away} line=${line//STAND/127.0.0.1:$stand_in_port}
		words=${row%% #*}
		words=${words//FULL/$full}
		# shellcheck disable=SC2086 # words
		asked ${words//AWAY/$away}
		assert_success
		assert_line --regexp "$line"
	done <<-'END'
		status # ^FULL	closed	.*	1/1	1$
		status # ^AWAY	open \(secondary\)	.*	0	1$
		status # ^dns:flaky.test	open	.*	0	[1-9][0-9]*$
		top -n 1 -d 100ms # 	FULL	closed	.*	1/1$
		top -n 1 -d 100ms # 	AWAY	open \(secondary\)	
		top -n 1 -d 100ms # 	dns:flaky.test	open	
		why # ^FULL in group app is closed, and its one place is taken: resil rejects further calls with ECONNREFUSED$
		why # ^Bulkhead: 1 of 1 places taken, 0 wait for one, 1 rejected for want of one; max_concurrent = 1 \(
		why FULL # to switch resil off for the group: resil off -g app$
		why # ^AWAY in group app is open: resil lets nothing through to it; something else serves in its place, and what that cannot serve is rejected with ECONNREFUSED$
		why # ^In its place: secondary \(2 calls of all time\); fallback = STAND \(
		why # ^dns:flaky.test in group app is open: resil rejects its look-ups at once with EAI_FAIL;
		why dns:flaky.test # ^Rule: \[destination names\] at .*/resil.conf:11, failure_threshold = 1 \(
		events # 	rejected	FULL	1 rejected: bulkhead full$
		events # 	fallback	AWAY	secondary: STAND \(refused\)$
		events # 	transition	dns:flaky.test	closed -> open: 1 failure \(dns\); next probe in [0-9.]+s$
		events # 	rejected	dns:flaky.test	[1-9][0-9]* rejected$
		which FULL # ^places	1 of 1 taken	app$
		which AWAY # ^state	open \(secondary\)	app$
		which AWAY # ^fallback	STAND	.*resil.conf:10 
		which flaky.test:80 # ^look-ups	dns:flaky.test is open	app$
		which flaky.test:80 --json # "look_ups":\{"state":"open","group":"app"\}
		which FULL --json # "look_ups":null
		which dns:FLAKY.test. # ^rule	\[destination names\]	.*/resil.conf:11$
		which dns:flaky.test # ^breaker name	dns:flaky.test	-$
		which dns:flaky.test # ^state	open	app$
	END
	asked which dns:flaky.test:80
	assert_failure 2
	asked which dns:
	assert_failure 2
}
