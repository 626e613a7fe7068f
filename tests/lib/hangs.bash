# Clients of HTTP/2 that nobody here wrote, against servers of which one answer hangs, all do, or which restart (A11). Load it after `lib/http2`
# and `lib/tls`.

# web_start [tls]: nginx, which answers at once; /hang never, /held once $dir/go is there. web_port; what it has answered is in $dir/web.log, a
# line each: the connection's number, the path, the status.
web_start() {
	local tls=${1-} how=http2
	scheme=http
	if [ -n "$tls" ]; then
		make_certificate
		scheme=https how="ssl http2"
	fi
	peer hung 127.0.0.1 hang
	serves holder <<-END
		def serve(c):
		    while head(c):
		        say("holds")
		        while not os.path.exists("$dir/go"):
		            time.sleep(0.01)
		        ok(c, b"held\n")
	END
	web_port=$(free_port)
	nginx_config web "$web_port" 'default_type text/plain; return 200 "hello\n";' "
		log_format which '\$connection \$uri \$status';
		access_log $dir/web.log which;
		proxy_read_timeout 300s;
		${tls:+ssl_certificate $certificate; ssl_certificate_key $certificate;}"
	local hang="location /hang { proxy_pass http://127.0.0.1:$hung_port; }" held="location /held { proxy_pass http://127.0.0.1:$holder_port; }"
	sed -i "s|access_log off;||; s|error_log stderr|error_log stderr notice|
		s|listen 127.0.0.1:$web_port;|listen 127.0.0.1:$web_port $how; $hang $held|" "$dir/web.conf"
	start web bare nginx -c "$dir/web.conf" -e stderr
	up web "$web_pid" "$web_port"
	: >"$dir/web.log" # what asked whether it is up
	server_port=$web_port
}
answered_is() { [ "$(grep -c ' 200$' "$dir/web.log")" = "$1" ]; }

# rpc_start [tls]: a server of gRPC; /s/hang hangs. server_port.
rpc_start() {
	[ -z "${1-}" ] || make_certificate
	serves_grpc server ${1:+"$certificate"} <<-'END'
		def answer(method, request, context):
		    if method == "/s/hang":
		        say("holds")
		        time.sleep(60)
		    return b"y"
	END
}
grpc_calls() { # HOW PORT CALLS HANGING: at once; how many came to what, a line each
	talks "$1" "$2" "$3" "$4" ${tls:+"$certificate"} <<-END
		$grpc_prelude
		n, hanging = int(sys.argv[2]), int(sys.argv[3])
		channel = channel_to(port, *sys.argv[4:])
		call = channel.unary_unary("/s/do"), channel.unary_unary("/s/hang")
		asked = [call[i < hanging].future(b"x", timeout=60) for i in range(n)]
		codes = [f.code().value[0] for f in asked]
		for code in sorted(set(codes)):
		    print(codes.count(code), "of", code)
		channel.close()
	END
}

# asks CLIENT HOW PATH...: at once, on one connection.
asks() {
	local client=$1 how=$2 url=$scheme://127.0.0.1:$web_port path
	shift 2
	case $client in
	nghttp) "$how" nghttp -y "${@/#/$url}" ;;
	h2load)
		printf '%s\n' "${@/#/$url}" >"$dir/urls"
		"$how" h2load -n "$#" -c 1 -m "$#" -i "$dir/urls"
		;;
	curl)
		for path; do printf 'url = %s\noutput = -\n' "$url$path"; done >"$dir/urls"
		# curl 7.88 cannot begin several streams at once on a connection in clear (without us: "Error in the HTTP2 framing layer").
		local curl=(--http2 --cacert "${certificate-}")
		[ -n "$tls" ] || curl=(--http2-prior-knowledge --parallel-immediate)
		"$how" curl -sS --no-progress-meter "${curl[@]}" --parallel --parallel-max 100 -K "$dir/urls"
		;;
	esac
}
paths() { # OF_HELLO OF_HANG
	local i
	paths=()
	for ((i = 1; i <= $1; i++)); do paths+=("/$i"); done
	for ((i = 1; i <= $2; i++)); do paths+=("/hang$i"); done
}

connections() { grep ' 200$' "$dir/web.log" | cut -d' ' -f1 | sort -u | wc -l; }

