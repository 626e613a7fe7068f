#!/usr/bin/env bats
# What was asked for: the configuration and its mistakes, RESIL_SET, reload, and `which`, which says where each value is from.
load lib/common
load lib/asker
bats_require_minimum_version 1.5.0

# After five refusals the circuit would be open; a shim that only observes lets the sixth through.
only_observes() { # PORT
	run traced "$dir/trace" under "$bin/dial" -n 6 127.0.0.1 "$1"
	assert_equal "$(connects_to "$1" "$dir/trace")" 6
}
# One clear error: said by `check`, once by the shim of a group, and the app goes on unguarded.
one_clear_error() { # FILE REGEXP
	run resil check "$1"
	assert_failure 2
	assert_equal "${#lines[@]}" 1
	assert_output --regexp "$2"
	peer server 127.0.0.1 refuse
	export RESIL_CONF=$1
	run under "$bin/dial" 127.0.0.1 "$server_port"
	assert_equal "$(grep -c "^resil: $1" <<<"$output")" 1
	assert_output --regexp "$2"
	assert_output --partial observes
	assert_line --regexp '^ECONNREFUSED [0-9]+$'
	run under "$bin/dial" 127.0.0.1 "$server_port"
	refute_output --partial resil: # once a group and file, not once a process
	only_observes "$server_port"
}

@test "twenty mistakes: each is named with its line, its value and what would be right" {
	shim_part
	cat >"$dir/bad.conf" <<-'END'
		stray = 1
		[resil]
		state = sharde
		max_destinations = 0
		control = maybe
		logg = off
		connect_timeout = 1s
		[defaults]
		connect_timeout = 10
		recovery_timeout = fast
		recovery_backoff = 0.5
		recovery_jitter = 120%
		failure_treshold = 5
		half_open_max_calls = 0
		success_threshold = -1
		reject_errno = EBOGUS
		breaker = onn
		[destination]
		[destination empty]
		[destination pay
		[destination web]
		match = 10.0.0.0/33:80
		match = host:99999
		failure_threshold = 5000
		no sign here
		probe_timeout = 30 parsecs
		[nonsense]
	END
	run resil check "$dir/bad.conf"
	assert_failure 2
	wrong_lines="1 3 4 5 6 7 9 10 11 12 13 14 15 16 17 18 19 20 22 23 24 25 26 27"
	for line in $wrong_lines; do assert_line --regexp "^$dir/bad.conf:$line: "; done
	assert_equal "$(sed -nE "s|^$dir/bad.conf:([0-9]+): .*|\1|p" <<<"$output" | sort -un | xargs)" "$wrong_lines"
	assert_line --regexp ":3: .*'sharde'.*did you mean shared"
	assert_line --regexp ":9: .*'10'"
	assert_line --regexp ":13: .*failure_treshold.*did you mean failure_threshold"
	assert_line --regexp ":16: .*'EBOGUS'"
	assert_line --regexp ":24: .*'5000'.*4095"
}

@test "values that are right and do not mean together what one would think: a remark each, no fault" {
	shim_part
	cat >"$dir/resil.conf" <<-END
		[defaults]
		max_wait = 5s
		[destination routes]
		match = a.internal:80
		key = route
		fallback = errno:EHOSTUNREACH
		[destination said]
		match = sni:b.internal
		fallback = errno:EHOSTUNREACH
		[destination adapts]
		match = c.internal:80
		adaptive = on
		route = /users/*
		[destination right]
		match = d.internal:80
		key = route
		route = /users/*
		adaptive = on
		max_concurrent = 5
	END
	run resil check "$dir/resil.conf"
	assert_success
	assert_output - <<-END
		$dir/resil.conf:6: remark: requests that key = method or route rejects have no fallback ('errno:EHOSTUNREACH'; connects that are rejected or fail have it; with key = origin all do)
		$dir/resil.conf:5: remark: key = route without route: every request is of the circuit 'unknown' ('route'; route = /users/*, /orders/*/items, or key = origin)
		$dir/resil.conf:9: remark: what a rule by sni: rejects has no fallback ('errno:EHOSTUNREACH'; a connection says its name when it is made; a rule by host:port has it)
		$dir/resil.conf:12: remark: adaptive without max_concurrent limits nothing ('on'; max_concurrent is its ceiling)
		$dir/resil.conf:13: remark: route is read with key = route alone ('/users/*'; key = route)
	END
	run --separate-stderr resil check --json "$dir/resil.conf"
	assert_success
	assert_equal "$(jq -c '[.valid, (.errors | length), (.remarks | length)]' <<<"$output")" '[true,0,5]'
	# What [defaults] has is for the sections that have the rest; where none has, it is nobody's.
	sed -i '/max_concurrent/d' "$dir/resil.conf"
	run resil check "$dir/resil.conf"
	assert_success
	assert_line "$dir/resil.conf:2: remark: max_wait without max_concurrent waits for nothing ('5s'; max_concurrent is what is waited for)"
	RESIL_SET='adaptive=on' run resil check
	assert_success
	assert_output "RESIL_SET: remark: adaptive without max_concurrent limits nothing ('on'; max_concurrent is its ceiling)"
	# Where anything is wrong that comes first.
	printf 'nonsense = 1\n' >>"$dir/resil.conf"
	run resil check "$dir/resil.conf"
	assert_failure 2
	refute_output --partial remark
}

