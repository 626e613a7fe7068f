#!/usr/bin/env bats
# What stands in for a destination: the chain of `fallback`, step by step.
load lib/common
load lib/clients
load lib/services
load lib/dns
load lib/fallback

@test "wget: a refused connect goes on at the secondary, the failure is the primary's (D4)" { falls_back_at_once wget; }

@test "curl: a failure is its own, a rejection goes to the secondary (D4)" { falls_back_when_refused curl; }
@test "asyncio: a failure is its own, a rejection goes to the secondary (D4)" { falls_back_when_refused asyncio; }

@test "redis-cli, which learns its connect by a second one, is led to the secondary (D4)" {
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 answer
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port;failure_threshold=1;recovery_timeout=1m;recovery_max=1m"
	for _ in 1 2 3; do served redis-cli "$first_port"; done
	assert_equal "$(destination "127.0.0.1:$first_port" calls.failure)" 1
	assert_equal "$(destination "127.0.0.1:$second_port" calls.success)" 3
	assert_equal "$(peer_accepted second)" 3
}

# The socket as the program sees it, against one that was connected to the secondary without the shim.
stays_the_same() { # blocking|nonblocking SETTINGS [FAMILY [HOST]]
	local how=$1 settings=$2 family=${3:-4} host=${4:-127.0.0.1}
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 answer
	run bare python3 "$root/tests/programs/steadfast.py" "$host" "$second_port" "$how" "$family"
	assert_success
	local expected=$output
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port;$settings"
	[ "$how" = blocking ] || run under python3 "$root/tests/programs/steadfast.py" "$host" "$first_port" "$how" "$family"
	run under python3 "$root/tests/programs/steadfast.py" "$host" "$first_port" "$how" "$family"
	assert_success
	diff <(echo "$expected") <(echo "$output") | head -20 >"$dir/differences"
	assert_equal "$(cat "$dir/differences")" ""
	assert_equal "$(peer_accepted second)" 2
}
@test "number, flags, options and epoll registration stay on a descriptor whose connect failed (D4)" {
	stays_the_same blocking ''
}
@test "number, flags, options and epoll registration stay on a descriptor whose connect was refused (D4)" {
	stays_the_same nonblocking 'failure_threshold=1;recovery_timeout=1m;recovery_max=1m'
}
@test "an IPv6 socket goes to an IPv4 secondary by a mapped address (D4)" {
	stays_the_same blocking '' 6 ::ffff:127.0.0.1
}
@test "an IPv6-only socket, and an IPv4 one before IPv6, pass over what they cannot reach (D4)" {
	peer first ::1 refuse
	peer second 127.0.0.1 answer
	peer third ::1 answer
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port, [::1]:$third_port"
	run under python3 "$root/tests/programs/steadfast.py" ::1 "$first_port" blocking v6only
	assert_success
	assert_equal "$(peer_accepted second) $(peer_accepted third)" "0 1"
	export RESIL_SET="fallback=[::1]:$third_port, 127.0.0.1:$second_port"
	peer fourth 127.0.0.1 refuse
	run under python3 "$root/tests/programs/steadfast.py" 127.0.0.1 "$fourth_port" blocking 4
	assert_success
	assert_equal "$(peer_accepted second) $(peer_accepted third)" "1 1"
	assert_equal "$(destination "127.0.0.1:$second_port" calls.total)" 1
}

@test "reply: a file is served where the destination is refused, and on blocking connects where it fails; getpeername names it (D6 D11)" {
	peer first 127.0.0.1 refuse
	shim_part
	echo '{"USD": 1.0}' >"$dir/rates.json"
	export RESIL_SET="fallback=reply:$dir/rates.json;failure_threshold=1;recovery_timeout=1m;recovery_max=1m"
	for how in blocking nonblocking; do
		run under python3 "$root/tests/programs/steadfast.py" 127.0.0.1 "$first_port" "$how"
		assert_success
		assert_output --partial "200 OK"
	done
	for _ in 1 2; do # the second is refused in each
		run under wget -qO- --tries=1 "http://127.0.0.1:$first_port/"
		assert_success
		assert_output '{"USD": 1.0}'
	done
	run under curl -sS "http://127.0.0.1:$first_port/"
	assert_failure 7
	run under curl -sS "http://127.0.0.1:$first_port/"
	assert_output '{"USD": 1.0}'
	assert_equal "$(destination "127.0.0.1:$first_port" fallbacks.reply -g wget)" 2
	assert_equal "$(destination "127.0.0.1:$first_port" fallbacks.reply -g curl)" 1
	assert_equal "$(destination "127.0.0.1:$first_port" calls.in_flight -g wget)" 0
	assert_equal "$(resil events -g wget --json | jq -r 'select(.type == "fallback") | .reason')" "reply:$dir/rates.json (refused)"
}

