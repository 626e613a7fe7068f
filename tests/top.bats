#!/usr/bin/env bats
# resil top in a real terminal (tmux): what stands on the screen, and what the keys do. Every wait is for what is to be seen.
load lib/common
load lib/terminal
bats_require_minimum_version 1.5.0

setup() {
	common_setup
	shim_part
	terminal_setup
}
teardown() {
	terminal_teardown
	common_teardown
}
json() { python3 -c 'import json,sys; j = json.load(sys.stdin); print('"$1"')' <<<"$output"; }
# watch COLUMNS LINES [VARIABLE=VALUE]... [OPTIONS OF TOP]...
watch() {
	local columns=$1 lines=$2 env=()
	shift 2
	while [[ ${1-} == *=* ]]; do
		env+=("$1")
		shift
	done
	terminal "$columns" "$lines" "env ${env[*]-} '$build/resil' top -d 100ms $*; echo ended with \$?; exec cat"
}
calls() { # NUMBER [SETTINGS]
	local i
	for ((i = 0; i < $1; i++)); do RESIL_SET=${2-"recovery_timeout=5m;recovery_max=5m"} under "$bin/dial" 127.0.0.1 "$server_port" >/dev/null || true; done
}
opened() {
	peer server 127.0.0.1 refuse
	name=127.0.0.1:$server_port
	calls 7
}

@test "80 columns: one row a destination with its state in words, the countdown, and what the keys are" {
	opened
	watch 80 24
	shows "^1 open of 1 .*by state .*[0-9][0-9]:[0-9][0-9]:[0-9][0-9]$"
	shows "^ DEST +STATE +RETRY +CALL/S +ERR/S +REJ/S +CALLS +ERRORS +P99 +INFL$"
	shows "^>$name +open +[0-9.]+s +[0-9]"
	shows "^q quit +enter detail"
	# The lines move: rejections are calls that fail.
	wait_until rejections_show
	keys q
	shows "^ended with 0"
}
rejections_show() {
	calls 1
	sees "^>$name .*█.*█"
}

@test "what comes later comes up, a countdown counts down, the terminal may change its size" {
	watch 80 24
	shows "nothing there yet"
	opened
	shows "^>$name +open"
	first=$(screen | awk -v name=">$name" '$1 == name { print $3 + 0 }')
	counts_down() { screen | awk -v name=">$name" -v first="$first" '$1 == name { found = $3 + 0 < first } END { exit !found }'; }
	wait_until counts_down
	resize 30 20
	shows "^>127[0-9.>]*:$server_port +open +[0-9.]+s$"
	keys C-c
	shows "^ended with 0"
}

@test "30 columns: who, in what state, until when; the detail tells why, and no line is too long" {
	opened
	watch 30 24
	shows "^>127[0-9.>]*:$server_port +open +[0-9.]+s$"
	keys Enter
	shows "^Why: 5 consecutive failures"
	[ -z "$(screen | awk 'length > 30')" ] || fail "too long: $(screen)"
	# It can be read to its end.
	to_the_end() {
		keys NPage
		sees "off for the group|resil off -g"
	}
	wait_until to_the_end
}

@test "the detail pane: the story, failures by kind, events" {
	opened
	watch 110 40
	shows "^>$name"
	keys Enter
	shows "^$name in group dial is open: resil rejects its calls at once with ECONNREFUSED"
	shows "^Failures of all time: 5 of 5 calls that went out: refused 5"
	shows "to let every call through: resil force $name closed --for 10m -g dial"
	shows "^20[0-9TZ:.-]+ transition closed -> open: 5 consecutive failures"
	keys Escape
	wait_until eval '! sees "^Failures of all time"'
}

@test "force and reset ask first; escape leaves all as it was" {
	opened
	watch 80 24
	shows "^>$name"
	keys f
	shows "^force $name in group dial: \(o\)pen"
	keys Escape
	shows "^q quit"
	keys f
	shows "^force $name"
	keys c
	shows "forced_closed for how long"
	keys Escape
	shows "^q quit"
	assert_equal "$(destination "$name" mode)" auto
	keys f
	shows "^force $name"
	keys c
	shows "forced_closed for how long"
	keys 2
	shows "^$name: forced_closed; undo it with: resil force $name auto"
	shows "^>$name +forced_closed "
	shows "1 by hand"
	assert_equal "$(destination "$name" mode)" forced_closed
	resil why "$name" | grep -q '^By hand: for \(9m\|10m\)'
	keys f
	shows "^force $name"
	keys a
	shows "^>$name +closed "
	assert_equal "$(destination "$name" mode)" auto
	calls 5
	shows "^>$name +open "
	keys r
	shows "^reset $name in group dial"
	keys n
	shows "^q quit"
	assert_equal "$(destination "$name" state)" open
	keys r
	shows "^reset $name"
	keys y
	shows "^>$name +closed "
	assert_equal "$(destination "$name" state)" closed
}