@test "what is right says nothing, and the shipped example is right" {
	shim_part
	printf '[destination pay]\nmatch = pay.example:443, 10.0.0.0/8:5432\nfailure_threshold = 3\n' >"$dir/good.conf"
	run resil check "$dir/good.conf"
	assert_success
	assert_output ''
	run resil check "$root/conf/resil.conf"
	assert_success
	assert_output ''
}

@test "a missing file that was named: one clear error, and the shim only observes (E8)" {
	shim_part
	one_clear_error "$dir/nowhere.conf" 'nowhere.conf.*no such file'
}

@test "an unreadable file: one clear error, and the shim only observes (E8)" {
	shim_part
	mkdir "$dir/folder.conf" # a folder cannot be read by root either
	one_clear_error "$dir/folder.conf" 'folder.conf.*directory'
}

@test "a file without permission: one clear error, and the shim only observes (E8)" {
	shim_part
	echo '[defaults]' >"$dir/secret.conf"
	chmod 0 "$dir/secret.conf"
	[ "$(id -u)" != 0 ] || skip "root may read everything"
	one_clear_error "$dir/secret.conf" 'secret.conf.*permission'
}

@test "a binary file: one clear error, and the shim only observes (E8)" {
	shim_part
	cp "$bin/dial" "$dir/binary.conf"
	one_clear_error "$dir/binary.conf" 'binary.conf.*binary'
}

@test "a file of 10 MB: one clear error, and the shim only observes (E8)" {
	shim_part
	yes '# a comment like any other' | head -c 10000000 >"$dir/huge.conf"
	one_clear_error "$dir/huge.conf" 'huge.conf.*large'
}

@test "an endless file (/dev/zero): one clear error, and the shim only observes (E8)" {
	shim_part
	one_clear_error /dev/zero '/dev/zero'
}

@test "an observing shim never rejects, also where the file's sections are right: a typo must not undo breaker = off" {
	shim_part
	peer server 127.0.0.1 refuse
	printf '[destination mine]\nmatch = 127.0.0.1\nbreaker = off\n[defaults]\nfailure_treshold = 1\n' >"$dir/typo.conf"
	export RESIL_CONF=$dir/typo.conf
	only_observes "$server_port"
}

@test "long lines and long names are refused, never cut" {
	shim_part
	name=$(printf 'n%.0s' $(seq 300))
	printf '[destination %s]\nmatch = *\n[defaults]\nconnect_timeout = 1s%4000s\n' "$name" x >"$dir/long.conf"
	run resil check "$dir/long.conf"
	assert_failure 2
	assert_line --regexp ':1: .*long'
	assert_line --regexp ':4: .*long'
}

