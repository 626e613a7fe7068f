#!/usr/bin/env bats
# resil verify with programs that nobody here wrote, with one that never recovers, and killed in its midst. Run by `make long`.
load ../lib/common
load ../lib/services

short=(-s connect_timeout=500ms -s recovery_timeout=200ms -s recovery_max=400ms -s failure_threshold=1 -s deadline=1s)
alone() { resil "$@" 2>/dev/null; }
verify() { # DEST COMMAND...
	local dest=$1
	shift
	mkdir -p "$dir/tmp"
	# Five faults, each with runs until the circuit opens and until the program is itself again: longer than a test waits else.
	TMPDIR=$dir/tmp TEST_TIMEOUT=110 run alone verify "${short[@]}" --junit "$dir/report.xml" --json "$dest" -- "$@"
}
is_report() { # TESTS FAILURES
	xmllint --noout --schema "$root/tests/lib/junit.xsd" "$dir/report.xml" || return
	assert_equal "$(xmllint --xpath 'concat(/testsuite/@tests, " ", /testsuite/@failures, " ", count(//testcase), " ", count(//failure))' "$dir/report.xml")" \
		"$1 $2 $1 $2"
}
keeps_all() {
	assert_success
	assert_equal "$(jq -c '[.kept, (.faults[] | [.fault, .opened, .held, .fallback, .recovered])]' <<<"$output")" \
		'[true,["refusal",true,null,null,true],["hang",true,true,null,true],["drip",true,true,null,true],["reset",true,null,null,true],["503",true,null,null,true]]'
	is_report 12 0
	assert_equal "$(ls "$dir/tmp")" ""
}

@test "verify: curl and python against nginx keep every promise" {
	nginx_start server bare
	shim_part
	verify "127.0.0.1:$server_port" curl -sSf "http://127.0.0.1:$server_port/"
	keeps_all
	verify "127.0.0.1:$server_port" python3 -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$server_port/').read()"
	keeps_all
}

@test "verify: redis-cli and psql keep every promise; to them an HTTP answer is a reset" {
	redis_start redis
	postgres_start
	shim_part
	verify "127.0.0.1:$redis_port" redis-cli -p "$redis_port" ping
	keeps_all
	verify "127.0.0.1:$postgres_port" psql -w -X -h 127.0.0.1 -p "$postgres_port" -U tester -c 'select 1' postgres
	keeps_all
}

@test "verify: a program that never is itself again after its first failure is told, for each fault, in the report too" {
	nginx_start server bare
	shim_part
	cat >"$dir/sulks" <<-END
		#!/bin/sh
		[ ! -e "$dir/offended" ] || exit 9
		curl -sSf "http://127.0.0.1:$server_port/" || { : >"$dir/offended"; exit 9; }
	END
	chmod +x "$dir/sulks"
	short+=(--recovery 1s)
	verify "127.0.0.1:$server_port" "$dir/sulks"
	assert_failure 1
	assert_equal "$(jq -c '[.kept, (.faults[] | .recovered)]' <<<"$output")" '[false,false,false,false,false,false]'
	assert_equal "$(jq -r '.faults[0].remark' <<<"$output")" "1.0s after it was lifted: code 9 (0 without a fault), circuit open"
	is_report 12 "$(xmllint --xpath 'count(//failure)' "$dir/report.xml")"
	[ "$(xmllint --xpath 'count(//testcase[@name="it recovered"]/failure)' "$dir/report.xml")" = 5 ]
	assert_equal "$(ls "$dir/tmp")" ""
}

@test "verify, killed or interrupted at any time: its run ends with it, and its folder is gone (CF7)" {
	peer server 127.0.0.1 hang
	shim_part
	mkdir -p "$dir/tmp"
	verify_is_gone() { [ -z "$(ls "$dir/tmp")" ] && ! pgrep -f "$dir/marked" >/dev/null; }
	ln -s "$(command -v curl)" "$dir/marked"
	for i in $(seq 12); do
		TMPDIR=$dir/tmp setsid "$build/resil" verify "${short[@]}" "127.0.0.1:$server_port" -- "$dir/marked" -sS "http://127.0.0.1:$server_port/" >/dev/null 2>&1 3>&- &
		nap "0.$(printf %03d $((RANDOM % 600)))"
		kill -"$([ $((i % 3)) = 0 ] && echo TERM || echo KILL)" $! 2>/dev/null || true
		wait $! 2>/dev/null || true
		wait_until verify_is_gone
	done
}
