# What the tests of the chain of `fallback` share. Load it after lib/common, lib/clients and lib/services.

# One call of a program; it ends with 0 only where the answer was whole and good.
served() { # PROGRAM PORT
	caller "$1" 127.0.0.1 "$2"
	run under "${cmd[@]}"
	[ "$status" = 0 ] || fail "$1: $output"
}
fallbacks() { destination "$1" "fallbacks.$2"; }
fallback_events() { resil events --json | jq -r --arg name "$1" 'select(.type == "fallback" and .destination == $name) | .reason'; }

# Programs whose connect blocks: the failure is the primary's, the answer the secondary's.
falls_back_at_once() { # PROGRAM
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 answer
	caller "$1" 127.0.0.1 "$first_port"
	run bare "${cmd[@]}"
	assert_failure
	caller "$1" 127.0.0.1 "$second_port"
	run bare "${cmd[@]}"
	assert_success
	shim_part
	local bare_ones
	bare_ones=$(peer_accepted second)
	export RESIL_SET="fallback=127.0.0.1:$second_port;recovery_timeout=1m;recovery_max=1m"
	served "$1" "$first_port"
	assert_equal "$(failed_by "127.0.0.1:$first_port" refused)" 1
	assert_equal "$(fallback_events "127.0.0.1:$first_port")" "secondary: 127.0.0.1:$second_port (refused)"
	for _ in 2 3 4 5 6 7; do served "$1" "$first_port"; done
	assert_equal "$(destination "127.0.0.1:$first_port" calls.failure)" 5
	assert_equal "$(destination "127.0.0.1:$first_port" calls.rejected)" 2
	assert_equal "$(fallbacks "127.0.0.1:$first_port" secondary)" 7
	assert_equal "$(destination "127.0.0.1:$second_port" calls.success)" 7
	assert_equal "$(peer_accepted second)" $((bare_ones + 7))
	assert_equal "$(fallback_events "127.0.0.1:$first_port" | wc -l)" 1
}

# Programs that do not block: what fails, fails; what is refused goes to the secondary.
falls_back_when_refused() { # PROGRAM
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 answer
	caller "$1" 127.0.0.1 "$first_port"
	run bare "${cmd[@]}"
	assert_failure
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port;failure_threshold=1;recovery_timeout=1m;recovery_max=1m"
	run under "${cmd[@]}"
	assert_failure
	for _ in 1 2 3; do served "$1" "$first_port"; done
	assert_equal "$(destination "127.0.0.1:$first_port" calls.rejected)" 3
	assert_equal "$(fallbacks "127.0.0.1:$first_port" secondary)" 3
	assert_equal "$(destination "127.0.0.1:$second_port" calls.success)" 3
	assert_equal "$(peer_accepted second)" 3
	assert_equal "$(fallback_events "127.0.0.1:$first_port")" "secondary: 127.0.0.1:$second_port (rejected)"
}

all_from() { # URL TIMES [curl's options]: every answer is 200 and "ok"
	local url=$1 times=$2
	shift 2
	output=$(bare curl -s "$@" -w '%{http_code}\n' "$url/[1-$times]" 2>/dev/null)
	assert_equal "$(grep -c '^ok$' <<<"$output") $(grep -c '^200$' <<<"$output")" "$times $times"
}
proxy_falls_back() { # nginx|haproxy
	peer first 127.0.0.1 refuse
	peer second 127.0.0.1 answer
	shim_part
	export RESIL_SET="fallback=127.0.0.1:$second_port;failure_threshold=1;recovery_timeout=1m;recovery_max=1m"
	"$1_proxy_start" proxy under "$first_port"
	run bare curl -sS -o /dev/null -w '%{http_code}' "http://127.0.0.1:$proxy_port/"
	assert_output --regexp '50[23]'
	all_from "http://127.0.0.1:$proxy_port" 200
	all_from "http://127.0.0.1:$proxy_port" 200 -Z --parallel-max 20
	assert_equal "$(destination "127.0.0.1:$first_port" calls.failure)" 1
	assert_equal "$(destination "127.0.0.1:$second_port" calls.success)" 400
	assert_equal "$(destination "127.0.0.1:$first_port" calls.rejected)" "$(fallbacks "127.0.0.1:$first_port" secondary)"
	assert_equal "$(peer_accepted second)" "$(fallbacks "127.0.0.1:$first_port" secondary)"
}
# The same for end points within the proxy: its upstream sockets are in its epoll set before they are connected, and each answer must come.
proxy_is_served() { # nginx|haproxy
	rates_server first
	shim_part
	printf fixed >"$dir/fixed.txt"
	export RESIL_SET="fallback=cache(1h), reply:$dir/fixed.txt;failure_threshold=1;recovery_timeout=1m;recovery_max=1m" RESIL_GROUP=proxy
	"$1_proxy_start" proxy under "$first_port"
	local url=http://127.0.0.1:$proxy_port name=127.0.0.1:$first_port
	# Kept by a proxy whose connections are kept: one upstream connection, answer by answer.
	for path in a b c; do assert_equal "$(bare curl -sS "$url/$path")" "/$path"; done
	kill -9 "$first_pid"
	wait_until is_gone "$first_pid"
	is_open() {
		bare curl -s -o /dev/null "$url/a" || true
		state_is "$name" open
	}
	wait_until is_open
	answers() { # TIMES TARGET WORDS [curl's options]
		local times=$1 target=$2 words=$3
		shift 3
		output=$(bare curl -s "$@" -w ' %{http_code}\n' "$url/$target" 2>/dev/null)
		# Side by side their octets are told in any order.
		assert_equal "$(grep -oF "$words" <<<"$output" | wc -l) $(grep -oF ' 200' <<<"$output" | wc -l)" "$times $times"
	}
	answers 150 'b?[1-150]' fixed
	answers 150 'x[1-150]' fixed -Z --parallel-immediate --parallel-max 30
	output=$(for _ in 1 2 3 4 5; do bare curl -s -Z --parallel-immediate -w ' %{http_code}\n' "$url/a" "$url/b" "$url/c" "$url/d"; done 2>/dev/null)
	for words in /a /b /c fixed; do assert_equal "$words $(grep -oF "$words" <<<"$output" | wc -l)" "$words 5"; done
	assert_equal "$(grep -oF ' 200' <<<"$output" | wc -l)" 20
	run bare curl -sS -i "$url/c"
	assert_line --regexp '^[Xx]-[Rr]esil-[Ss]ource: cache'
	assert_line --regexp '^[Aa]ge: [0-9]'
	[ "$(fallbacks "$name" cache)" -ge 2 ]
	[ "$(fallbacks "$name" reply)" -ge 305 ]
	assert_equal "$(destination "$name" calls.in_flight)" 0
}
rates_server() { # NAME: answers with the target
	start "$1" bare python3 -u -c '
import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(s):
        body = s.path.encode()
        s.send_response(200); s.send_header("Content-Length", str(len(body))); s.end_headers(); s.wfile.write(body)
    def log_message(s, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H); print("up", s.server_port); s.serve_forever()'
	wait_until file_has '^up ' "$dir/$1.out"
	printf -v "$1_port" %s "$(sed -n 's/^up //p' "$dir/$1.out")"
}