@test "RESIL_SET overrides [defaults]; its mistakes are named without a file" {
	shim_part
	peer server 127.0.0.1 refuse
	printf '[defaults]\nfailure_threshold = 4\n' >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf RESIL_SET='failure_threshold=2;recovery_timeout=1m'
	run traced "$dir/trace" under "$bin/dial" -n 6 127.0.0.1 "$server_port"
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 2
	RESIL_SET='failure_threshold=2;recovery=1m' run resil check
	assert_failure 2
	assert_output --regexp '^RESIL_SET: .*recovery'
}

@test "a [destination] section overrides [defaults], the first that matches wins, also for its port" {
	shim_part
	peer one 127.0.0.1 refuse
	peer two 127.0.0.1 refuse
	cat >"$dir/resil.conf" <<-END
		[defaults]
		recovery_timeout = 1m
		recovery_max = 1m
		failure_threshold = 4
		[destination one]
		match = 127.0.0.1:$one_port
		failure_threshold = 1
		[destination all]
		match = 127.0.0.0/8
		failure_threshold = 2
		[destination late]
		match = *
		failure_threshold = 3
	END
	export RESIL_CONF=$dir/resil.conf
	run resil check "$dir/resil.conf"
	assert_success
	run traced "$dir/trace" under "$bin/dial" -n 6 127.0.0.1 "$one_port"
	assert_equal "$(connects_to "$one_port" "$dir/trace")" 1
	run traced "$dir/trace" under "$bin/dial" -n 6 127.0.0.1 "$two_port"
	assert_equal "$(connects_to "$two_port" "$dir/trace")" 2
}

@test "which shows the rule and where each value was set" {
	shim_part
	cat >"$dir/resil.conf" <<-END
		[defaults]
		probe_timeout = 20s
		[destination pay]
		match = 10.0.0.0/8:5432
		failure_threshold = 3
	END
	export RESIL_CONF=$dir/resil.conf RESIL_SET='connect_timeout=2s'
	run resil which 10.1.2.3:5432
	assert_success
	assert_line --regexp 'pay'
	assert_line --regexp "failure_threshold.*3.*$dir/resil.conf:5"
	assert_line --regexp "probe_timeout.*20s.*$dir/resil.conf:2"
	assert_line --regexp 'connect_timeout.*2s.*RESIL_SET'
	assert_line --regexp 'recovery_timeout.*1s.*built-in'
	run resil which 10.1.2.3:5432 --json
	assert_success
	python3 -c 'import json,sys; json.load(sys.stdin)' <<<"$output"
}

@test "a reload is all or nothing, and changes no circuit (B18)" {
	shim_part
	peer server 127.0.0.1 refuse
	printf '[resil]\ncontrol = on\n[defaults]\nrecovery_timeout = 1m\nrecovery_max = 1m\n' >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf
	start member under "$bin/dial" -n 10000 -i 50 127.0.0.1 "$server_port"
	wait_until state_is "127.0.0.1:$server_port" open 2>/dev/null
	socket=$RESIL_RUNTIME_DIR/dial.sock
	wait_until test -S "$socket"
	printf '[resil]\ncontrol = on\n[defaults]\nprobe_timeout = 7s\nrecovery_timeot = 1m\n' >"$dir/resil.conf"
	run curl -sS --unix-socket "$socket" -X POST -w '%{http_code}' http://resil/v1/reload
	assert_output --partial 422
	assert_output --partial "$dir/resil.conf:5"
	run curl -sS --unix-socket "$socket" http://resil/v1/config
	refute_output --partial 7s
	run resil reload
	assert_failure 1
	printf '[resil]\ncontrol = on\n[defaults]\nprobe_timeout = 7s\nrecovery_timeout = 1m\nrecovery_max = 1m\n' >"$dir/resil.conf"
	run resil reload
	assert_success
	run curl -sS --unix-socket "$socket" http://resil/v1/config
	assert_output --partial 7s
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
	assert_equal "$(transitions "127.0.0.1:$server_port" | xargs)" "closed>open"
	run resil events --json
	assert_output --partial '"type":"config_error"'
	assert_output --partial '"type":"reload"'
}

