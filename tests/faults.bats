#!/usr/bin/env bats
# Faults: what was asked for is injected, at the calls that its numbers say, and met by the policies as the real thing.
load lib/common
load lib/services
load lib/asker
bats_require_minimum_version 1.5.0

# run_with FAULT COMMAND...: by resil run, with no breaker of its own.
run_with() {
	local fault=$1
	shift
	run resil run -s breaker=off --fault "$fault" -- "$@"
}
is_report() { # TESTS FAILURES ERRORS
	python3 -c 'import sys, xml.etree.ElementTree as t
r = t.parse(sys.argv[1]).getroot(); n = lambda what: str(len(r.findall(".//" + what)))
print(r.get("tests"), r.get("failures"), r.get("errors"), [n("testcase"), n("failure"), n("error")] == [r.get(k) for k in ("tests", "failures", "errors")])' "$dir/report.xml" >"$dir/counted"
	assert_equal "$(cat "$dir/counted")" "$1 $2 $3 True"
}
get() { curl -sS -m 20 -o "$dir/got" -w '%{http_code}' "http://127.0.0.1:$server_port/"; }
export -f get
fetch=(curl -sS -m 20 -o /dev/null -w '%{http_code}\n')
# A file of 200 KB to fetch: files_port.
files_start() {
	mkdir -p "$dir/files"
	head -c 204800 /dev/urandom >"$dir/files/blob"
	(cd "$dir/files" && exec python3 -u -m http.server 0 --bind 127.0.0.1) >"$dir/files.log" 2>&1 3>&- &
	started+=("$!")
	wait_until file_has 'port [0-9]+' "$dir/files.log"
	files_port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$dir/files.log")
}
download() { # FAULT: outcome of curl in $output, the file in $dir/got, ms in $took
	local begun
	rm -f "$dir/got"
	begun=$(now_ms)
	run_with "$1" curl -sS -m 20 -o "$dir/got" -w '%{size_download}' "http://127.0.0.1:$files_port/blob"
	took=$(($(now_ms) - begun))
}
between() { # WHAT VALUE LEAST MOST
	[ "$2" -ge "$3" ] || fail "$1: $2, not from $3 to $4"
	[ "$2" -le "$4" ] || too_late "$1: $2, not from $3 to $4"
}

@test "a misplaced or misspelt attribute is an error that says where and what would be right (CF4)" {
	shim_part
	cat >"$dir/resil.conf" <<-END
		[fault slow]
		match = api.internal:443
		type = latency
		dealy = 200ms
		[fault refused]
		match = *
		type = refuse
		rate = 64k
	END
	run resil check "$dir/resil.conf"
	assert_failure 2
	assert_line --partial "resil.conf:4: unknown key in [fault NAME] ('dealy'"
	assert_line --partial "did you mean delay?"
	assert_line --partial "resil.conf:8: rate is no parameter of refuse (refuse takes none; rate is of bandwidth)"
	run resil run --fault 'latency * dealy=200ms' -- touch "$dir/ran"
	assert_failure 125
	assert_line --partial "--fault: unknown key in a fault ('dealy'"
	assert [ ! -e "$dir/ran" ]
	run resil fault add latency '*' delay=200 --for 1m
	assert [ "$status" -ne 0 ]
}

@test "the first two requests fail, then they succeed, over processes (CF3)" {
	peer server 127.0.0.1 answer
	export server_port
	shim_part
	run_with "refuse 127.0.0.1:$server_port count=2" bash -c 'for i in 1 2 3 4; do get 2>/dev/null; echo " $?"; done'
	assert_output "$(printf '000 7\n000 7\n200 0\n200 0')"
	assert_equal "$(peer_accepted server)" 2
	# A run of its own begins anew.
	run_with "refuse 127.0.0.1:$server_port skip=1 count=1" bash -c 'for i in 1 2 3; do get 2>/dev/null; echo " $?"; done'
	assert_output "$(printf '200 0\n000 7\n200 0')"
	run_with "refuse 127.0.0.1:$server_port every=3" bash -c 'for i in 1 2 3 4 5; do get 2>/dev/null; echo " $?"; done'
	assert_output "$(printf '000 7\n200 0\n200 0\n000 7\n200 0')"
	assert_equal "$(destination 127.0.0.1:"$server_port" calls.total 2>/dev/null || echo none)" none # breaker=off
}

