#!/usr/bin/env bats
# What stands in for a destination, with more programs than tests/fallback.bats has.
load ../lib/common
load ../lib/clients
load ../lib/services
load ../lib/fallback

@test "http.client: a refused connect goes on at the secondary, the failure is the primary's (D4)" { falls_back_at_once http.client; }
@test "perl: a failure is its own, a rejection goes to the secondary (D4)" { falls_back_when_refused perl; }
@test "node: a failure is its own, a rejection goes to the secondary (D4)" { falls_back_when_refused node; }
@test "haproxy: an upstream that is rejected is the secondary, and no event is lost (D4)" { proxy_falls_back haproxy; }
@test "java, whose socket is IPv6: a refused connect goes on at the secondary, the failure is the primary's (D4)" {
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 answer
	caller HttpURLConnection 127.0.0.1 "$first_port" 7
	run bare "${cmd[@]}"
	assert_failure
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port;recovery_timeout=1m;recovery_max=1m"
	run under "${cmd[@]}"
	assert_success
	[ "$(fallbacks "127.0.0.1:$first_port" secondary)" -ge 7 ]
	assert_equal "$(destination "127.0.0.1:$second_port" calls.success)" "$(peer_accepted second)"
	[ "$(peer_accepted second)" -ge 7 ]
}
@test "php: a failure is its own, a rejection goes to the secondary (D4)" { falls_back_when_refused php; }
@test "requests: a refused connect goes on at the secondary, the failure is the primary's (D4)" { falls_back_at_once requests; }
@test "nginx: what stands in within it, a cache and a file, is served to each request, one by one and thirty at once (D4 D5 D6)" { proxy_is_served nginx; }
@test "haproxy: what stands in within it, a cache and a file, is served to each request, one by one and thirty at once (D4 D5 D6)" { proxy_is_served haproxy; }