@test "a reload that nobody serves is told once, by whoever reads it first, in the events and in the log" {
	shim_part
	peer server 127.0.0.1 answer
	printf '[resil]\ncontrol = off\n' >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf RESIL_LOG=$dir/resil.log
	for one in first second; do start "$one" under "$bin/dial" -n 100000 -i 20 127.0.0.1 "$server_port"; done
	calls() { echo $(($(wc -l <"$dir/first.out"))) $(($(wc -l <"$dir/second.out"))); }
	called() { # FIRST SECOND: each so often
		local now
		read -ra now < <(calls)
		[ "${now[0]}" -ge "$1" ] && [ "${now[1]}" -ge "$2" ]
	}
	wait_until called 1 1
	for generation in 1 2; do
		run resil reload
		assert_success
		assert_output --partial "nobody answers for group dial; its 2 processes"
		read -r first second < <(calls)
		wait_until called $((first + 2)) $((second + 2))
		run resil events --json
		assert_equal "$(jq -r 'select(.type == "reload") | .generation' <<<"$output" | tail -n 1)" "$generation"
		assert_equal "$(jq -r 'select(.type == "reload") | .pid' <<<"$output" | wc -l)" "$generation"
		assert_equal "$(grep -c 'configuration: read again' "$dir/resil.log")" "$generation"
	done
	# One with a fault is told by each that it concerns, and is no reload.
	echo 'contrl = on' >>"$dir/resil.conf"
	resil reload 2>/dev/null
	are_told() { [ "$(resil events --json | jq -r 'select(.type == "config_error") | .pid' | sort -u | wc -l)" = 2 ]; }
	wait_until are_told
	assert_equal "$(resil events --json | grep -c '"type":"reload"')" 2
}

@test "a reload that a process does by itself, nobody answering on the socket: the event has the first fault, as a line" {
	peer server 127.0.0.1 answer
	shim_part
	printf '[resil]\ncontrol = off\n' >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf
	asker_start "$server_port" RESIL_GROUP=asker
	asks connect 1
	printf '[resil]\ncontrol = off\nlgo = off\nstat = shared\n' >"$dir/resil.conf"
	run resil reload --json
	assert_output --partial '"outcome":"told"'
	asks connect 1
	run jq -r 'select(.type == "config_error").reason' <<<"$(resil events -g asker --json)"
	assert_output "$(resil check 2>&1 | head -n1)"
}

@test "an unknown key: every key that there is is named, to the last" {
	printf '[destination a]\nmatch = a\nbogus = 1\n' >"$dir/resil.conf"
	run resil check "$dir/resil.conf"
	assert_output --partial 'keepalive or tcp_user_timeout)'
}

@test "a fallback that is wrong: the fault shows the step that is meant, not the one before it" {
	wrong() { printf '[defaults]\nfallback = %s\n' "$1" >"$dir/resil.conf"; run resil check "$dir/resil.conf"; }
	wrong 'cache(1h),,a:1'
	assert_output --partial "('cache(1h),,a:1'; "
	wrong 'a:1, a:2, a:3, a:4, a:5, a:6, a:7, a:8, a:9'
	assert_output --partial "too many steps ('a:9'; at most 8)"
	wrong 'a:1, errno:EPERM, a:3'
	assert_output --partial "nothing follows an errno ('a:3'; "
}

@test "RESIL_DISABLE=1: the shim does nothing at all, whatever else is set" {
	shim_part
	peer server 127.0.0.1 refuse
	export RESIL_DISABLE=1 RESIL_CONF=$dir/nowhere.conf
	run traced "$dir/trace" under "$bin/dial" -n 9 127.0.0.1 "$server_port"
	assert_equal "$(cut -d' ' -f1 <<<"$output" | sort -u)" ECONNREFUSED
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 9
	[ ! -e "$RESIL_STATE_DIR" ]
}

@test "skip_exe: the shim does nothing in the executables that it names" {
	shim_part
	peer server 127.0.0.1 refuse
	printf '[resil]\nskip_exe = d?al, di*\n' >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf
	run traced "$dir/trace" under "$bin/dial" -n 9 127.0.0.1 "$server_port"
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 9
}