@test "the same seed hits the same calls, whatever the interleaving; another seed others; a journal is repeated (CF2)" {
	peer server 127.0.0.1 close
	shim_part
	local fault="refuse 127.0.0.1:$server_port percent=30%"
	for i in 1 2 3; do
		RESIL_SEED=7 run resil run -s breaker=off --fault "$fault" --journal "$dir/journal.$i" -- \
			python3 "$root/tests/programs/asker.py" "$server_port" <<<"threads 8 25"
		assert_success
		sort -n -k 4 "$dir/journal.$i" >"$dir/sorted.$i"
	done
	assert_equal "$(wc -l <"$dir/sorted.1")" 200
	cmp "$dir/sorted.1" "$dir/sorted.2"
	cmp "$dir/sorted.1" "$dir/sorted.3"
	RESIL_SEED=8 run resil run -s breaker=off --fault "$fault" --journal "$dir/journal.4" -- \
		python3 "$root/tests/programs/asker.py" "$server_port" <<<"threads 8 25"
	sort -n -k 4 "$dir/journal.4" >"$dir/sorted.4"
	run cmp "$dir/sorted.1" "$dir/sorted.4"
	assert_failure
	# What another seed would hit does not count: the journal says.
	RESIL_SEED=8 run resil run -s breaker=off --fault "$fault" --journal "$dir/journal.5" --replay "$dir/journal.1" -- \
		python3 "$root/tests/programs/asker.py" "$server_port" <<<"threads 4 50"
	sort -n -k 4 "$dir/journal.5" >"$dir/sorted.5"
	cmp "$dir/sorted.1" "$dir/sorted.5"
}

@test "a fault at 0 percent changes nothing: no call of the system more or less (CF5)" {
	peer server 127.0.0.1 close
	shim_part
	mkdir -p "$dir/conf"
	printf '[defaults]\nbreaker = on\n[destination x]\nmatch = 192.0.2.1\n' >"$dir/conf/without"
	printf '[defaults]\nbreaker = on\n[fault f]\nmatch = *\ntype = refuse\npercent = 0%%\n' >"$dir/conf/with"
	for which in without with without with; do
		rm -rf "$RESIL_STATE_DIR"
		strace -f -o "$dir/trace.$which" -E LD_PRELOAD="$shim" -E RESIL_CONF="$dir/conf/$which" "$bin/dial" -n 5 127.0.0.1 "$server_port" 3>&-
		awk '{ sub(/\(.*/, ""); print $2 }' "$dir/trace.$which" >"$dir/calls.$which"
	done
	assert_equal "$(cat "$dir/calls.with")" "$(cat "$dir/calls.without")"
	run resil events --json
	refute_output --partial '"type":"fault"'
}

