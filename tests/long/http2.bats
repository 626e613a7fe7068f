#!/usr/bin/env bats
# HTTP/2 and gRPC at length (A11); the everyday is in tests/http2.bats. Each test is run without the shim first where the same can be seen so.
load ../lib/common
load ../lib/services
load ../lib/talk
load ../lib/http2

@test "an interim answer is none; one that ends before its request stands (A8, A7)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    with server.lock:
		        server.h.send_headers(sid, [(":status", "103"), ("link", "x")])
		        server.flush()
		    if path == "/later":
		        threading.Timer(0.6, server.answer, (sid, 503)).start()
	END
	set='answer_timeout=300ms' both_http2 "$server_port" <<-'END'
		c = Client()
		sid = c.ask("/later")
		if not is_guarded:
		    c.until(sid)
		    assert c.status[sid] == 503
		else:
		    begin = ms()
		    while True:
		        o = error_of(c.read)
		        if o == "ETIMEDOUT":
		            break
		        assert o is True, o
		    met(begin, 300)
	END
	assert_equal "$(tally "$server_port")" "1 failure answer_timeout 1"
}

@test "a deadline bounds a stream that drips: it is judged, its connection goes on (C1, A11)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    server.drip(sid, 10, 0.1)
	END
	set='deadline=400ms' both_http2 "$server_port" <<-'END'
		c = Client()
		assert c.get("/") == 200
	END
	assert_equal "$(tally "$server_port")" "1 failure deadline 1"
	assert_equal "$(server_said server ended)" 2
}

@test "the server's SETTINGS come before the client's preface: its frames are followed from the first" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    server.answer(sid, 503)
	END
	both_http2 "$server_port" <<-'END'
		s = dial()
		assert s.recv(9)[3] == 4
		c = Client(s)
		first = c.s.recv
		c.h.receive_data(b"\0\0\0\4\0\0\0\0\0")  # what was read of it, without its settings
		rest = s.recv(65536)
		s.sendall(c.h.data_to_send())
		sid = c.ask("/")
		c.until(sid)
		assert c.status[sid] == 503
	END
	assert_equal "$(tally "$server_port")" "1 failure http_gateway 1"
}

@test "what is no HTTP/2 behind its preface is left alone: no verdict of a stream, no limit (A8)" {
	serves server <<-'END'
		def serve(c):
		    c.recv(65536)
		    c.sendall(b"nonsense of some length")
		    hold(c)
	END
	set='answer_timeout=200ms' both_http2 "$server_port" <<-'END'
		c = Client()
		c.ask("/")
		b = b""
		while b"length" not in b:
		    b += c.s.recv(100)
		assert not readable(c.s, 600)
	END
	assert_equal "$(tally "$server_port")" "1 neutral"
}

@test "nginx speaks HTTP/2; its 502 is one" {
	port=$(free_port)
	nginx_config web "$port" 'proxy_pass http://127.0.0.1:1;'
	sed -i "s/listen 127.0.0.1:$port/listen 127.0.0.1:$port http2/" "$dir/web.conf"
	start web bare nginx -c "$dir/web.conf" -e stderr
	up web "$web_pid" "$port"
	gets() { "$1" curl -s --http2-prior-knowledge -o /dev/null -w '%{http_version} %{http_code}' "http://127.0.0.1:$port/"; }
	assert_equal "$(gets bare)" "2 502"
	shim_part
	assert_equal "$(gets under)" "2 502"
	assert_equal "$(tally "$port")" "1 failure http_gateway 1"
}

@test "a gRPC server that restarts: its GOAWAY makes no failure, and no circuit opens (A11)" {
	serves_grpc server <<-'END'
		def answer(method, request, context):
		    if method == "/s/restart":
		        def restart():
		            global server
		            was, server = server, serve_on(port)[0]  # SO_REUSEPORT: the next listens before this one ends
		            was.stop(5).wait()
		        threading.Thread(target=restart).start()
		    time.sleep(0.02)
		    return b"y"
	END
	set='failure_threshold=1' both "$server_port" <<-END
		$grpc_prelude
		channel = grpc.insecure_channel("127.0.0.1:%d" % port)
		for i in range(60):
		    assert code_of(channel, "/s/restart" if i in (10, 30) else "/s/do", 20) == 0
		channel.close()
	END
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 0
	assert_equal "$(destination "127.0.0.1:$server_port" calls.success)" 60
	assert_equal "$(destination "127.0.0.1:$server_port" calls.in_flight)" 0
}

@test "more streams than are looked at: those beyond pass unseen, and harm nothing" {
	serves_http2 server <<-'END'
		waiting = []
		def asked(server, sid, path):
		    waiting.append(sid)
		    if len(waiting) % 600 == 0:
		        for sid in waiting[-600:]:
		            server.answer(sid, body=b"%d" % sid)
	END
	set='answer_timeout=10s' both_http2 "$server_port" <<-'END'
		c = Client()
		while c.h.remote_settings.max_concurrent_streams != 1000:
		    c.read()
		sids = [c.ask("/") for i in range(600)]
		c.until(*sids)
		assert all(c.body[sid] == b"%d" % sid for sid in sids)
	END
	assert_equal "$(tally "$server_port")" "256 success"
	assert_equal "$(resil metrics | sed -n 's/^resil_unseen_streams_total.* //p')" 344
	run resil doctor
	assert_line --partial '344 calls of HTTP/2 passed unseen'
	assert_equal "$(destination "127.0.0.1:$server_port" calls.in_flight)" 0
}