# What a service that asks for exchange rates promises: the primary's, else the secondary's, else the last ones (marked, and no older
# than so long), else fixed ones; one line of configuration, programs as they are.
rates() { # NAME of the server, [PORT]
	rm -f "$dir/$1.out" # of the one before
	start "$1" bare python3 -u -c '
import http.server, sys
class Rates(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = sys.argv[1].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Rates)
print("up", server.server_port)
server.serve_forever()' "$1" "${2:-0}"
	wait_until file_has '^up ' "$dir/$1.out"
	printf -v "$1_port" %s "$(sed -n 's/^up //p' "$dir/$1.out")"
}
is_ended() {
	kill -9 "$1"
	wait_until is_gone "$1"
}
@test "rates: primary, secondary, the last answer, a fixed one, for failures and for refusals alike (D4 D5 D6 D11 CD6)" {
	rates primary
	rates secondary
	shim_part
	printf 'fixed' >"$dir/fixed.txt"
	printf '%s\n' '[defaults]' 'failure_threshold = 3' 'recovery_timeout = 1m' 'recovery_max = 1m' '[destination rates]' "match = 127.0.0.1:$primary_port" \
		"fallback = 127.0.0.1:$secondary_port, cache(1h), reply:fixed.txt" >"$dir/rates.conf"
	export RESIL_CONF=$dir/rates.conf RESIL_GROUP=rates
	local name=127.0.0.1:$primary_port url=http://127.0.0.1:$primary_port/latest
	by_wget() { under wget -qO- --tries=1 "$url"; }
	by_python() { under python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())' "$url"; }
	assert_equal "$(by_wget) $(by_python) $(under curl -sS "$url")" "primary primary primary"
	assert_equal "$(destination "$name" fallbacks) $(destination "$name" degraded)" '{} []'
	is_ended "$primary_pid"
	assert_equal "$(by_wget) $(by_python)" "secondary secondary"
	is_ended "$secondary_pid"
	assert_equal "$(by_wget)" primary # a failure, the third
	assert_equal "$(destination "$name" state)" open
	assert_equal "$(by_wget) $(by_python)" "primary primary" # refusals
	run under curl -sS -i "$url"
	assert_line --regexp '^Age: [0-9]'
	assert_line --partial 'X-Resil-Source: cache'
	find "$dir/state/rates.cache" -type f -exec touch -d '61 minutes ago' {} + # as an hour would
	assert_equal "$(by_wget) $(by_python) $(under curl -sS "$url")" "fixed fixed fixed"
	assert_equal "$(destination "$name" fallbacks)" '{"secondary":2,"cache":4,"reply":3}'
	assert_equal "$(destination "$name" degraded)" '["secondary","cache","reply"]'
	assert_equal "$(fallback_events "$name")" "secondary: 127.0.0.1:$secondary_port (refused)
cache(1h) (refused)
reply:$dir/fixed.txt (rejected)"
	rates primary "$primary_port"
	resil reset "$name" >/dev/null
	assert_equal "$(under curl -sS "$url")" primary
	assert_equal "$(destination "$name" degraded)" '[]'
}