one_hangs() { # CLIENT [tls]
	local client=$1 tls=${2-} paths connections=1 failures=1
	case $client$tls in
	curl) connections=99 ;;
	curltls) failures=2 ;; # what nothing came for on a connection in use curl asks once more, on a new one
	esac
	if [ "$client" = grpc ]; then
		rpc_start "$tls"
		run grpc_calls bare "$server_port" 100 0
		assert_output '100 of 0'
		shim_part
		RESIL_SET=answer_timeout=1500ms run grpc_calls under "$server_port" 100 1
		assert_output $'99 of 0\n1 of 14'
	else
		web_start "$tls"
		paths 99 1
		# Without us it hangs, and the others have their answers.
		asks "$client" bare "${paths[@]}" >"$dir/bare.out" 2>&1 &
		started+=("$!")
		wait_until answered_is 99
		! is_gone "$!" || fail "it does not hang without us: $(cat "$dir/bare.out")"
		assert_equal "$(connections)" "$connections"
		shim_part
		: >"$dir/web.log"
		RESIL_SET=answer_timeout=1500ms run asks "$client" under "${paths[@]}"
		if [ "$client" = h2load ]; then
			assert_output --partial "99 succeeded, 1 failed"
		else
			assert_equal "$(grep -c hello <<<"$output")" 99
		fi
		assert_equal "$(connections)" "$connections"
	fi
	assert_equal "$(tally "$server_port")" "99 success $failures failure answer_timeout $failures"
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
}

all_hang() { # CLIENT [tls]
	local client=$1 tls=${2-} paths
	local RESIL_SET='answer_timeout=800ms;recovery_timeout=5m;recovery_max=5m'
	export RESIL_SET
	if [ "$client" = grpc ]; then
		rpc_start "$tls"
		shim_part
		run grpc_calls under "$server_port" 5 5
		assert_output '5 of 14'
		run grpc_calls under "$server_port" 1 0 # it would be answered
		assert_output '1 of 14'
		assert_equal "$(server_said server holds)" 5
	else
		web_start "$tls"
		paths 0 5
		shim_part
		run asks "$client" under "${paths[@]}"
		refute_output --partial hello
		: >"$dir/web.log"
		run asks "$client" under /ok
		refute_output --partial hello
		run cat "$dir/web.log"
		refute_output --partial '/ok'
	fi
	assert_equal "$(failed_by "127.0.0.1:$server_port" answer_timeout)" 5
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
	[ "$(destination "127.0.0.1:$server_port" calls.rejected)" -ge 1 ] || fail "nothing was rejected"
}

# nginx restarts while `held` is on its way: the old worker answers that, and says GOAWAY.
web_restarts() {
	wait_until file_has '^holds$' "$dir/holder.out"
	kill -HUP "$web_pid"
	wait_until file_has 'gracefully shutting down' "$dir/web.err"
	touch "$dir/go"
}
rpc_over_a_restart() { # HOW: a hundred calls in a row, ten at a time, while nginx before the server restarts twice
	talks "$1" "$port" "$web_pid" ${tls:+"$certificate"} <<-END
		$grpc_prelude
		channel = channel_to(port, *sys.argv[3:])
		call = channel.unary_unary("/s/do")
		for i in range(20):
		    asked = [call.future(b"x", timeout=60) for k in range(10)]
		    if i in (5, 12):
		        os.kill(int(sys.argv[2]), signal.SIGHUP)
		    assert [f.code().value[0] for f in asked] == [0] * 10
		channel.close()
	END
}
restarts() { # CLIENT [tls]
	local client=$1 tls=${2-} how=http2 name
	export RESIL_SET='failure_threshold=1;answer_timeout=20s'
	if [ "$client" = grpc ]; then
		rpc_start
		[ -z "$tls" ] || make_certificate
		port=$(free_port)
		nginx_config web "$port" "grpc_pass grpc://127.0.0.1:$server_port;" "${tls:+ssl_certificate $certificate; ssl_certificate_key $certificate;}"
		sed -i "s/listen 127.0.0.1:$port;/listen 127.0.0.1:$port ${tls:+ssl} http2;/" "$dir/web.conf"
		start web bare nginx -c "$dir/web.conf" -e stderr
		up web "$web_pid" "$port"
		rpc_over_a_restart bare
		shim_part
		rpc_over_a_restart under
		server_port=$port
		assert_equal "$(destination "127.0.0.1:$server_port" calls.success)" 200
	else
		web_start "$tls"
		shim_part
		if [ "$client" = h2load ]; then
			printf "$scheme://127.0.0.1:$web_port%s\n" /held /1 /2 /3 >"$dir/urls"
			start load under h2load -n 20000 -c 4 -m 20 -i "$dir/urls"
		else
			asks "$client" under /held /1 /2 >"$dir/load.out" 2>&1 &
			load_pid=$!
			started+=("$!")
		fi
		web_restarts
		wait "$load_pid" || [ "$client" = h2load ] || fail "$(cat "$dir/load.out")"
		[ "$client" = h2load ] || assert_equal "$(sort "$dir/load.out" | paste -sd' ')" "held hello hello"
	fi
	name=127.0.0.1:$server_port
	assert_equal "$(destination "$name" calls.failure)" 0
	assert_equal "$(destination "$name" calls.in_flight)" 0
	assert_equal "$(destination "$name" state)" closed
	assert_equal "$(transitions "$name")" ""
}