monotonic_ns() { /usr/bin/python3 -c 'import time; print(time.monotonic_ns())'; }
# The deadline that a command prints was set, in ns, so much after some time between the beginning and the end of the command.
deadline_after() { # NS COMMAND...
	local ns=$1 before after
	shift
	before=$(monotonic_ns)
	run "$@"
	after=$(monotonic_ns)
	assert_success
	assert_output --regexp '^[0-9]+$'
	[ "$output" -ge $((before + ns)) ] && [ "$output" -le $((after + ns)) ] ||
		fail "$output is not between $((before + ns)) and $((after + ns))"
}

@test "run --deadline: all that it starts has so long; inside another one it can only shorten (C4)" {
	shim_part
	show='echo $RESIL_DEADLINE_AT$RESIL_DEADLINE'
	deadline_after 5000000000 resil run --deadline 5s -- sh -c "$show"
	deadline_after 5000000000 resil run --deadline 5s -- "$build/resil" run --deadline 1h -- sh -c "$show"
	deadline_after 5000000000 resil run --deadline 1h -- "$build/resil" run --deadline 5s -- sh -c "$show"
	deadline_after 5000000000 resil run --deadline=5s -- "$build/resil" run -- sh -c "$show"
	deadline_after 1500000000 resil run --deadline 1h --deadline 1500ms -- sh -c "$show"
	RESIL_DEADLINE_AT=1234 run resil run --deadline 5s -- sh -c "$show"
	assert_output 1234 # past already, and still the earlier one
	RESIL_DEADLINE_AT='' deadline_after 5000000000 resil run --deadline 5s -- sh -c "$show"
}

@test "run: RESIL_DEADLINE starts once, in the process that first has it; the earlier of both wins" {
	shim_part
	show='echo $RESIL_DEADLINE_AT$RESIL_DEADLINE'
	RESIL_DEADLINE=5s deadline_after 5000000000 resil run -- sh -c "$show"
	RESIL_DEADLINE=5s deadline_after 5000000000 resil run --deadline 1h -- sh -c "$show"
	RESIL_DEADLINE=1h deadline_after 5000000000 resil run --deadline 5s -- sh -c "$show"
	RESIL_DEADLINE=1h RESIL_DEADLINE_AT=1234 run resil run --deadline 5s -- sh -c "$show"
	assert_output 1234
	run resil run -- sh -c 'echo "${RESIL_DEADLINE_AT-none} ${RESIL_DEADLINE-none}"'
	assert_output 'none none'
}

@test "run: a malformed deadline is one clear error, and the app is not started" {
	shim_part
	for value in 5 0s -1s soon 8761h ''; do
		run resil run --deadline "$value" -- touch "$dir/started"
		assert_failure 125
		assert_line --index 0 --regexp '^resil run: --deadline'
	done
	for value in 5s 0 -5 99999999999999999999; do
		RESIL_DEADLINE_AT=$value run resil run --deadline 5s -- touch "$dir/started"
		assert_failure 125
		assert_output --regexp "^resil run: RESIL_DEADLINE_AT: not a time \\('$value'"
		assert_line --index 1 "resil run: touch is not started"
		assert_equal "${#lines[@]}" 2
	done
	RESIL_DEADLINE=5 run resil run -- touch "$dir/started"
	assert_failure 125
	assert_line --index 0 "resil run: RESIL_DEADLINE: a unit is due ('5'; 5ms, 5s, 5m or 5h)"
	[ ! -e "$dir/started" ]
}

