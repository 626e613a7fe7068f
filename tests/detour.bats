#!/usr/bin/env bats
# A connection that is led to an end point in the process looks to its program as the real one does: results, errno, events, names, ends.
# Each case is run bare first, and has to say the same by way of a relay.
load lib/common
load lib/detour
load lib/services

@test "the connection goes by way of the relay, and through nothing else" {
	bare python3 "$root/tests/programs/detoured.py" witness
	shim_part
	assert_equal "$(RESIL_TEST_DETOUR='' under python3 "$root/tests/programs/detoured.py" witness)" "witness direct"
	assert_equal "$(detoured relay python3 "$root/tests/programs/detoured.py" witness)" "witness detoured"
}
@test "a blocking connect: octets, half-close, names of both ends (D11)" { same blocking bound; }
@test "a refused upstream refuses the connect, blocking or not, and the socket can be used again" { same refused recv_of_refused connect_twice; }
@test "registered with epoll before the connect, by level and by edge: one event, no other" { same epoll_connected epoll_edge epoll_refused epoll_edge_refused; }
@test "IPv6, and IPv6 sockets to mapped addresses (D11)" { same ipv6 mapped; }
@test "copies of the number have the names too, and another socket on it has not (D11)" { same dupped; }
@test "a reset and a half-close pass through in both directions, with all that was sent before" { same reset_by_server reset_by_app half_closed_by_server; }
@test "eight megabytes each way at once, and a reader who is slow" { same large_both_ways slow_reader; }
@test "SO_SNDTIMEO leaves a blocking connect pending; one given up while pending leaves no event" { same send_timeout closed_while_pending; }
@test "asyncio, forty at once and a refused one" { same gather; }
@test "a fork in the middle: the parent's relays go on, and serve the child (E4)" { same forked; }
@test "what was sent before exit and _exit arrives" { same exits; }
@test "four hundred connections: those for which there is no room go without" { same many; }