@test "spool: what a program sends while the destination is away is kept, and delivered by replay (D6)" {
	peer first 127.0.0.1 refuse
	shim_part
	export RESIL_SET="fallback=spool:$dir/spool;failure_threshold=1;recovery_timeout=1m;recovery_max=1m"
	local program='import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(sys.argv[2].encode())
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b"" # acknowledged: it is on the disk'
	for words in one two; do # failed, refused
		run under python3 -c "$program" "$first_port" "GET /$words HTTP/1.1"$'\r\nHost: x\r\n\r\n'
		assert_success
	done
	assert_equal "$(fallbacks "127.0.0.1:$first_port" spool)" 2
	peer_now first answer
	run resil replay "$dir/spool"
	assert_success
	assert_equal "$(peer_accepted first)" 2
	run resil replay "$dir/spool"
	assert_equal "$(peer_accepted first)" 2
}

@test "a secondary whose circuit is open is passed over, one that fails leads to the next step (D4)" {
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 refuse
	peer third 127.0.0.1 answer
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port, 127.0.0.1:$third_port;failure_threshold=2;recovery_timeout=1m;recovery_max=1m"
	for _ in 1 2 3; do served wget "$first_port"; done
	assert_equal "$(destination "127.0.0.1:$second_port" calls.failure)" 2
	assert_equal "$(destination "127.0.0.1:$second_port" calls.rejected)" 1
	assert_equal "$(destination "127.0.0.1:$second_port" fallbacks)" '{}'
	assert_equal "$(peer_accepted third)" 3
	assert_equal "$(fallbacks "127.0.0.1:$first_port" secondary)" 3
}

@test "errno:NAME ends the chain; without it the failure's own errno, or reject_errno, is what the program sees (D4)" {
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 refuse
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port, errno:ENETDOWN;failure_threshold=2;reject_errno=EPERM;recovery_timeout=1m;recovery_max=1m"
	run under "$bin/dial" -n 3 127.0.0.1 "$first_port"
	assert_equal "$(cut -d' ' -f1 <<<"$output" | xargs)" "ENETDOWN ENETDOWN ENETDOWN"
	assert_equal "$(fallbacks "127.0.0.1:$first_port" errno)" 3
	peer third 127.0.0.1 refuse
	peer fourth 127.0.0.1 refuse
	export RESIL_SET="fallback=127.0.0.1:$fourth_port;failure_threshold=2;reject_errno=EPERM;recovery_timeout=1m;recovery_max=1m"
	run under "$bin/dial" -n 3 127.0.0.1 "$third_port"
	assert_equal "$(cut -d' ' -f1 <<<"$output" | xargs)" "ECONNREFUSED ECONNREFUSED EPERM"
	assert_equal "$(destination "127.0.0.1:$third_port" fallbacks)" '{}'
}

@test "a call that a full bulkhead refuses goes to the secondary (D1 D4)" {
	peer first 127.0.0.1 answer
	peer second 127.0.0.1 answer
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port;max_concurrent=1" RESIL_GROUP=app
	start holder under "$bin/dial" -k 600 127.0.0.1 "$first_port"
	is_full() { [ "$(destination "127.0.0.1:$first_port" bulkhead.in_use 2>/dev/null)" = 1 ]; }
	wait_until is_full
	for program in wget curl; do served "$program" "$first_port"; done
	assert_equal "$(peer_accepted first) $(peer_accepted second)" "1 2"
	assert_equal "$(fallbacks "127.0.0.1:$first_port" secondary)" 2
	assert_equal "$(destination "127.0.0.1:$first_port" bulkhead.rejected)" 2
}

@test "a connect that goes on elsewhere leaves errno as it was (E1)" {
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 answer
	local program='socket(S, PF_INET, SOCK_STREAM, 0); $! = 7; connect(S, sockaddr_in($ARGV[0], inet_aton("127.0.0.1"))) or exit 1; print $! + 0'
	run bare perl -MSocket -e "$program" "$second_port"
	assert_output 7
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port;failure_threshold=1;recovery_timeout=1m;recovery_max=1m"
	for _ in 1 2; do # failed, refused
		run under perl -MSocket -e "$program" "$first_port"
		assert_output 7
	done
	assert_equal "$(destination "127.0.0.1:$first_port" calls.rejected)" 1
}

