#!/usr/bin/env bats
# `cache(AGE)`: the last good answers to plain HTTP/1 GETs stand in for a destination that is away, marked, never older than AGE, and never
# another's (D5).
load lib/common
load lib/services
load lib/cache

setup() {
	common_setup
	export RESIL_GROUP=app
}

@test "an answer that was good is served while its destination is away, with its age and two marks; wget, which blocks, after a failure too (D5)" {
	shim_part
	origin first
	set_cache 1h
	local url=http://127.0.0.1:$first_port good
	good=$(get "$url/ok/a")
	assert_equal "$good" "/ok/a 127.0.0.1:$first_port -"
	get "$url/chunked/b" >/dev/null
	get "$url/old/c" >/dev/null
	get "$url/length/200000" | md5sum >"$dir/sum"
	kill -9 "$first_pid"
	wait_until is_gone "$first_pid"
	assert_equal "$(under wget -qO- "$url/ok/a")" "$good"
	away
	run get -i "$url/ok/a"
	assert_line --partial "HTTP/1.1 200 OK"
	assert_line --regexp '^Age: [0-9]+'
	assert_line --partial 'Warning: 110'
	assert_line --partial 'X-Resil-Source: cache'
	assert_line --partial 'X-Kind: ok'
	assert_line --partial "$good"
	assert_equal "$(get "$url/chunked/b")" "/chunked/b 127.0.0.1:$first_port -"
	get -i "$url/old/c" | grep -qE '^Age: 3[0-9]{3}'
	assert_equal "$(get "$url/length/200000" | md5sum)" "$(cat "$dir/sum")"
	run get -I "$url/ok/a"
	assert_line --partial "Content-Length: ${#good}"
	# Two on one connection.
	assert_equal "$(get -w ' %{num_connects} ' "$url/ok/a" "$url/chunked/b")" "$good 1 /chunked/b 127.0.0.1:$first_port - 0 "
	[ "$(destination "127.0.0.1:$first_port" fallbacks.cache)" -ge 5 ]
	assert_equal "$(stat -c %a "$dir/state/app.cache")" 700
}
@test "what may not be kept, or stale, is not: 504 in its place (D5)" {
	shim_part
	origin first
	set_cache 1h
	local url=http://127.0.0.1:$first_port path
	get "$url/ok" >/dev/null
	local paths=(set-cookie private no-store no-cache must-revalidate vary-all status/404 status/203 until-close cut length/300000)
	for path in "${paths[@]}"; do get -m 5 "$url/$path" >/dev/null 2>&1 || true; done
	get -H 'Authorization: Basic eDp5' "$url/ok/secret" >/dev/null
	get -H 'Cache-Control: no-store' "$url/ok/not" >/dev/null
	get -d x "$url/ok/posted" >/dev/null
	get "$url/ok/changed" >/dev/null
	get -X PUT -d y "$url/ok/changed" >/dev/null
	away
	for path in "${paths[@]}" ok/secret ok/not ok/posted ok/changed; do
		assert_equal "$path $(get -o /dev/null -w '%{http_code}' "$url/$path")" "$path 504"
	done
	assert_equal "$(get -o /dev/null -w '%{http_code}' "$url/ok")" 200
	assert_equal "$(get -d x -o /dev/null -w '%{http_code}' "$url/ok")" 504
}
@test "another host's answer is never served, nor another language's, nor one that is too old (D5)" {
	shim_part
	origin first
	set_cache 1h
	local url=http://127.0.0.1:$first_port
	get -H 'Host: a.test' "$url/ok" >/dev/null
	get -H 'Accept-Language: de' "$url/vary" >/dev/null
	origin other
	away
	code() { get -o /dev/null -w '%{http_code}' "$@"; }
	assert_equal "$(get -H 'Host: a.test' "$url/ok")" "/ok a.test -"
	assert_equal "$(code -H 'Host: b.test' "$url/ok") $(code "$url/ok") $(code "$url/ok?x")" "504 504 504"
	assert_equal "$(get -H 'Accept-Language: de' "$url/vary")" "/vary 127.0.0.1:$first_port de"
	assert_equal "$(code -H 'Accept-Language: en' "$url/vary") $(code "$url/vary")" "504 504"
	set_cache 1s
	nap 2.1
	assert_equal "$(code -H 'Host: a.test' "$url/ok" 2>/dev/null)" 000 # nothing is young enough: no step is left
	# A file that was changed, or put in another's place, is no answer.
	set_cache 1h
	local file files=("$dir"/state/app.cache/*)
	for file in "${files[@]}"; do printf X | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 1)) conv=notrunc status=none; done
	assert_equal "$(code -H 'Host: a.test' "$url/ok") $(code -H 'Accept-Language: de' "$url/vary")" "504 504"
}
@test "a destination of which nothing is kept: the step is passed over; many answers keep to their bound (D5)" {
	shim_part
	origin first
	export RESIL_SET="fallback=cache(1h), errno:EHOSTUNREACH;failure_threshold=1;recovery_timeout=1m;recovery_max=1m"
	run under wget -qO- http://127.0.0.1:9/
	assert_failure
	run under python3 -c 'import socket; socket.create_connection(("127.0.0.1", 9))'
	assert_output --partial "No route to host"
	get "http://127.0.0.1:$first_port/ok/[1-300]" >/dev/null
	[ "$(ls "$dir/state/app.cache" | wc -l)" -le 256 ]
}
@test "two programs at once keep and serve, each whole answers (D5)" {
	shim_part
	origin first
	set_cache 1h
	local url=http://127.0.0.1:$first_port
	for i in 1 2 3; do start "many$i" under curl -sS --parallel --parallel-max 8 "$url/length/[1000-1060]" -o /dev/null; done
	for i in 1 2 3; do p=many${i}_pid; wait "${!p}"; done
	away
	for i in 1000 1030 1060; do assert_equal "$(get "$url/length/$i" | wc -c)" "$i"; done
}
@test "each case of tests/heads/cache, by way of sockets: what may be kept is served when its destination is away, all else is not (D5)" {
	local heads=$root/tests/heads/cache program=$root/tests/programs/cache_heads.py
	start first bare python3 -u "$program" serve "$heads"
	wait_until file_has '^up ' "$dir/first.out"
	first_port=$(sed -n 's/^up //p' "$dir/first.out")
	run bare python3 "$program" ask "$heads" "$first_port"
	assert_success
	shim_part
	export RESIL_SET="fallback=cache(1h);failure_threshold=1000" # answers that are cut are failures
	run under python3 "$program" ask "$heads" "$first_port"
	assert_success
	kill -9 "$first_pid"
	wait_until is_gone "$first_pid"
	run under python3 "$program" compare "$heads" "$first_port"
	local cases
	cases=$(grep -cE '^(kept|not) ' "$heads")
	assert_output "$cases of $cases"
}