@test "a stream is the probe of a half-open circuit: its success closes it, its failure opens it again (B5)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    server.answer(sid, int(path[1:]))
	END
	set='failure_threshold=2;recovery_timeout=300ms;recovery_backoff=1;recovery_jitter=0%' both_http2 "$server_port" <<-'END'
		if not is_guarded:
		    sys.exit(0)
		def again():
		    while (s := error_of(dial)) == "ECONNREFUSED":
		        time.sleep(0.02)
		    return Client(s)
		for status in 503, 503:
		    c = Client()
		    assert c.get("/%d" % status) == status
		assert error_of(dial) == "ECONNREFUSED"
		c = again()
		assert error_of(dial) == "ECONNREFUSED"  # the one probe is under way
		assert c.get("/502") == 502
		assert error_of(dial) == "ECONNREFUSED"
		c = again()
		assert c.get("/200") == 200
		dial().close()
	END
	assert_equal "$(transitions "127.0.0.1:$server_port" | paste -sd' ')" "closed>open open>half_open half_open>open open>half_open half_open>closed"
}

@test "h2load, fifty connections, a hundred streams each, two threads: tens of thousands of successes and nothing else" {
	nghttpd_start
	url=http://127.0.0.1:$nghttpd_port
	shim_part
	export RESIL_SET='answer_timeout=30s;stall_timeout=30s;deadline=100s'
	run under h2load -t 2 -n 30000 -c 50 -m 100 "$url/small"
	assert_success
	assert_output --partial "30000 succeeded, 0 failed, 0 errored, 0 timeout"
	assert_equal "$(destination "127.0.0.1:$nghttpd_port" calls.success)" 30000
	assert_equal "$(destination "127.0.0.1:$nghttpd_port" calls.total)" 30000
	assert_equal "$(destination "127.0.0.1:$nghttpd_port" calls.in_flight)" 0
}

@test "a server killed under load: every call is settled, once" {
	nghttpd_start
	url=http://127.0.0.1:$nghttpd_port
	shim_part
	RESIL_SET='answer_timeout=5s' start load under h2load -n 1000000 -c 10 -m 50 "$url/small"
	wait_until has_calls 1000
	kill -9 "$nghttpd_pid"
	wait_until is_gone "$load_pid"
	assert_equal "$(destination "127.0.0.1:$nghttpd_port" calls.in_flight)" 0
	destination "127.0.0.1:$nghttpd_port" calls >"$dir/calls"
	jq -e '.total == .success + .failure + .neutral + .rejected' "$dir/calls"
}
has_calls() { [ "$(destination "127.0.0.1:$nghttpd_port" calls.success 2>/dev/null || echo 0)" -ge "$1" ]; }

@test "curl asks nghttpx for h2c: the upgrade is granted, and each answer is a call" {
	nginx_start web bare
	port=$(free_port)
	start proxy bare nghttpx --frontend="127.0.0.1,$port;no-tls" --backend="127.0.0.1,$web_port" --workers=1 --no-ocsp -o
	up proxy "$proxy_pid" "$port"
	gets() { "$1" curl -sS --http2 "http://127.0.0.1:$port/" -w ' %{http_version}' | paste -sd' '; }
	assert_equal "$(gets bare)" "hello  2"
	shim_part
	assert_equal "$(gets under)" "hello  2"
	assert_equal "$(tally "$port")" "1 success"
}

@test "nginx as a proxy of gRPC: its upstream's statuses are seen, and a server that hangs" {
	serves_grpc server <<-'END'
		def answer(method, request, context):
		    if method == "/s/hang":
		        time.sleep(2)
		        return b""
		    if method == "/s/big":
		        return bytes(300000)
		    code = int(method[3:])
		    if code:
		        context.abort([c for c in grpc.StatusCode if c.value[0] == code][0], "why")
		    return b"y"
	END
	proxies() {
		port=$(free_port)
		nginx_config "proxy$1" "$port" "grpc_pass grpc://up;" "upstream up { server 127.0.0.1:$server_port; keepalive 4; }"
		sed -i "s/listen 127.0.0.1:$port/listen 127.0.0.1:$port http2/" "$dir/proxy$1.conf"
		start "proxy$1" "$1" nginx -c "$dir/proxy$1.conf" -e stderr
		local pid=proxy$1_pid
		up "proxy$1" "${!pid}" "$port"
		talks bare "$port" <<-END
			$grpc_prelude
			channel = grpc.insecure_channel("127.0.0.1:%d" % port)
			for code in 0, 0, 5, 14, 0, 7, 8, 0:
			    assert code_of(channel, "/s/%d" % code, 20) == code
			for i in range(5):
			    assert len(channel.unary_unary("/s/big")(bytes(200000), timeout=20)) == 300000
			assert code_of(channel, "/s/hang", 20) in ((0,) if "$1" == "bare" else (14, 4, 2, 13))
			channel.close()
		END
	}
	proxies bare
	shim_part
	export RESIL_SET='deadline=700ms'
	proxies under
	assert_equal "$(tally "$server_port")" "11 success 3 failure deadline 1 grpc 2"
}