@test "degraded is shown wherever states are, as long as it lasts (D4)" {
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 answer
	shim_part
	local name
	export RESIL_SET="fallback=127.0.0.1:$second_port;failure_threshold=2;recovery_timeout=100ms;recovery_max=200ms"
	start member under "$bin/dial" -n 1000000 -i 100 127.0.0.1 "$first_port"
	name=127.0.0.1:$first_port
	is_degraded() { [ "$(destination "$name" degraded 2>/dev/null)" = "[\"$1\"]" ]; }
	wait_until is_degraded secondary
	run resil status "$name"
	assert_output --regexp '(open|closed|half_open) \(secondary\)'
	run resil why "$name"
	assert_output --partial "In its place: secondary ("
	socket_is_there() { [ -S "$dir/run/dial.sock" ]; }
	wait_until socket_is_there
	run curl -sS --unix-socket "$dir/run/dial.sock" http://resil/health
	assert_equal "$(jq -c --arg name "$name" '[.status, .breakers[$name].degraded]' <<<"$output")" '["degraded",["secondary"]]'
	run curl -sS --unix-socket "$dir/run/dial.sock" http://resil/metrics
	assert_line --regexp "^resil_fallback_total\{.*destination=\"$name\",source=\"secondary\"\} [1-9]"
	run curl -sS --unix-socket "$dir/run/dial.sock" http://resil/v1/config
	assert_equal "$(jq -r '.policies[-1].values.fallback.value' <<<"$output")" "127.0.0.1:$second_port"
	peer_now first answer
	# dial says nothing, so its calls are neutral: another of the group succeeds, once it is a probe.
	is_well() {
		RESIL_GROUP=dial under curl -sS "http://$name/" >/dev/null || true
		[ "$(destination "$name" degraded)" = '[]' ]
	}
	wait_until is_well
	[ "$(fallbacks "$name" secondary)" -ge 1 ]
}

@test "the deadline holds over the primary's connect, the secondary's and its answer (C1 C3 D4)" {
	peer first 127.0.0.1 full
	peer second 127.0.0.1 full
	peer third 127.0.0.1 drip
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port, 127.0.0.1:$third_port;connect_timeout=200ms;deadline=900ms"
	local began
	began=$(now_ms)
	run under python3 -c '
import socket, sys, time
began = time.monotonic()
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connected = time.monotonic()
s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
try:
    while s.recv(1000): pass
    print("end of file")
except OSError as e:
    print(e.errno, round((connected - began) * 1000), round((time.monotonic() - began) * 1000))' "$first_port"
	assert_success
	read -r errno connected whole <<<"$output"
	assert_equal "$errno" 110
	[ "$connected" -ge 400 ] && [ "$whole" -ge 900 ] || fail "$output"
	within "$connected" 480
	within "$whole" 980
	assert_equal "$(failed_by "127.0.0.1:$third_port" deadline)" 1
	# Nothing is begun once it has passed.
	export RESIL_SET="fallback=127.0.0.1:$second_port, errno:EPERM;connect_timeout=10s;deadline=300ms"
	peer fourth 127.0.0.1 full
	run under "$bin/dial" 127.0.0.1 "$fourth_port"
	assert_equal "$(cut -d' ' -f1 <<<"$output")" ETIMEDOUT
}

@test "with breaker = observe, and where one only observes by hand, nothing stands in" {
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 answer
	shim_part
	export RESIL_SET="breaker=observe;fallback=127.0.0.1:$second_port"
	run under "$bin/dial" -n 7 127.0.0.1 "$first_port"
	assert_equal "$(cut -d' ' -f1 <<<"$output" | sort | uniq -c | xargs)" "7 ECONNREFUSED"
	export RESIL_SET="fallback=127.0.0.1:$second_port"
	resil force "127.0.0.1:$first_port" observe --forever
	run under "$bin/dial" -n 7 127.0.0.1 "$first_port"
	assert_equal "$(cut -d' ' -f1 <<<"$output" | sort | uniq -c | xargs)" "7 ECONNREFUSED"
	assert_equal "$(peer_accepted second)" 0
}

# --- many at once, and proxies: epoll, registered before the connect ---

