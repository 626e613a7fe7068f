#!/usr/bin/env bats
# Ten thousand requests through proxies that are clients of their upstream, with every limit set: not one error, and every request on a kept
# connection is a call of its own (A1 A7).
load ../lib/common
load ../lib/services

ten_thousand() { # PORT
	local answers
	answers=$(bare ab -q -k -n 10000 -c 20 "http://127.0.0.1:$1/" 2>&1) || fail "$answers"
	assert_equal "$(grep -E '^(Complete requests|Failed requests|Non-2xx responses):' <<<"$answers" | tr -s ' ' | paste -sd' ')" \
		"Complete requests: 10000 Failed requests: 0"
}
proxied() { # nginx|haproxy
	nginx_start upstream bare
	"$1"_proxy_start proxy bare "$upstream_port"
	ten_thousand "$proxy_port"
	shim_part
	export RESIL_SET='answer_timeout=2s;stall_timeout=2s;deadline=5s'
	"$1"_proxy_start guarded under "$upstream_port"
	ten_thousand "$guarded_port"
	untouched "127.0.0.1:$upstream_port"
	# Each request of a kept connection is a call of its own (A1).
	[ "$(destination "127.0.0.1:$upstream_port" calls.success)" -ge 10000 ] || fail "$(destination "127.0.0.1:$upstream_port" calls)"
}
@test "ten thousand requests through nginx, a client of its upstream: not one error (A1 A7)" { proxied nginx; }
@test "ten thousand requests through haproxy, a client of its upstream: not one error (A1 A7)" { proxied haproxy; }