@test "a hang is a connect in SYN_SENT: connect_timeout bounds it, and the breaker counts it" {
	shim_part
	peer server 127.0.0.1 answer
	export RESIL_SET='connect_timeout=200ms'
	local error took
	for how in blocking nonblocking; do
		read -r error took < <(detoured hang python3 "$root/tests/programs/detoured.py" "to_$how" "$server_port")
		assert_equal "$how $error" "$how ETIMEDOUT"
		[ "$took" -ge 199 ] || fail "too early: after $took ms"
		within "$took" 400
	done
	assert_equal "$(failed_by "127.0.0.1:$server_port" connect_timeout)" 2
	assert_equal "$(peer_accepted server)" 0
}
@test "refused by way of a relay: the circuit counts it as the real thing, and opens" {
	shim_part
	local port
	port=$(free_port)
	export RESIL_SET='failure_threshold=2;recovery_timeout=5m;recovery_max=5m'
	for how in blocking nonblocking; do
		run detoured relay python3 "$root/tests/programs/detoured.py" "to_$how" "$port"
		assert_output --regexp '^ECONNREFUSED [0-9]+$'
	done
	assert_equal "$(failed_by "127.0.0.1:$port" refused)" 2
	state_is "127.0.0.1:$port" open
}
@test "a deadline is met and passed by way of a relay as without (C1 C5)" {
	shim_part
	peer server 127.0.0.1 trickle
	export RESIL_SET='deadline=1s'
	read -r came how ms < <(detoured relay "$bin/drip_reader" poll "$server_port")
	assert_equal "$how" ETIMEDOUT
	[ "$ms" -ge 999 ] || fail "ended after $ms ms, before the limit"
	within "$ms" 1020
	[ "$came" = 3 ] || too_late "$came octets came"
	wait_until peer_has server closed 1
	assert_equal "$(tail -n 1 "$dir/server.log" | cut -d' ' -f6)" reset
}
@test "shaped: late, held, cut and reset, as event loops see it" {
	shim_part
	head -c 100000 /dev/zero >"$dir/file"
	start web bare python3 -u -m http.server --bind 127.0.0.1 --directory "$dir" 0
	wait_until file_has 'port [0-9]+' "$dir/web.out"
	server_port=$(sed -nE 's/.*port ([0-9]+) .*/\1/p' "$dir/web.out")
	took() { detoured "$1" curl -s -o /dev/null -w '%{time_connect} %{time_total} %{http_code} %{exitcode}\n' "http://127.0.0.1:$server_port/file"; }
	read -r connect total code exit < <(took "up-delay=100 down-delay=150")
	assert_equal "$code $exit" "200 0"
	awk -v t="$total" 'BEGIN { exit !(t >= 0.25) }' || fail "all after $total"
	within "$(awk -v c="$connect" 'BEGIN { print int(c * 1000) }')" 100
	read -r connect total code exit < <(took "hold=200")
	assert_equal "$code $exit" "200 0"
	awk -v c="$connect" 'BEGIN { exit !(c >= 0.2) }' || fail "connected after $connect"
	read -r connect total code exit < <(took "down-reset=2000" || true)
	assert_equal "$exit" 56
	read -r connect total code exit < <(took "down-limit=2000" || true)
	assert_equal "$exit" 18
}
@test "clients that nobody here wrote: curl alone and fifty side by side, wget, node" {
	shim_part
	head -c 3000000 /dev/urandom >"$dir/file"
	start web bare python3 -u -m http.server --bind 127.0.0.1 --directory "$dir" 0
	wait_until file_has 'port [0-9]+' "$dir/web.out"
	local port sum
	port=$(sed -nE 's/.*port ([0-9]+) .*/\1/p' "$dir/web.out")
	sum=$(md5sum <"$dir/file")
	assert_equal "$(detoured relay curl -sS "http://127.0.0.1:$port/file" | md5sum)" "$sum"
	assert_equal "$(detoured relay wget -qO- "http://127.0.0.1:$port/file" | md5sum)" "$sum"
	assert_equal "$(detoured relay curl -sS --parallel --parallel-max 50 -w '%{http_code}\n' -o "$dir/out.#1" "http://127.0.0.1:$port/file?[1-50]" | sort | uniq -c | xargs)" "50 200"
	assert_equal "$(md5sum "$dir"/out.* | cut -c1-32 | sort -u)  -" "$sum"
	assert_equal "$(detoured relay node -e "require('http').get('http://127.0.0.1:$port/file',r=>{let n=0;r.on('data',d=>n+=d.length);r.on('end',()=>console.log(n,r.socket.remotePort==$port))})")" "3000000 true"
}
@test "reply: an HTTP client gets an answer to each request, of the file's type, HEAD without a body, on a kept connection (D6)" {
	shim_part
	printf '{"offline": true}\n' >"$dir/x.json"
	r() { detoured "reply=$dir/x.json" curl -sS "$@"; }
	assert_equal "$(r http://192.0.2.1/a)" '{"offline": true}'
	run r -i http://192.0.2.1/a
	assert_line --partial 'HTTP/1.1 200 OK'
	assert_line --partial 'Content-Type: application/json'
	assert_line --partial 'Content-Length: 18'
	assert_line --partial 'X-Resil-Source: reply'
	run r -I http://192.0.2.1/a
	assert_line --partial 'Content-Length: 18'
	refute_line --partial offline
	assert_equal "$(r -w '%{num_connects} %{remote_ip}:%{remote_port}\n' http://192.0.2.1/a http://192.0.2.1/b)" $'{"offline": true}\n1 192.0.2.1:80\n{"offline": true}\n0 192.0.2.1:80'
	head -c 3000000 /dev/zero >"$dir/body"
	assert_equal "$(r -w '%{http_code} %{size_upload}' -o /dev/null --data-binary @"$dir/body" http://192.0.2.1/a)" "200 3000000"
	assert_equal "$(r -w ' %{num_connects}' -0 http://192.0.2.1/a http://192.0.2.1/a | xargs)" '{offline: true} 1{offline: true} 1'
	assert_equal "$(detoured "reply=$dir/x.json" wget -qO- http://192.0.2.1/a)" '{"offline": true}'
	assert_equal "$(detoured "reply=$dir/x.json" python3 -c 'import urllib.request as u; print(u.urlopen("http://192.0.2.1/").read())')" "b'{\"offline\": true}\\n'"
}
@test "reply: a file with a head of its own goes out as it is; a large one is whole; a client without HTTP gets the octets (D6)" {
	shim_part
	printf 'HTTP/1.1 503 Down\r\nContent-Length: 5\r\nRetry-After: 9\r\n\r\nlater' >"$dir/x.http"
	assert_equal "$(detoured "reply=$dir/x.http" curl -s -w ' %{http_code} %header{retry-after}' http://192.0.2.1/)" "later 503 9"
	assert_equal "$(detoured "reply=$dir/x.http" curl -sI http://192.0.2.1/ | tr -d '\r' | sed -n 3p)" "Retry-After: 9"
	head -c 20000000 /dev/urandom >"$dir/large"
	assert_equal "$(detoured "reply=$dir/large" curl -sS http://192.0.2.1/ | md5sum)" "$(md5sum <"$dir/large")"
	printf -- '-LOADING no backend\r\n' >"$dir/redis"
	assert_equal "$(detoured "reply=$dir/redis" redis-cli -h 192.0.2.1 get x 2>&1)" "LOADING no backend"
	assert_equal "$(detoured "reply=$dir/redis" bash -c 'exec 3<>/dev/tcp/192.0.2.1/9; echo hi >&3; cat <&3' | tr -d '\r')" "-LOADING no backend"
	# What cannot be served is the next one's.
	run detoured "reply=$dir/none" curl -sS --connect-timeout 2 "http://127.0.0.1:$(free_port)/"
	assert_failure 7
}
@test "no thread, no detour, nothing open once no connection is led so; the app's numbers are as without us (E5 E6)" {
	shim_part
	detoured relay python3 "$root/tests/programs/detoured.py" quiet
}