@test "the keys for calls on the wire: shown by which, their mistakes named" {
	shim_part
	cat >"$dir/resil.conf" <<-END
		[defaults]
		trip_on = reset, eof http_5xx
		answer_timeout = 3s
		[destination pay]
		match = 10.0.0.0/8
		protocol = http1
		deadline_header = X-Deadline-Ms
		keepalive = 60s
	END
	export RESIL_CONF=$dir/resil.conf
	run resil which 10.1.2.3:80
	assert_success
	assert_line --regexp "^trip_on\s+reset eof http_5xx\s+$dir/resil.conf:2"
	assert_line --regexp "^answer_timeout\s+3s\s+$dir/resil.conf:3"
	assert_line --regexp "^protocol\s+http1\s+$dir/resil.conf:6"
	assert_line --regexp "^deadline_header\s+X-Deadline-Ms\s+$dir/resil.conf:7"
	assert_line --regexp "^keepalive\s+1m\s+$dir/resil.conf:8"
	assert_line --regexp "^abandon_after\s+1s\s+built-in"
	printf '[defaults]\ntrip_on = reset rest\nprotocol = http2\ndeadline_header = Host\nkeepalive = 500ms\n' >"$dir/bad.conf"
	run resil check "$dir/bad.conf"
	assert_failure 2
	assert_equal "${#lines[@]}" 4
	assert_line --regexp ":2: trip_on: unknown kind \('rest'; refused, .*none.*did you mean reset"
	assert_line --regexp ":3: protocol: unknown choice \('http2'; .*did you mean h2"
	assert_line --regexp ":4: deadline_header: .*'Host'"
	assert_line --regexp ":5: keepalive is out of range \('500ms'; 1s to 9h, or off\)"
}

@test "run: checks the configuration first, keeps the app's code, its own codes are 125 to 127" {
	shim_part
	run resil run -s failure_threshold=1 -- sh -c 'exit 7'
	assert_failure 7
	run resil run -- sh -c 'kill -TERM $$'
	assert_failure 143
	printf '[defaults]\nnonsense = 1\n' >"$dir/bad.conf"
	run resil run -c "$dir/bad.conf" -- true
	assert_failure 125
	assert_output --partial "$dir/bad.conf:2"
	assert_equal "${lines[-1]}" "resil run: true is not started"
	run -127 resil run -- "$dir/nowhere"
	run resil run -- "$dir"
	assert_failure 126
	run resil run -- sh -c 'echo "$LD_PRELOAD"'
	assert_output "$build/libresil.so"
	LD_PRELOAD='' run resil run -g shop -- sh -c 'echo "$RESIL_GROUP"'
	assert_output shop
}

@test "RESIL_LOG names a place as the key log does: run and check refuse a word, doctor and a terminal tell" {
	shim_part
	peer server 127.0.0.1 refuse
	cd "$dir"
	export RESIL_LOG=stder
	run resil check
	assert_failure 2
	assert_output --partial "RESIL_LOG: 'stder' is no place to log to (off, stderr, syslog, journal, or a file's path from / on)"
	run resil run -- true
	assert_failure 125
	assert_output --partial "'stder' is no place"
	run resil doctor
	assert_failure 1
	assert_output --partial "'stder' is no place"
	run under "$bin/dial" -n 6 127.0.0.1 "$server_port"
	refute_output --partial resil
	[ ! -e "$dir/stder" ] || fail "a word became a file"
	# A person is told, once, and the program runs.
	run script -qec "LD_PRELOAD=$shim $bin/dial 127.0.0.1 $server_port" /dev/null
	assert_output --partial "resil: log: 'stder' is no place to log to"
	assert_output --partial ECONNREFUSED
	export RESIL_LOG=$dir/nowhere/resil.log
	run resil run -- echo runs
	assert_success
	assert_output --partial "$dir/nowhere/resil.log cannot be written (ENOENT): nothing is logged"
	assert_line runs
	run resil doctor
	assert_failure 1
	assert_output --partial "nowhere/resil.log cannot be written"
	export RESIL_LOG=$dir/resil.log
	run resil check
	assert_success
	assert_output ''
	RESIL_GROUP=logged run under "$bin/dial" -n 6 127.0.0.1 "$server_port"
	run grep -c 'closed -> open' "$dir/resil.log"
	assert_output 1
}

@test "the configuration in the README is right" {
	awk '/^```ini$/ { on = 1; next } /^```$/ { on = 0 } on' "$root/README.md" >"$dir/readme.conf"
	[ "$(grep -c '^\[' "$dir/readme.conf")" -ge 3 ]
	shim_part
	run resil check "$dir/readme.conf"
	assert_output ""
	assert_success
}
