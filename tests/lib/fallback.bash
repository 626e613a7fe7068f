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
