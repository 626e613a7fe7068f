# Servers of other people's, each on a port of its own, with its files in the test's folder.

# up NAME PID PORT: it listens; one that ended has lost its port to someone.
up() {
	wait_until is_up "$@"
}
is_up() {
	! is_gone "$2" || in_vain "$1 did not start: $(cat "$dir/$1.out" "$dir/$1.err")" || return
	listens "$3"
}

# redis_start NAME: NAME_port.
redis_start() {
	local pid=$1_pid port
	port=$(free_port)
	start "$1" bare redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$dir" --enable-debug-command yes
	up "$1" "${!pid}" "$port"
	printf -v "$1_port" %s "$port"
}

# postgres_start: postgres_port; user tester, no password. The server refuses to be root.
postgres_start() {
	local as=() programs home=$dir/postgres
	programs=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
	if [ "$(id -u)" = 0 ]; then
		as=(setpriv --reuid postgres --regid postgres --clear-groups)
		home=$(mktemp -d)
		chown postgres: "$home"
		postgres_home=$home
	fi
	(
		cd / # where it may look
		bare "${as[@]}" "$programs/initdb" -D "$home/data" -U tester -A trust --no-sync >"$dir/initdb.log" 2>&1
	) || fail "$(cat "$dir/initdb.log")"
	postgres_port=$(free_port)
	start postgres bare "${as[@]}" "$programs/postgres" -D "$home/data" -h 127.0.0.1 -p "$postgres_port" -k "$home" -F
	wait_until postgres_answers
}
postgres_answers() {
	! is_gone "$postgres_pid" || in_vain "postgres did not start: $(cat "$dir/postgres.err")" || return
	bare psql -w -h 127.0.0.1 -p "$postgres_port" -U tester -c 'select 1' postgres >/dev/null 2>&1
}
# Ends it in order, so that it leaves nothing behind in shared memory.
postgres_stop() {
	[ -z "${postgres_pid-}" ] || { kill -INT "$postgres_pid" && wait "$postgres_pid"; } 2>/dev/null || true
	[ -z "${postgres_home-}" ] || rm -rf "$postgres_home"
}
teardown() {
	postgres_stop
	common_teardown
}

nginx_config() { # NAME PORT LOCATION: what is in its `location /`, with an upstream `up` at $upstream
	mkdir -p "$dir/$1.d"
	cat >"$dir/$1.conf" <<-END
		daemon off;
		user $(id -un);
		worker_processes 1;
		pid $dir/$1.d/pid;
		error_log stderr;
		events { worker_connections 256; }
		http {
			access_log off;
			keepalive_requests 1000000;
			client_body_temp_path $dir/$1.d/a; proxy_temp_path $dir/$1.d/b; fastcgi_temp_path $dir/$1.d/c;
			uwsgi_temp_path $dir/$1.d/d; scgi_temp_path $dir/$1.d/e;
			${4-}
			server { listen 127.0.0.1:$2; location / { $3 } }
		}
	END
}
# nginx_start NAME HOW: answers "hello"; NAME_port.
nginx_start() {
	local pid=$1_pid port
	port=$(free_port)
	nginx_config "$1" "$port" 'default_type text/plain; return 200 "hello\n";'
	start "$1" "$2" nginx -c "$dir/$1.conf" -e stderr
	up "$1" "${!pid}" "$port"
	printf -v "$1_port" %s "$port"
}
# nginx_proxy_start NAME HOW UPSTREAM_PORT: hands on over kept connections; NAME_port.
nginx_proxy_start() {
	local pid=$1_pid port
	port=$(free_port)
	nginx_config "$1" "$port" 'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://up;' \
		"upstream up { server 127.0.0.1:$3; keepalive 32; keepalive_requests 1000000; }"
	start "$1" "$2" nginx -c "$dir/$1.conf" -e stderr
	up "$1" "${!pid}" "$port"
	printf -v "$1_port" %s "$port"
}
# haproxy_proxy_start NAME HOW UPSTREAM_PORT: hands on over kept connections; NAME_port.
haproxy_proxy_start() {
	local pid=$1_pid port
	port=$(free_port)
	cat >"$dir/$1.conf" <<-END
		global
			maxconn 256
			nbthread 2
		defaults
			mode http
			timeout connect 5s
			timeout client 30s
			timeout server 30s
			http-reuse always
			retries 0
		listen proxy
			bind 127.0.0.1:$port
			server up 127.0.0.1:$3
	END
	start "$1" "$2" haproxy -db -f "$dir/$1.conf"
	up "$1" "${!pid}" "$port"
	printf -v "$1_port" %s "$port"
}

untouched() { # DESTINATION: calls were seen, and none failed
	assert_equal "$(destination "$1" state)" closed
	assert_equal "$(destination "$1" calls.failure)" 0
	assert_equal "$(destination "$1" failures | tr -dc 1-9)" ""
	[ "$(destination "$1" calls.total)" -ge 1 ] || fail "no call was seen"
}
