#!/usr/bin/env bats
# Proxies before a server that fails inside TLS: each of five calls ends at its limit, and the fifth opens (lib/tls.bash).
load ../lib/common
load ../lib/clients
load ../lib/services
load ../lib/table
load ../lib/tls

setup() {
	common_setup
	make_certificate
}

# Limits of the proxies' own are far away: what ends a call is ours.
nginx_before() { # NAME HOW UPSTREAM_PORT
	local pid=$1_pid port
	port=$(free_port)
	nginx_config "$1" "$port" 'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass https://up;' "upstream up { server 127.0.0.1:$3; }"
	start "$1" "$2" nginx -c "$dir/$1.conf" -e stderr
	up "$1" "${!pid}" "$port"
	printf -v "$1_port" %s "$port"
}
haproxy_before() { # NAME HOW UPSTREAM_PORT
	local pid=$1_pid port
	port=$(free_port)
	cat >"$dir/$1.conf" <<-END
		defaults
			mode http
			timeout connect 60s
			timeout client 60s
			timeout server 60s
			retries 0
		listen proxy
			bind 127.0.0.1:$port
			server up 127.0.0.1:$3 ssl verify none
	END
	start "$1" "$2" haproxy -db -f "$dir/$1.conf"
	up "$1" "${!pid}" "$port"
	printf -v "$1_port" %s "$port"
}

behind() { # PROXY: nginx or haproxy
	local fault policy limit clock kind made late proxy=proxy_port upstream name
	while read -r fault policy limit clock kind; do
		tls_peer "$fault" "$fault"
		upstream=${fault}_port
		name=127.0.0.1:${!upstream}
		export RESIL_STATE_DIR=$dir/state.$fault RESIL_SET="$policy;failure_threshold=5;recovery_timeout=5m;recovery_max=5m"
		"$1_before" proxy under "${!upstream}"
		for made in 1 2 3 4 5; do
			! bare curl -fsS --max-time 20 "http://127.0.0.1:${!proxy}/" >"$dir/$fault.out" 2>&1 || fail "$fault: call $made went well"
		done
		wait_until all_closed "$dir/$fault.log"
		state_is "$name" open || fail "$fault: not open: $(destination "$name" failures) $(cat "$dir/$fault.log")"
		assert_equal "$fault: $(failed_by "$name" "$kind") of $kind" "$fault: 5 of $kind"
		if [ "$limit" != 0 ]; then
			late=$(awk -v clock="$clock" -v limit="$limit" '/^closed / {
				from = clock == "in" ? $4 : clock == "out" ? $5 : 0
				if ($3 - from - limit > late) late = $3 - from - limit
			} END { print late + 0 }' "$dir/$fault.log")
			within "$late" 20
		fi
		kill "$proxy_pid" && wait "$proxy_pid" || true
	done < <(faults | grep -vE '^(cut|early|drip) ')
}

@test "nginx before servers that fail inside TLS and in its handshake: an error at the limit, and the fifth opens (A9 A14 C5)" {
	shim_part
	behind nginx
}
@test "haproxy before servers that fail inside TLS and in its handshake: an error at the limit, and the fifth opens (A9 A14 C5)" {
	shim_part
	behind haproxy
}