@test "gRPC over a unix socket that a match names: calls, and one that hangs" {
	code() {
		cat <<-END
			$grpc_prelude
			import tempfile
			def answer(method, request, context):
			    if method == "/s/hang":
			        time.sleep(2)
			    return b"y"
			path = "$dir/socket"
			server = grpc.server(futures.ThreadPoolExecutor(20), handlers=(Handler(),))
			server.add_insecure_port("unix:" + path)
			server.start()
			say = lambda *words: print(*words, flush=True)
			say("port", 0)
			server.wait_for_termination()
		END
	}
	start server bare python3 -u -c "$server_prelude$(code)"
	wait_until file_has '^port' "$dir/server.out"
	printf '[destination local]\nmatch = unix:%s\ndeadline = 500ms\n' "$dir/socket" >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf
	both 0 <<-END
		$grpc_prelude
		channel = grpc.insecure_channel("unix:$dir/socket")
		for i in range(20):
		    assert code_of(channel, "/s/do", 20) == 0
		assert code_of(channel, "/s/hang", 20) == (14 if is_guarded else 0)
		channel.close()
	END
	name=$(resil status --json | jq -r '.groups[].destinations[].name' | grep socket)
	assert_equal "$(destination "$name" calls.success)" 20
	assert_equal "$(destination "$name" calls.failure)" 1
}

@test "a fork in the midst of streams: the calls are the parent's, and each is counted once (E4)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    threading.Timer(0.3, server.answer, (sid,)).start()
	END
	set='answer_timeout=5s' both_http2 "$server_port" <<-'END'
		c = Client()
		sids = [c.ask("/") for i in range(5)]
		pid = os.fork()
		if pid == 0:
		    c.s.close()
		    os._exit(0)
		os.waitpid(pid, 0)
		c.until(*sids)
		assert c.get("/") == 200
	END
	assert_equal "$(tally "$server_port")" "6 success"
	assert_equal "$(destination "127.0.0.1:$server_port" calls.in_flight)" 0
}

@test "gRPC: streams of messages in both directions, long silences, and no verdict but success (A11)" {
	serves_grpc server <<-'END'
		def answer(method, request, context):
		    return b"y"
		def each(requests, context):
		    for r in requests:
		        yield r
		Handler.service = lambda self, details: grpc.stream_stream_rpc_method_handler(each)
	END
	set='answer_timeout=300ms;stall_timeout=300ms' both "$server_port" <<-END
		$grpc_prelude
		import queue
		channel = grpc.insecure_channel("127.0.0.1:%d" % port)
		asks = queue.Queue()
		answers = channel.stream_stream("/s/talk")(iter(asks.get, None))
		for i in range(3):
		    asks.put(b"%d" % i)
		    assert next(answers) == b"%d" % i
		    time.sleep(0.8)
		asks.put(None)
		assert list(answers) == []
		channel.close()
	END
	assert_equal "$(tally "$server_port")" "1 success"
}

@test "a server that takes the preface and never speaks, and an app that gives it up: abandoned (A5)" {
	serves server <<-'END'
		def serve(c):
		    hold(c)
	END
	set='abandon_after=300ms' both_http2 "$server_port" <<-'END'
		c = Client()
		time.sleep(0.4)
		c.s.close()
		c = Client()
		c.s.close()
	END
	assert_equal "$(tally "$server_port")" "1 failure 1 neutral abandoned 1"
}

@test "off: the streams of a kept connection pass, unbounded and uncounted, until it is on again" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    threading.Timer(0.7 if path == "/slow" else 0, server.answer, (sid,)).start()
	END
	set='answer_timeout=300ms' both_http2 "$server_port" <<-'END'
		c = Client()
		assert c.get("/") == 200
		resil("off")
		assert c.get("/slow") == 200
		resil("on")
		assert c.get("/") == 200
		sid = c.ask("/slow")
		if is_guarded:
		    while (o := error_of(c.read)) is True:
		        pass
		    assert o == "ETIMEDOUT", o
	END
	assert_equal "$(tally "$server_port")" "2 success 1 failure answer_timeout 1"
}

@test "a fork's child keeps the limits of the streams that it waits for (E4)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    pass
	END
	set='answer_timeout=500ms' both_http2 "$server_port" "$dir/told" <<-'END'
		c = Client()
		c.ask("/hang")
		c.read()
		if os.fork():
		    os._exit(0)
		if is_guarded:
		    while (o := error_of(c.read)) is True:
		        pass
		    with open(sys.argv[2], "w") as f:
		        print(o, file=f)
	END
	wait_until file_has '^ETIMEDOUT$' "$dir/told"
}