@test "a key that acts does so in the row's own group" {
	opened
	RESIL_GROUP=other calls 5
	watch 100 24
	shows "^ GROUP +DEST"
	shows "^>dial +$name +open"
	keys j
	shows "^>other +$name +open"
	keys r
	shows "in group other"
	keys y
	shows "^.other +$name +closed"
	assert_equal "$(destination "$name" state -g dial) $(destination "$name" state -g other)" "open closed"
}

@test "sort, filter and pause" {
	opened
	peer well 127.0.0.1 answer
	under "$bin/dial" 127.0.0.1 "$well_port" >/dev/null
	order() { screen | grep -oE "127.0.0.1:($server_port|$well_port)" | xargs; }
	is_ordered() { [ "$(order)" = "$*" ]; }
	watch 80 24
	wait_until is_ordered "$name" "127.0.0.1:$well_port"
	keys s
	shows "by name"
	wait_until eval '[ "$(order)" = "$(printf "%s\n" "$name" "127.0.0.1:$well_port" | sort | xargs)" ]'
	keys /
	shows "^filter: _"
	keys -l ":$well_port"
	wait_until is_ordered "127.0.0.1:$well_port"
	keys Enter
	shows "^1 open of 2  /:$well_port"
	keys /
	keys Escape
	wait_until eval '[ "$(order | wc -w)" = 2 ]'
	keys p
	shows "^PAUSED 1 open of 2"
	resil reset "$name"
	assert_equal "$(destination "$name" state)" closed
	keys h
	shows "choose; enter: why it is so"
	sees "^PAUSED 1 open of 2" || fail "it did not stand still: $(screen)"
	keys p
	shows "^0 open of 2"
}

@test "colours, where there are any and NO_COLOR does not say no; the same words without" {
	opened
	colours() { screen -e | grep -qE $'\033\\[([0-9]+;)*3[0-7]m'; }
	watch 80 24
	shows "^>$name +open"
	colours || fail "$(screen -e)"
	watch 80 24 NO_COLOR=1
	shows "^>$name +open"
	! colours || fail "$(screen -e)"
	watch 80 24 TERM=vt100
	shows "^>$name +open"
	! colours || fail "$(screen -e)"
	busy() {
		calls 1
		sees "^>$name .*#.*#"
	}
	wait_until busy
	! screen | grep -q '[▁-█]'
}

@test "top -n on a terminal that can: tables, and its screen is left as it was" {
	peer server 127.0.0.1 answer
	under "$bin/dial" 127.0.0.1 "$server_port"
	run env TERM=xterm script -qec "'$build/resil' top -n 1" /dev/null
	assert_success
	assert_output --partial "127.0.0.1:$server_port"
	refute_output --partial $'\e[?1049h'
	refute_output --partial $'\e[?25l'
}

@test "a terminal that cannot address its cursor gets tables" {
	opened
	watch 120 24 TERM=dumb -n 2
	shows "^TIME +USER +GROUP +DEST +STATE +RETRY"
	shows "dial +$name +open"
	shows "^ended with 0"
	watch 120 24 TERM=none-such -n 1
	shows "^TIME +USER +GROUP"
	shows "^ended with 0"
}

@test "in a pipe and with -b: tab-separated rounds; --json a line each; rates a second" {
	opened
	run --separate-stderr resil top -n 2 -d 100ms
	assert_success
	assert_equal "${#lines[@]}" 2
	assert_line --index 1 --regexp $'^20[^\t]+Z\t[^\t]+\tdial\t'"$name"$'\topen\t[0-9.]+s\t0\t0\t0\t[^\t]+\t0$'
	RESIL_SET='failure_threshold=0' start one under "$bin/dial" -n 100000 -i 5 127.0.0.1 "$server_port"
	wait_until test -s "$dir/one.out"
	run --separate-stderr resil top -n 1 -d 300ms --json
	assert_success
	assert_equal "$(json '[(d["group"], d["destination"]["name"], 0 < d["calls_per_s"] < 1000, d["failures_per_s"] + d["rejected_per_s"] <= d["calls_per_s"] + 1) for d in j["destinations"]]')" \
		"[('dial', '$name', True, True)]"
	run --separate-stderr resil top -n 1 -d 100ms -f nothing-like-it
	assert_success
	assert_output ""
}

@test "wrong words of top" {
	run -2 resil top -n 0
	run -2 resil top -d 5
	assert_line --index 0 "resil top: '5' is no time between looks; 100ms to 1h are"
	run -2 resil top -s size
	assert_line --index 0 "resil top: 'size' is no order; state, name, calls, errors, retry and p99 are"
	run -2 resil top more
	run -3 resil top -g nope -n 1
}