# The system calls of five connects, one a line, by an asker that has been through HOW: without, lifted (of each kind of call) or over.
# (size=64: a request goes whole; the server looks at its first octets alone.)
calls_after() { # HOW
	local how=$1 at=127.0.0.1:$server_port
	rm -rf "$RESIL_STATE_DIR" "$dir/asker.in"
	printf '[resil]\ncontrol = off\n[defaults]\nbreaker = on\n' >"$dir/resil.conf"
	asker_run LD_PRELOAD= RESIL_CONF="$dir/resil.conf" RESIL_GROUP=asker strace -f -o "$dir/trace" -E LD_PRELOAD="$shim" \
		python3 "$root/tests/programs/asker.py" "$server_port"
	asks connect 1
	assert_equal "${said% *}" ok
	if [ "$how" = lifted ]; then
		resil fault add errno "$at" errno=EACCES count=1 --forever -g asker >/dev/null
		resil fault add short_io "$at" size=64 --forever -g asker >/dev/null
		resil fault add latency "$at" delay=5ms --forever -g asker >/dev/null
		asks connect 1
		assert_equal "${said% *}" EACCES
	fi
	if [ "$how" = over ]; then
		resil fault add short_io "$at" size=64 --for 500ms -g asker >/dev/null
		asks connect 1
		nap 0.5
	fi
	asks ask
	assert_equal "${said% *}" ok
	[ "$how" != lifted ] || resil fault clear -g asker >/dev/null
	asks connect 6
	assert_equal "${said% *}" ok,ok,ok,ok,ok,ok
	# What was said is there before its call is: strace notes that when it is over.
	wait_until grep -q ' write(1, "ok,ok,ok,ok,ok,ok' "$dir/trace"
	kill "$asker_pid"
	# Of the thread that connects; another's call may stand between a call's begin and its end.
	awk '/ socket\(/ { at[n++] = count[$1] }
		/^[0-9]+ +[a-z0-9_]+\(/ { line[$1, count[$1]++] = $2 }
		/ write\(1, "ok,ok,ok,ok,ok,ok/ {
			for (i = at[n - 5]; i < count[$1] - 1; i++)
				print line[$1, i]
			exit
		}' "$dir/trace" >"$dir/calls.$how"
	assert_equal "$(grep -c "^connect(" "$dir/calls.$how")" 5
}

@test "a fault that is lifted, and one whose time is over, change nothing: no call of the system more or less (CF5)" {
	peer server 127.0.0.1 answer
	shim_part
	for how in lifted over; do
		# What looks around once a second may do so in one of them.
		for i in 1 2 3; do
			calls_after without
			calls_after "$how"
			cmp "$dir/calls.without" "$dir/calls.$how" && continue 2
		done
		fail "$how: $(diff "$dir/calls.without" "$dir/calls.$how")"
	done
}

@test "refusals of 100 percent open the circuit as real ones do, and nothing reaches the server (CF8)" {
	peer server 127.0.0.1 answer
	shim_part
	for i in 1 2 3 4 5 6 7; do
		run resil run -s recovery_timeout=5m -s recovery_max=5m --fault "refuse 127.0.0.1:$server_port percent=100%" -- "${fetch[@]}" "http://127.0.0.1:$server_port/"
		assert_failure 7
	done
	local name=127.0.0.1:$server_port
	assert_equal "$(destination "$name" state)" open
	assert_equal "$(failed_by "$name" refused)" 5
	assert_equal "$(destination "$name" calls.rejected)" 2
	assert_equal "$(destination "$name" faults.refuse)" 5
	assert_equal "$(peer_accepted server)" 0
	run resil metrics
	assert_line "resil_faults_injected_total{group=\"curl\",destination=\"$name\",fault=\"refuse\"} 5"
	run resil events --json
	assert_line --partial '"type":"fault","destination":"'"$name"'","fault":"refuse","count":1'
}

@test "errors at connect, send and receive are the app's; the server meets a reset" {
	peer server 127.0.0.1 answer
	shim_part
	local at=127.0.0.1:$server_port
	run_with "unreachable $at" "$bin/dial" 127.0.0.1 "$server_port"
	assert_output --partial EHOSTUNREACH
	run_with "errno $at errno=EADDRNOTAVAIL" "$bin/dial" 127.0.0.1 "$server_port"
	assert_output --partial EADDRNOTAVAIL
	run_with "errno $at errno=ECONNRESET calls=recv" "${fetch[@]}" "http://$at/"
	assert_failure 56
	run_with "errno $at errno=EPIPE calls=send" "${fetch[@]}" "http://$at/"
	assert_failure 55
	wait_until file_has '^closed .* reset$' "$dir/server.log"
	# EAGAIN is no error of a socket that blocks, and EINTR none of one that does not.
	run_with "errno $at errno=EAGAIN calls=recv" python3 "$root/tests/programs/asker.py" "$server_port" <<<ask
	assert_output --regexp '^ok '
	run_with "errno $at errno=EINTR calls=recv count=1" python3 "$root/tests/programs/asker.py" "$server_port" <<<ask
	assert_output --regexp '^(ok|EINTR) '
	# Short counts lose nothing.
	run_with "short_io $at size=1 calls=recv" curl -sS "http://$at/"
	assert_output ok
	run_with "short_io $at size=3 calls=recv" redis-cli -h 127.0.0.1 -p "$server_port" ping
	assert_output OK
}

@test "several messages a call on a stream: fewer, the last of them in part, as the kernel does it; nothing is lost" {
	assert_equal "$(bare "$bin/messages")" $'sendmmsg 4: 300 300 300 300\nrecvmmsg 4: 300 300 300 300\nwhole'
	shim_part
	run_with 'short_io 127.0.0.0/8 size=700' "$bin/messages"
	assert_output $'sendmmsg 3: 300 300 100\nrecvmmsg 3: 300 300 100\nwhole'
	run_with 'short_io 127.0.0.0/8 size=50' "$bin/messages"
	assert_output $'sendmmsg 1: 50\nrecvmmsg 1: 50\nwhole'
	run_with 'short_io 127.0.0.0/8 size=600' "$bin/messages"
	assert_output $'sendmmsg 2: 300 300\nrecvmmsg 2: 300 300\nwhole'
	run_with 'short_io 127.0.0.0/8 size=5000' "$bin/messages"
	assert_line 'recvmmsg 4: 300 300 300 300'
}

@test "a look-up fails as it is told, late as it is told, and within resolve_timeout" {
	shim_part
	ask='import socket, sys
try: socket.getaddrinfo("api.test", 80)
except socket.gaierror as e: print(e.args[0] == getattr(socket, sys.argv[1]))'
	run_with 'dns *.test' python3 -c "$ask" EAI_AGAIN
	assert_output True
	run_with 'dns api.test error=noname' python3 -c "$ask" EAI_NONAME
	assert_output True
	run_with 'dns * error=fail' python3 -c "$ask" EAI_FAIL
	assert_output True
	run_with 'dns * error=noname' python3 -c 'import socket
try: socket.gethostbyname("api.test")
except OSError as e: print(e.args[0])'
	assert_output -- "$(python3 -c 'import socket; print(socket.EAI_NONAME)')"
	local begun
	begun=$(now_ms)
	run resil run -s resolve_timeout=300ms --fault 'dns *.test error=none delay=10s' -- python3 -c "$ask" EAI_AGAIN
	assert_output True
	within $(($(now_ms) - begun)) 8000
}

@test "a connect that hangs, and one that is slow: blocking and awaited by poll; connect_timeout holds (CF1 CF8)" {
	peer server 127.0.0.1 answer
	shim_part
	local at=127.0.0.1:$server_port took
	for how in ask poll; do
		run resil run -s connect_timeout=300ms --fault "hang $at" -- python3 "$root/tests/programs/asker.py" "$server_port" <<<"$how"
		assert_output --regexp '^ETIMEDOUT '
		took=${output#* }
		between "$how" "$took" 295 3000
		run resil run -s connect_timeout=3s --fault "slow_connect $at delay=300ms" -- python3 "$root/tests/programs/asker.py" "$server_port" <<<"$how"
		assert_output --regexp '^ok '
		took=${output#* }
		between "$how" "$took" 300 2900
	done
	assert_equal "$(failed_by "$at" connect_timeout)" 2
	assert_equal "$(destination "$at" calls.success)" 2
}

@test "a connection that began slowly is not slow for the rest of its life (CF9)" {
	nginx_start server bare
	shim_part
	run resil run -s slow_call_duration=200ms --fault "slow_connect 127.0.0.1:$server_port delay=300ms" -- \
		python3 "$root/tests/programs/asker.py" "$server_port" <<<"kept 20"
	assert_success
	for ms in ${output% *}; do between "a request" "$ms" 0 280; done
	# One of twenty calls was slow: that of the connect.
	assert_equal "$(destination "127.0.0.1:$server_port" slow_call_rate)" 5.00%
}

@test "latency, rate, slices, an end, a hole, a reset and flipped bytes, as curl meets them" {
	files_start
	shim_part
	local at=127.0.0.1:$files_port
	download "latency $at delay=200ms direction=down"
	assert_output 204800
	cmp "$dir/got" "$dir/files/blob"
	[ "$took" -ge 200 ] || fail "latency: $took ms"
	download "bandwidth $at rate=200k direction=down"
	assert_output 204800
	cmp "$dir/got" "$dir/files/blob"
	between bandwidth "$took" 950 6000
	download "slicer $at size=20k delay=20ms"
	cmp "$dir/got" "$dir/files/blob"
	[ "$took" -ge 200 ] || fail "slicer: $took ms"
	download "limit_data $at bytes=100k"
	assert_failure 18
	between limit_data "$(stat -c %s "$dir/got")" 102000 102300
	cmp -n 102000 "$dir/got" "$dir/files/blob"
	download "reset $at after_bytes=100k"
	assert_failure 56
	between reset "$(stat -c %s "$dir/got")" 102000 102300
	download "corrupt $at share=0.1% direction=down"
	between corrupt "$(cmp -l "$dir/got" "$dir/files/blob" | wc -l)" 100 320
	run resil run -s breaker=off -s stall_timeout=300ms --fault "blackhole $at after_bytes=50k direction=down" -- \
		curl -sS -m 20 -o "$dir/got" "http://$at/blob"
	assert_failure 56
	between blackhole "$(stat -c %s "$dir/got")" 50800 51200
}

@test "an HTTP status in place of the server's opens the circuit as the server's own would (CF8)" {
	peer server 127.0.0.1 answer
	shim_part
	run resil run -s failure_threshold=2 --fault "http 127.0.0.1:$server_port status=503 count=2" -- \
		curl -sS -w '%{http_code}\n' "http://127.0.0.1:$server_port/[1-3]"
	assert_output --partial "503 Service Unavailable (injected by resil)"
	assert_equal "$(grep -c '^503$' <<<"$output")" 2
	assert_equal "$(failed_by "127.0.0.1:$server_port" http_gateway)" 2
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
	assert_equal "$(peer_accepted server)" 0
	run_with "http * status=404" wget -S -O /dev/null "http://127.0.0.1:$server_port/"
	assert_output --partial "HTTP/1.1 404 Not Found"
}

@test "a reset is met at both ends, in place of the answer" {
	peer server 127.0.0.1 answer
	shim_part
	run_with "reset 127.0.0.1:$server_port" python3 "$root/tests/programs/asker.py" "$server_port" <<<ask
	assert_output --regexp '^ECONNRESET '
	wait_until file_has '^closed .* reset$' "$dir/server.log"
}

@test "resil fault: in a program that runs, with a limit or an explicit none, shown, and lifted by the command that it names" {
	peer server 127.0.0.1 answer
	shim_part
	local at=127.0.0.1:$server_port
	asker_start "$server_port" RESIL_SET=breaker=off RESIL_GROUP=asker
	asks connect 3
	assert_equal "${said% *}" ok,ok,ok
	run resil fault add refuse "$at"
	assert_failure 2
	assert_output --partial "say --for 10m or --forever"
	run resil fault add refuse "$at" every=2 --for 10m
	assert_success
	assert_output --partial "lift it with: resil fault rm refuse"
	asks connect 4
	assert_equal "${said% *}" ECONNREFUSED,ok,ECONNREFUSED,ok
	run resil fault ls
	assert_output --regexp "^asker	refuse	[0-9.]+(m|s)	2	refuse $at every=2$"
	run resil status
	assert_output --partial "a fault is on in group asker: refuse $at every=2; 'resil fault rm refuse -g asker' lifts it"
	run resil fault add refuse "$at" name=refuse --forever
	assert_failure 2
	run resil fault add errno "$at" errno=EACCES count=1 --forever
	assert_success
	run resil fault rm refuse -g asker
	assert_success
	asks connect 3
	assert_equal "${said% *}" EACCES,ok,ok
	run resil fault rm refuse
	assert_failure 3
	run resil fault clear
	assert_success
	asks connect 2
	assert_equal "${said% *}" ok,ok
	run resil fault add refuse "$at" --for 300ms
	nap 0.4
	asks connect 2
	assert_equal "${said% *}" ok,ok
}

@test "the socket puts faults in and takes them out, and answers throughout; lifting ends what hangs in them (CF6)" {
	peer server 127.0.0.1 answer
	shim_part
	printf '[resil]\ncontrol = on\n[defaults]\nbreaker = observe\nconnect_timeout = off\n' >"$dir/resil.conf"
	asker_start "$server_port" RESIL_CONF="$dir/resil.conf" RESIL_GROUP=asker
	asks connect
	socket=$RESIL_RUNTIME_DIR/asker.sock
	wait_until test -S "$socket"
	api() { curl -sS -m 5 --unix-socket "$socket" "$@"; }
	run api -X POST --data '' "http://resil/v1/faults?spec=hang%20127.0.0.1:$server_port&forever"
	assert_output '{"name":"hang","lifted_by":"DELETE /v1/faults/hang"}'
	run api -X POST --data '' "http://resil/v1/faults?spec=hang%20*"
	assert_output --partial 'for=10m or forever is due'
	run api -X POST --data '' "http://resil/v1/faults?spec=hagn%20*&for=1m"
	assert_output --partial 'did you mean hang?'
	begin_asking ask
	hangs() { ss -Htn state syn-sent | grep -q 127.0.0.1; }
	for i in $(seq 20); do
		run api http://resil/health
		assert_output --partial '"status":"healthy"'
	done
	run api http://resil/v1/faults
	assert_output --partial '"name":"hang","type":"hang","spec":"hang 127.0.0.1:'
	refute asker_has_said
	run api -X DELETE http://resil/v1/faults/hang
	assert_output '{"lifted":1}'
	wait_until asker_has_said
	assert_equal "$(sed -n "${asked}s/ .*//p" "$dir/asker.said")" ETIMEDOUT
	asks ask
	assert_equal "${said% *}" ok
	# A connection in a black hole: a reset, once it is lifted.
	api -X POST --data '' "http://resil/v1/faults?spec=blackhole%20127.0.0.1:$server_port&forever" >/dev/null
	begin_asking ask
	wait_until file_has '"blackhole"' <(api http://resil/v1/events)
	run api http://resil/health
	assert_output --partial '"status":"healthy"'
	refute asker_has_said
	run api -X DELETE http://resil/v1/faults
	assert_output '{"lifted":1}'
	wait_until asker_has_said
	assert_equal "$(sed -n "${asked}s/ .*//p" "$dir/asker.said")" ECONNRESET
	run api -X DELETE http://resil/v1/faults/nothing
	assert_output --partial 'no fault of that name'
}

@test "killed, the app and the command leave no file, no rule and no listener behind (CF7)" {
	peer server 127.0.0.1 answer
	shim_part
	asker_start "$server_port" RESIL_SET=breaker=off RESIL_GROUP=asker
	asks connect
	local files
	files=$(cd "$RESIL_STATE_DIR" && find . | sort)
	resil fault add latency "127.0.0.1:$server_port" delay=100ms --forever
	asks ask
	assert_equal "${said% *}" ok
	between latency "${said#* }" 200 3000
	# The command is killed in the midst of what it does, again and again.
	for i in $(seq 10); do
		resil fault add refuse 192.0.2.1:1 --forever >/dev/null 2>&1 3>&- &
		kill -9 $! 2>/dev/null
		wait $! 2>/dev/null || true
	done
	asks ask
	assert_equal "${said% *}" ok
	kill -9 "$asker_pid"
	wait "$asker_pid" 2>/dev/null || true
	run resil fault ls
	assert_output ''
	assert_equal "$(cd "$RESIL_STATE_DIR" && find . | sort)" "$files"
	run ss -Hltnp
	refute_output --partial "pid=$asker_pid,"
	# Who comes later does not inherit it.
	run env LD_PRELOAD="$shim" RESIL_SET=breaker=off RESIL_GROUP=asker python3 "$root/tests/programs/asker.py" "$server_port" <<<ask
	assert_output --regexp '^ok '
	between "without it" "${output#* }" 0 190
	run resil fault add refuse '*' --forever
	assert_failure 3
}

@test "faults of the configuration: which tells them, a reload changes them" {
	peer server 127.0.0.1 answer
	shim_part
	local at=127.0.0.1:$server_port
	printf '[defaults]\nbreaker = off\n[fault no]\nmatch = %s\ntype = refuse\nskip = 1\n' "$at" >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf
	run resil which "$at"
	assert_line --regexp "^fault no	refuse $at name=no skip=1	.*resil.conf:3 \[fault no\]$"
	asker_start "$server_port" RESIL_GROUP=asker
	asks connect 3
	assert_equal "${said% *}" ok,ECONNREFUSED,ECONNREFUSED
	printf '[defaults]\nbreaker = off\n' >"$dir/resil.conf"
	run resil reload
	assert_success
	asks connect 2
	assert_equal "${said% *}" ok,ok
}

@test "twelve faults of one destination, and one of them again in a later run: status and metrics count each of them" {
	peer server 127.0.0.1 answer
	shim_part
	local at=127.0.0.1:$server_port i
	{
		printf '[defaults]\nbreaker = off\n'
		# The first fault hits the first call, the second one the second, and so on.
		for i in {1..12}; do printf '[fault f%s]\nmatch = %s\ntype = refuse\ncount = 1\n' "$i" "$at"; done
	} >"$dir/resil.conf"
	for i in {1..13}; do echo "127.0.0.1 $server_port"; done >"$dir/calls"
	RESIL_GROUP=twelve RESIL_CONF=$dir/resil.conf under bash -c 'while read -r host port; do { : >"/dev/tcp/$host/$port"; } 2>/dev/null || echo refused; done' \
		<"$dir/calls" >"$dir/met"
	assert_equal "$(grep -c refused "$dir/met")" 12
	RESIL_GROUP=twelve RESIL_FAULTS="refuse $at name=f3" under bash -c ": >/dev/tcp/127.0.0.1/$server_port" 2>/dev/null || true
	local expected
	expected=$(for i in {1..12}; do echo "f$i $((i == 3 ? 2 : 1))"; done | sort)
	assert_equal "$(resil status -g twelve --json | jq -r '.groups[0].destinations[0].faults | to_entries[] | "\(.key) \(.value)"' | sort)" "$expected"
	assert_equal "$(resil metrics -g twelve | sed -n 's/^resil_faults_injected_total.*fault="\(.*\)"} /\1 /p' | sort)" "$expected"
}

@test "verify: five faults one after another, a report of the promises, and none of a circuit in use is touched" {
	peer server 127.0.0.1 answer
	shim_part
	local TEST_TIMEOUT=110 # dozens of starts
	local at=127.0.0.1:$server_port short=(-s connect_timeout=200ms -s recovery_timeout=100ms -s recovery_max=200ms -s failure_threshold=2)
	run resil verify "${short[@]}" -s deadline=700ms --junit "$dir/report.xml" --json "$at" -- curl -sSf "http://$at/"
	assert_success
	assert_equal "$(jq -c '[.kept, (.faults[] | [.fault, .opened, .held, .recovered])]' <<<"$output")" \
		'[true,["refusal",true,null,true],["hang",true,true,true],["drip",true,true,true],["reset",true,null,true],["503",true,null,true]]'
	is_report 12 0 0
	run resil status
	refute_output --partial "$at"
	# A breaker that does not count what happens keeps no promise.
	run resil verify "${short[@]}" -s deadline=700ms -s trip_on=none "$at" -- curl -sSf "http://$at/"
	assert_failure 1
	assert_line --regexp '^refusal	NO	-	-	yes	4	.*the circuit stayed closed after 4 runs'
	run resil verify --junit "$dir/report.xml" "$at" -- true
	assert_failure 1
	assert_output "resil verify: true made no call to $at: it made none at all that the shim sees ('resil doctor' tells why)"
	is_report 1 0 1
	run --separate-stderr resil verify --json 127.0.0.1:1 -- curl -sSf "http://$at/"
	assert_failure 1
	assert_equal "$(jq -r '"\(.kept) \(.faults | length) \(.trouble)"' <<<"$output")" \
		"false 0 curl made no call to 127.0.0.1:1; it called $at: DEST as it is called there is due"
	# It calls but once: what the faults would have made of it is not known, and that is what is said.
	cat >"$dir/once" <<-END
		#!/bin/sh
		[ ! -e "$dir/called" ] || exit 0
		: >"$dir/called"
		exec curl -sSf "http://$at/"
	END
	chmod +x "$dir/once"
	run resil verify "${short[@]}" -s deadline=700ms --junit "$dir/report.xml" "$at" -- "$dir/once"
	assert_failure 1
	assert_line --regexp "^refusal	untried	-	-	untried	4	.*	untried: the command made no call to $at in 4 runs with the fault \(without, it did\); one that calls it each time is due"
	assert_line --regexp '^hang	untried	untried	-	untried	'
	is_report 12 0 12
	rm "$dir/called"
	run --separate-stderr resil verify "${short[@]}" --json "$at" -- "$dir/once"
	assert_failure 1
	assert_equal "$(jq -c '[.kept, (.faults[0] | .tried, .opened, .recovered)]' <<<"$output")" '[false,false,null,null]'
	run resil verify "$at"
	assert_failure 2
	# The seventeenth was left out without a word.
	local many=()
	for _ in {1..17}; do many+=(-s breaker=on); done
	run resil verify "${many[@]}" "$at" -- true
	assert_failure 2
	assert_output --partial "-s 16 times at most"
}

@test "a deadline holds under a slicer, a fallback serves under a black hole: curl, wget, python, as they are (CF8)" {
	peer server 127.0.0.1 answer
	peer second 127.0.0.1 answer
	shim_part
	local at=127.0.0.1:$server_port n=0 begun
	local clients=("curl -sSf http://$at/" "wget -q -t 1 -O - http://$at/"
		"python3 -c print(__import__('urllib.request').request.urlopen('http://$at/').read().decode(),end='')")
	for client in "${clients[@]}"; do
		# Some ninety octets, one every 50 ms: four seconds without the deadline.
		begun=$(now_ms)
		run resil run -g sliced -s breaker=observe -s deadline=500ms --fault "slicer $at size=1 delay=50ms direction=down" -- $client
		assert_failure
		[ $(($(now_ms) - begun)) -ge 500 ] || fail "$client: before its deadline"
		within $(($(now_ms) - begun)) 3000
		n=$((n + 1))
		assert_equal "$(destination "$at" failures.deadline -g sliced)" "$n"
	done
	for client in "${clients[@]}"; do
		resil reset "$at" -g hole >/dev/null 2>&1 || true
		for i in 1 2 3; do
			run resil run -g hole -s failure_threshold=2 -s recovery_timeout=5m -s recovery_max=5m -s answer_timeout=300ms \
				-s "fallback=127.0.0.1:$second_port" --fault "blackhole $at" -- $client
			[ "$i" = 3 ] || assert_failure
		done
		assert_success
		assert_output ok
		assert_equal "$(destination "$at" state -g hole)" open
		assert_equal "$(destination "$at" failures.answer_timeout -g hole)" $((2 * (n - 2)))
		n=$((n + 1))
	done
	assert_equal "$(peer_accepted second)" 3
}

@test "a journal that cannot be written, one that is no file: the program is not started" {
	local what
	mkdir "$dir/folder"
	ln -s "$dir/elsewhere" "$dir/link"
	echo "hit it again, for 3 times" >"$dir/words"
	for what in "--journal=$dir/none/here" "--journal=$dir/link" "--journal=$dir/folder" "--replay=$dir/none" "--replay=$dir/folder" "--replay=$dir/words" \
		"--journal=$dir/$(printf 'a/%.0s' {1..300})b"; do
		run -125 resil run "$what" -- touch "$dir/ran"
		assert_line --partial "resil run: ${what%%=*}: ${what#*=}: "
	done
	refute [ -e "$dir/ran" ]
	resil run --journal "$dir/chaos.log" -- true
	resil run --replay "$dir/chaos.log" -- true
}

@test "verify: circuits of a section and of routes are found; what fails without a fault is told at once" {
	peer server 127.0.0.1 answer
	shim_part
	local at=127.0.0.1:$server_port how
	for how in 'key = section' $'key = route\nroute = /a'; do
		cat >"$dir/resil.conf" <<-END
			[destination kept]
			match = $at
			$how
			failure_threshold = 2
			connect_timeout = 300ms
			deadline = 700ms
			recovery_timeout = 100ms
			recovery_max = 200ms
		END
		run --separate-stderr resil verify -c "$dir/resil.conf" "$at" --json -- curl -sSf "http://$at/a"
		assert_success
		assert_equal "$(jq -c '[.kept, .faults[].opened]' <<<"$output")" '[true,true,true,true,true,true]'
	done
	run resil verify "$at GET" -- curl -sSf "http://$at/"
	assert_failure 2
	run resil verify "sni:$at" -- curl -sSf "http://$at/"
	assert_failure 2
	kill "$server_pid"
	wait_until is_gone "$server_pid"
	run resil verify "$at" -- curl -sSf "http://$at/"
	assert_failure 1
	assert_output --partial 'fails as well'
}

@test "a fault and a fallback on the same destination: the second server answers in its place, and verify says so (CF8)" {
	peer server 127.0.0.1 answer
	peer second 127.0.0.1 answer
	shim_part
	local TEST_TIMEOUT=110 # dozens of starts
	local at=127.0.0.1:$server_port rules=(-s failure_threshold=2 -s "fallback=127.0.0.1:$second_port")
	for i in 1 2 3 4; do run resil run "${rules[@]}" -s recovery_timeout=5m -s recovery_max=5m --fault "refuse $at" -- curl -sSf "http://$at/"; done
	assert_success
	assert_output ok
	assert_equal "$(destination "$at" state)" open
	assert_equal "$(peer_accepted server)" 0
	[ "$(peer_accepted second)" -ge 1 ]
	run resil verify "${rules[@]}" -s recovery_timeout=1s -s connect_timeout=200ms -s deadline=700ms --json "$at" -- curl -sSf "http://$at/"
	assert_success
	assert_equal "$(jq -c '[.faults[].fallback]' <<<"$output")" '[true,true,true,true,true]'
}

@test "reset upon reset, in processes that call again at once: each is met as a reset, none as a connect that hangs" {
	peer server 127.0.0.1 answer
	shim_part
	# What the thread of relays still hears of the connection before, when the record is the next one's already, is nothing of its.
	cat >"$dir/again.py" <<-'END'
		import collections, errno, socket, sys
		met = collections.Counter()
		for _ in range(400):
		    with socket.socket() as s:
		        try:
		            s.connect(("127.0.0.1", int(sys.argv[1])))
		            s.send(b"GET / HTTP/1.0\r\n\r\n")
		            met[s.recv(100)] += 1
		        except OSError as e:
		            met[errno.errorcode[e.errno]] += 1
		print(dict(met))
	END
	local i pids=()
	for i in 1 2 3 4; do
		RESIL_FAULTS="reset 127.0.0.1:$server_port" RESIL_SET='breaker=off;connect_timeout=2s' LD_PRELOAD=$shim \
			python3 "$dir/again.py" "$server_port" >"$dir/again.$i" 3>&- &
		pids+=("$!")
	done
	wait "${pids[@]}"
	for i in 1 2 3 4; do assert_equal "$(cat "$dir/again.$i")" "{'ECONNRESET': 400}"; done
}

@test "doctor names a fault that is in force, and what lifts it" {
	peer server 127.0.0.1 answer
	shim_part
	RESIL_GROUP=shop start one under "$bin/dial" -n 1000000 -i 20 127.0.0.1 "$server_port"
	wait_until test -s "$dir/one.out"
	run resil doctor
	refute_line --partial "fault	"
	resil fault add refuse "127.0.0.1:$server_port" --for 10m -g shop
	run resil doctor
	assert_line --regexp "^note	fault	a fault is on in group shop: refuse 127.0.0.1:$server_port.*; 'resil fault rm refuse -g shop' lifts it$"
	resil fault rm refuse -g shop
	# That it has hit calls lately stays to be told.
	run resil doctor
	refute_line --partial "lifts it"
}