@test "nginx: an upstream that is rejected is the secondary, and no event is lost (D4)" { proxy_falls_back nginx; }
@test "curl -Z: forty at once are led to the secondary (D4)" {
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 answer
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port;failure_threshold=1;recovery_timeout=1m;recovery_max=1m"
	run under curl -sS "http://127.0.0.1:$first_port/"
	assert_failure 7
	output=$(under curl -s -Z --parallel-immediate --parallel-max 40 -w '%{http_code}\n' "http://127.0.0.1:$first_port/[1-40]" 2>/dev/null)
	assert_equal "$(grep -c '^ok$' <<<"$output") $(grep -c '^200$' <<<"$output")" "40 40"
	assert_equal "$(destination "127.0.0.1:$second_port" calls.success)" 40
	assert_equal "$(peer_accepted second)" "$(fallbacks "127.0.0.1:$first_port" secondary)"
}

@test "a kept connection: the reset of its next request, and the reconnect leads to the secondary (B20 D4)" {
	nginx_start first bare # its connections are kept
	peer second 127.0.0.1 answer
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port"
	run under python3 -c '
import http.client, os, subprocess, sys
first, resil = sys.argv[1:]
c = http.client.HTTPConnection("127.0.0.1", int(first))
def get():
    c.request("GET", "/")
    return c.getresponse().read()
assert get() == b"hello\n"
subprocess.run([resil, "force", "127.0.0.1:" + first, "open", "--forever"], check=True,
    env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"})
try:
    get()
    sys.exit("no reset")
except ConnectionResetError:
    c.close()
assert get() == b"ok\n"
assert get() == b"ok\n"' "$first_port" "$build/resil"
	assert_success
	assert_equal "$(peer_accepted second)" "$(fallbacks "127.0.0.1:$first_port" secondary)"
	assert_equal "$(destination "127.0.0.1:$second_port" calls.success)" 2
	assert_equal "$(destination "127.0.0.1:$first_port" calls.rejected)" "$(peer_accepted second)"
}

@test "check and run look for the files of a chain, relative to the configuration's folder; the shim does not (D6)" {
	shim_part
	mkdir -p "$dir/conf/d" "$dir/elsewhere"
	printf 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n' >"$dir/conf/there.http"
	printf '%s\n' '[destination a]' 'match = 127.0.0.1' 'fallback = reply:there.http, spool:d, errno:EPERM' >"$dir/conf/right.conf"
	run bash -c 'cd "$0/elsewhere" && "$1" check ../conf/right.conf' "$dir" "$build/resil"
	assert_success
	assert_output ''
	run bash -c 'cd "$0/elsewhere" && RESIL_CONF=../conf/right.conf "$1" which 127.0.0.1:1' "$dir" "$build/resil"
	assert_output --partial "reply:$dir/elsewhere/../conf/there.http, spool:$dir/elsewhere/../conf/d, errno:EPERM"
	printf '%s\n' '[destination a]' 'match = a' 'fallback = cache(1h), reply:gone.http' '[destination b]' 'match = b' \
		'fallback = spool:there.http' '[destination c]' 'match = 127.0.0.1' 'fallback = errno:EHOSTDOWN' >"$dir/conf/wrong.conf"
	run resil check "$dir/conf/wrong.conf"
	assert_failure 2
	assert_line "$dir/conf/wrong.conf:3: fallback: no such file ('reply:gone.http'; an absolute path, or one from the configuration file's folder on)"
	assert_line "$dir/conf/wrong.conf:6: fallback: not a folder ('spool:there.http'; spool:DIR)"
	# The spool makes its folder, but not what leads there.
	printf '%s\n' '[defaults]' 'fallback = spool:new' >"$dir/conf/new.conf"
	run resil check "$dir/conf/new.conf"
	assert_success
	printf '%s\n' '[defaults]' 'fallback = spool:new/new' >"$dir/conf/new.conf"
	run resil check "$dir/conf/new.conf"
	assert_output --partial "new.conf:2: fallback: no such folder ('spool:new/new';"
	run resil run -c "$dir/conf/wrong.conf" -- true
	assert_failure 125
	assert_output --partial "wrong.conf:3:"
	# A file that one process cannot see must not undo the rest of its configuration.
	peer first 127.0.0.1 refuse
	RESIL_CONF=$dir/conf/wrong.conf run under "$bin/dial" 127.0.0.1 "$first_port"
	assert_equal "$(cut -d' ' -f1 <<<"$output")" EHOSTDOWN
	RESIL_SET='fallback=reply:x' run resil check
	assert_failure 2
	assert_output "RESIL_SET: fallback: a relative path ('reply:x'; one from / on: only a file's are of its own folder)"
}

# --- names ---

@test "a secondary by its name: one look-up for the group, /etc/hosts without any, a silent server holds nothing up for long (C3 D4)" {
	dns_start
	zone second.test answer 127.0.0.1
	zone silent.test never
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 answer
	peer listed 127.0.0.9 answer
	shim_part
	local began long=';recovery_timeout=1h;recovery_max=1h' # a probe that does not block has no fallback
	RESIL_SET="fallback=second.test:$second_port$long" run under "$bin/dial" -x -n 2 127.0.0.1 "$first_port"
	assert_success
	assert_equal "$(destination "second.test:$second_port" calls.success)" 2
	assert_equal "$(queries second.test)" 1
	RESIL_SET="fallback=second.test:$second_port$long" run under "$bin/dial" -x 127.0.0.1 "$first_port"
	assert_success
	assert_equal "$(queries second.test)" 1
	RESIL_SET="fallback=hosts-only.test:$listed_port$long" run under "$bin/dial" -x 127.0.0.1 "$first_port"
	assert_success
	assert_equal "$(peer_accepted listed) $(queries hosts-only.test)" "1 0"
	began=$(now_ms)
	RESIL_SET="fallback=silent.test:1, 127.0.0.1:$second_port$long" run under "$bin/dial" -x -n 3 127.0.0.1 "$first_port"
	assert_success
	within $(($(now_ms) - began)) 1900 # two look-ups would be 2 s
	# On an event loop a glance is all.
	RESIL_SET="fallback=silent.test:1, 127.0.0.1:$second_port$long" run under "$bin/dial" -a -x -n 3 127.0.0.1 "$first_port"
	assert_success
	[ "$(cut -d' ' -f2 <<<"$output" | sort -n | tail -n 1)" -lt $((120000 + TEST_ALLOWANCE_MS * 1000)) ] || fail "$output"
	zone fresh.test answer 127.0.0.1
	RESIL_SET="fallback=fresh.test:$second_port$long" run under "$bin/dial" -a -x 127.0.0.1 "$first_port"
	[ "$status" = 0 ] || too_late "the name server has not answered at a glance: $output"
	assert_equal "$(destination "fresh.test:$second_port" calls.success)" 1
}

@test "a secondary's addresses are one call of its, the program's own come before any of them (A3 D4)" {
	dns_start
	zone first.test answer 127.0.0.3 127.0.0.1
	zone second.test answer ::1 127.0.0.1
	peer first 127.0.0.1 answer
	peer second 127.0.0.1 answer
	[ "$(via=("${via[@]}"); "${via[@]}" cat /proc/sys/net/ipv6/conf/lo/disable_ipv6)" = 0 ] || skip "IPv6 is off"
	shim_part
	export RESIL_SET="fallback=second.test:$second_port;failure_threshold=1;eject=off;recovery_timeout=1m;recovery_max=1m"
	run under "$bin/dial" -x first.test "$first_port"
	assert_success
	assert_equal "$(peer_accepted first) $(peer_accepted second)" "1 0"
	assert_equal "$(destination "first.test:$first_port" calls.failure)" 0
	peer_now first refuse
	run under "$bin/dial" -x first.test "$first_port"
	assert_success
	assert_equal "$(peer_accepted second)" 1
	assert_equal "$(destination "first.test:$first_port" calls.failure)" 1
	# Over an IPv6 socket: refused at ::1, answered at 127.0.0.1.
	peer third ::1 refuse
	run under "$bin/dial" -x ::1 "$third_port"
	assert_success
	assert_equal "$(peer_accepted second)" 2
	assert_equal "$(destination "second.test:$second_port" calls.success)" 2
	assert_equal "$(destination "second.test:$second_port" calls.failure)" 0
}
