#!/usr/bin/env bats
# Keys `method` and `route`: a circuit for the origin's connects, and one for each kind of request.
load lib/common

server() {
	start server bare python3 "$root/tests/servers/paths.py"
	wait_until file_has '^port ' "$dir/server.out"
	port=$(sed -n 's/^port //p' "$dir/server.out")
	origin=127.0.0.1:$port
}
asked() { grep -cxF -- "$1" "$dir/server.out" || true; }
# What curl makes of some paths, in one process: the status of each, or 000.
ask() { under curl -s -o /dev/null -w '%{http_code} ' "$@"; }
ask_all() { # PATH...: a process
	local path urls=()
	for path in "$@"; do urls+=(-o /dev/null "http://$origin$path"); done
	under curl -s -w '%{http_code} ' "${urls[@]}" || true
}
rules='failure_threshold=2;recovery_timeout=5m;recovery_max=5m;answer_timeout=300ms'

@test "key = route: one hangs and opens, the others go on, on kept connections too; what fits none is unknown (B20)" {
	server
	run curl -s "http://$origin/users/1"
	assert_output ok
	shim_part
	export RESIL_SET="key=route;route=/users/*, /hang/*;$rules"
	ask_all /hang/1 >"$dir/first"
	ask_all /hang/2 >>"$dir/first"
	assert_equal "$(cat "$dir/first")" '000 000 '
	state_is "$origin /hang/*" open
	run ask_all /users/1 /users/2 /hang/3 /elsewhere /users/3
	assert_output '200 200 000 200 200 '
	assert_equal "$(asked 'GET /hang/3')" 0
	assert_equal "$(destination "$origin /hang/*" calls.rejected)" 1 # on the kept connection and its reconnect: one call
	assert_equal "$(destination "$origin /users/*" calls.success)" 3
	assert_equal "$(destination "$origin unknown" calls.success)" 1
	state_is "$origin" closed
	assert_equal "$(destination "$origin" calls.failure)" 0
	run destination "$origin /users/1" state
	assert_failure # a circuit a template, none a path
	run resil status --json "$origin /hang/*"
	assert_success
}

@test "key = route: rejected, the first send of a request fails with ECONNRESET, and nothing of it arrives (B20)" {
	server
	shim_part
	export RESIL_GROUP=keys RESIL_SET="key=route;route=/bad/*, /good/*;$rules"
	ask_all /bad/1 /bad/2
	state_is "$origin /bad/*" open
	for how in split sendmsg nonblocking; do
		run under python3 "$root/tests/programs/asks.py" "$how" "$port" "/bad/$how" "/good/$how" "/bad/$how" "/good/$how"
		assert_output "/bad/$how ECONNRESET
/good/$how 200
/bad/$how ECONNRESET
/good/$how 200"
		assert_equal "$(asked "GET /bad/$how")" 0
		assert_equal "$(asked "GET /good/$how")" 2
	done
	# In crumbs it is the send that ends the line.
	run under python3 "$root/tests/programs/asks.py" crumbs "$port" /good/1 /bad/crumbs /good/2
	assert_output "/good/1 200
/bad/crumbs ECONNRESET
/good/2 200"
	assert_equal "$(asked 'GET /bad/crumbs')" 0
	assert_equal "$(destination "$origin /good/*" calls.success)" 8
	assert_equal "$(destination "$origin /good/*" calls.in_flight)" 0
	assert_equal "$(destination "$origin" calls.in_flight)" 0
	assert_equal "$(destination "$origin" calls.failure)" 0
}

@test "why of a request's circuit: the error that its requests meet, and commands that a shell takes as they are" {
	server
	shim_part
	export RESIL_GROUP=keys RESIL_SET="key=route;route=/hang/*;$rules"
	ask_all /hang/1 /hang/2 >/dev/null
	state_is "$origin /hang/*" open
	run resil why "$origin /hang/*"
	assert_line --index 0 --partial "resil rejects its requests at once with ECONNRESET; nothing of them reaches the network"
	local undo
	undo=$(sed -n 's/.*to try again now: //p' <<<"$output")
	assert_equal "$undo" "resil reset '$origin /hang/*' -g keys"
	eval "$undo"
	state_is "$origin /hang/*" closed
}

@test "key = route: requests sent together are each of their own circuit" {
	server
	shim_part
	export RESIL_SET="key=route;route=/a, /b/*, /bad;failure_threshold=5"
	run under python3 "$root/tests/programs/asks.py" pipeline "$port" /a /b/1 /bad /b/2 /c /a
	assert_output "/a 200
/b/1 200
/bad 503
/b/2 200
/c 200
/a 200"
	for of in '/a 2 0' '/b/* 2 0' '/bad 0 1' 'unknown 1 0'; do
		set -- $of
		assert_equal "$1 $(destination "$origin $1" calls.success) $(destination "$origin $1" calls.failure)" "$of"
	done
}

@test "key = method: what only POST meets opens POST alone; methods that nobody knows are one" {
	server
	shim_part
	export RESIL_SET="key=method;$rules"
	run ask -X POST -d x=y "http://$origin/bad" -o /dev/null "http://$origin/bad"
	assert_output '503 503 '
	state_is "$origin POST" open
	run ask "http://$origin/" -o /dev/null "http://$origin/"
	assert_output '200 200 '
	run ask -X POST -d x=y "http://$origin/"
	assert_output '000 '
	assert_equal "$(asked 'POST /')" 0
	run ask -X PROPFIND "http://$origin/" -o /dev/null "http://$origin/"
	assert_output '200 200 '
	assert_equal "$(destination "$origin unknown" calls.success)" 2
	assert_equal "$(destination "$origin GET" calls.success)" 2
}

@test "a connect is the origin's: refused ones open that, and it fails fast before any request is known" {
	peer gone 127.0.0.1 refuse
	shim_part
	export RESIL_SET="key=route;route=/users/*;$rules"
	for i in 1 2; do run under curl -s "http://127.0.0.1:$gone_port/users/1"; done
	state_is "127.0.0.1:$gone_port" open
	run under curl -sS "http://127.0.0.1:$gone_port/users/1"
	assert_failure 7
	assert_equal "$(destination "127.0.0.1:$gone_port" calls.rejected)" 1
	run destination "127.0.0.1:$gone_port /users/*" state
	assert_failure
}

@test "the origin half-open: its probe is over when the connection comes to a request, whatever that request meets" {
	server
	shim_part
	export RESIL_SET="key=route;route=/hang;$rules"
	under curl -s "http://$origin/"
	resil force "$origin" open --for 5m
	resil force "$origin" auto
	run ask "http://$origin/hang"
	assert_output '000 '
	state_is "$origin" closed
	assert_equal "$(destination "$origin /hang" calls.failure)" 1
}

@test "a route opens, is probed by a kept connection's request, opens again or closes" {
	server
	shim_part
	export RESIL_SET='key=route;route=/x/*, /a;failure_threshold=1;recovery_timeout=50ms;recovery_jitter=0%'
	run ask_all /x/bad
	assert_output '503 '
	wait_until due "$origin /x/*"
	run ask_all /a /x/bad
	assert_output '200 503 '
	assert_equal "$(destination "$origin /x/*" opened_total)" 2
	wait_until due "$origin /x/*"
	run ask_all /a /x/good /x/good
	assert_output '200 200 200 '
	state_is "$origin /x/*" closed
}
due() { [ "$(destination "$1" retry_after_ms)" = 0 ]; }

@test "key = route with requests, whose session keeps its connections" {
	server
	cat >"$dir/session.py" <<-'END'
		import sys, requests
		s = requests.Session()
		for path in sys.argv[2:]:
		    try:
		        print(path, s.get(f"http://{sys.argv[1]}{path}").status_code)
		    except requests.exceptions.RequestException as e:
		        print(path, "reset" if "104" in str(e) else e)
	END
	run bare python3 "$dir/session.py" "$origin" /a /bad/1
	assert_output "/a 200
/bad/1 503"
	shim_part
	export RESIL_SET="key=route;route=/bad/*;$rules"
	run under python3 "$dir/session.py" "$origin" /a /bad/1 /bad/2 /bad/3 /a
	assert_output "/a 200
/bad/1 503
/bad/2 503
/bad/3 reset
/a 200"
	assert_equal "$(asked 'GET /bad/3')" 0
}

@test "key = route with nginx in front: its workers keep connections to the upstream, one route fails fast" {
	server
	mkdir "$dir/nginx"
	cat >"$dir/nginx.conf" <<-END
		daemon off;
		worker_processes 2;
		pid $dir/nginx/pid;
		error_log $dir/nginx/error;
		events {}
		http {
			access_log off;
			client_body_temp_path $dir/nginx; proxy_temp_path $dir/nginx; fastcgi_temp_path $dir/nginx;
			uwsgi_temp_path $dir/nginx; scgi_temp_path $dir/nginx;
			upstream api { server $origin max_fails=0; keepalive 4; }
			server {
				listen unix:$dir/nginx/sock;
				location / { proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection ""; }
			}
		}
	END
	[ "$(id -u)" != 0 ] || sed -i '1i user root;' "$dir/nginx.conf"
	through() { curl -s -o /dev/null -w '%{http_code} ' --unix-socket "$dir/nginx/sock" "$@"; }
	shim_part
	RESIL_GROUP=edge RESIL_SET="key=route;route=/users/*, /hang/*;$rules" start nginx under nginx -c "$dir/nginx.conf" -e "$dir/nginx/error"
	wait_until test -S "$dir/nginx/sock"
	run through http://nginx/users/1 -o /dev/null http://nginx/users/2
	assert_output '200 200 '
	for i in 1 2; do through "http://nginx/hang/$i"; done >"$dir/hung"
	assert_equal "$(cat "$dir/hung")" '502 502 '
	state_is "$origin /hang/*" open
	for i in 1 2 3 4; do through http://nginx/hang/x "http://nginx/users/$i" -o /dev/null; done >"$dir/then"
	assert_equal "$(cat "$dir/then")" '502 200 502 200 502 200 502 200 '
	assert_equal "$(asked 'GET /hang/x')" 0
	state_is "$origin /users/*" closed
}

@test "which: a destination with a request tells its circuit; check refuses what is no template" {
	cat >"$dir/conf" <<-END
		[destination api]
		match = api.internal:80
		key = route
		route = /users/*, /orders/*/items
	END
	run resil which -c "$dir/conf" --json 'api.internal:80 /users/7'
	assert_success
	assert_equal "$(jq -r .breaker <<<"$output")" 'api.internal:80 /users/*'
	run resil which -c "$dir/conf" --json 'api.internal:80 /other'
	assert_equal "$(jq -r .breaker <<<"$output")" 'api.internal:80 unknown'
	run resil which -c "$dir/conf" --json api.internal:80
	assert_equal "$(jq -r .breaker <<<"$output")" api.internal:80
	sed -i 's/^key.*/key = method/' "$dir/conf"
	run resil which -c "$dir/conf" --json 'api.internal:80 GET'
	assert_equal "$(jq -r .breaker <<<"$output")" 'api.internal:80 GET'
	sed -i 's/^route.*/route = users/' "$dir/conf"
	run resil check "$dir/conf"
	assert_failure 2
	assert_output --partial "$dir/conf:4: route: a path begins with a slash ('users'; paths such as /users/*, /orders/*/items"
}
