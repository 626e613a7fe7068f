#!/usr/bin/env bats
# HTTP/2 and gRPC (A11): each stream is a call of its own, with its verdict and its limits. Each test is run without the shim first, where the
# same client must see the same of the same server.
load lib/common
load lib/services
load lib/talk
load lib/http2
load lib/tls
load lib/hangs

# ---- verdicts ----

@test "each stream is a call of its own: by its status, whatever the order of their ends (A11, A8)" {
	serves_http2 server <<-'END'
		waiting = []
		def asked(server, sid, path):
		    waiting.append((sid, int(path[1:])))
		    if len(waiting) % 7 == 0:
		        for sid, status in reversed(waiting[-7:]):
		            server.answer(sid, status, body=b"" if status == 204 else b"some")
	END
	both_http2 "$server_port" <<-'END'
		c = Client()
		codes = [200, 204, 404, 429, 500, 502, 503]
		sids = [c.ask("/%d" % code) for code in codes]
		if is_guarded:
		    assert '"in_flight":7' in resil("status", "--json").replace(" ", ""), resil("status", "--json")
		c.until(*sids)
		assert [c.status[sid] for sid in sids] == codes
		c.s.close()
	END
	assert_equal "$(tally "$server_port")" "4 success 3 failure http_5xx 1 http_gateway 2"
}

@test "gRPC: what its trailers say; those that say the server is ill are failures (A14)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    code = path[1:]
		    if path.startswith("/only"):
		        server.answer(sid, body=b"", fields=[("content-type", "application/grpc"), ("grpc-status", path[5:])])
		    else:
		        server.answer(sid, fields=[("content-type", "application/grpc")], trailers=[("grpc-status", code), ("grpc-message", "why")])
	END
	set='failure_threshold=0' both_http2 "$server_port" <<-'END'
		c = Client()
		for code in range(17):
		    sid = c.ask("/%d" % code)
		    c.until(sid)
		    assert c.trailers[sid]["grpc-status"] == str(code)
		for code in 0, 14, 13, 5:  # an answer of trailers alone
		    assert c.get("/only%d" % code) == 200
	END
	assert_equal "$(tally "$server_port")" "14 success 7 failure grpc 7"
}

@test "streams that stay open do not hide those that come after them (A11)" {
	serves_http2 server <<-'END'
		kept = []
		def asked(server, sid, path):
		    if path == "/kept":
		        kept.append(sid)
		    else:
		        server.answer(sid)
		    if path == "/end":
		        for sid in kept:
		            server.answer(sid)
		        kept.clear()
	END
	both_http2 "$server_port" <<-'END'
		c = Client()
		while c.h.remote_settings.max_concurrent_streams != 1000:
		    c.read()
		kept = [c.ask("/kept") for i in range(40)]
		for i in range(599):
		    assert c.get("/") == 200
		c.ask("/end")
		c.until(*kept)
		assert all(c.status[sid] == 200 for sid in kept)
		c.s.close()
	END
	assert_equal "$(tally "$server_port" | sed 's/ 1 neutral//')" "640 success"
	assert_equal "$(resil metrics | sed -n 's/^resil_unseen_streams_total.* //p')" 0
}

@test "streams that the server resets: REFUSED_STREAM is neutral, others are resets (A11)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    server.reset(sid, int(path[1:]))
	END
	both_http2 "$server_port" <<-'END'
		c = Client()
		for code in 7, 7, 2, 11, 13:
		    c.get("/%d" % code)
		assert sorted(c.resets.values()) == [2, 7, 7, 11, 13]
	END
	assert_equal "$(tally "$server_port")" "2 failure 3 neutral reset 2"
}

@test "PING, SETTINGS and WINDOW_UPDATE are no calls and owe no answer (A11)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    server.answer(sid)
	END
	set='answer_timeout=200ms;stall_timeout=200ms;deadline=300ms' both_http2 "$server_port" <<-'END'
		c = Client()
		assert c.get("/") == 200
		for i in range(3):
		    c.h.ping(b"12345678")
		    c.h.increment_flow_control_window(1000)
		    c.h.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 70000 + i})
		    c.flush()
		    c.read()
		assert not readable(c.s, 50) or c.read()
		time.sleep(0.7)  # idle for twice the longest limit (A7)
		assert c.get("/") == 200
	END
	assert_equal "$(tally "$server_port")" "2 success"
}

@test "a connection on which no stream begins is neutral, whoever closes it (A7)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    pass
	END
	both_http2 "$server_port" <<-'END'
		c = Client()
		c.read()
		c.s.close()
	END
	assert_equal "$(tally "$server_port")" "1 neutral"
}

# ---- the end of a connection ----

@test "GOAWAY leaves those that it will not process neutral; the others have their answers (A11)" {
	serves_http2 server <<-'END'
		waiting = []
		def asked(server, sid, path):
		    waiting.append(sid)
		    if len(waiting) % 10 == 0:
		        server.go_away(waiting[-7])
		        for sid in waiting[-10:-6]:
		            server.answer(sid)
		        server.c.shutdown(socket.SHUT_RDWR)
	END
	set='failure_threshold=1' both_http2 "$server_port" <<-'END'
		c = Client()
		for i in range(10):
		    c.ask("/")
		b = b""  # that of h2 takes nothing any more once it has seen the GOAWAY
		while o := c.s.recv(65536):
		    b += o
		assert b.count(b"ok\n") == 4
		c.s.close()
	END
	assert_equal "$(tally "$server_port")" "4 success 6 neutral"
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
}

@test "the end of the connection ends its streams: those that were asked for are failures (A14)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    if path == "/ok":
		        server.answer(sid)
		    if path == "/end":
		        server.c.shutdown(socket.SHUT_RDWR)
		    if path == "/reset":
		        reset(server.c)
	END
	set='failure_threshold=0' both_http2 "$server_port" <<-'END'
		c = Client()
		for path in "/wait", "/wait", "/end":
		    c.ask(path)
		while c.read():
		    pass
		c.s.close()
		c = Client()
		c.ask("/wait")
		c.ask("/reset")
		while error_of(c.read) is True:
		    pass
		c.s.close()
		c = Client()
		assert c.get("/ok") == 200
		c.ask("/end")  # on a kept connection, within a second: the server had dropped it (A7)
		while c.read():
		    pass
		c.s.close()
	END
	assert_equal "$(tally "$server_port")" "1 success 5 failure 1 neutral eof 3 reset 2"
}

@test "a stream that the app cancels: neutral at once, abandoned after a second (A5)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    if path == "/ok":
		        server.answer(sid)
	END
	set='abandon_after=300ms' both_http2 "$server_port" <<-'END'
		c = Client()
		sid = c.ask("/hang")
		c.cancel(sid)
		sid = c.ask("/hang")
		time.sleep(0.4)
		c.cancel(sid)
		sid = c.ask("/hang")  # another succeeds meanwhile: the server is well
		assert c.get("/ok") == 200
		time.sleep(0.4)
		c.cancel(sid)
		sid = c.ask("/hang", ends=False)  # its request is not whole
		time.sleep(0.4)
		c.cancel(sid)
		c.ask("/hang")  # the close is a hang-up of all
		c.ask("/hang")
		time.sleep(0.4)
		c.s.close()
	END
	assert_equal "$(tally "$server_port")" "1 success 3 failure 3 neutral abandoned 3"
}

# ---- limits ----

@test "one stream of a hundred hangs: it is judged, the others have their answers, and then the socket is ended (A11)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    if path != "/hang":
		        server.answer(sid, body=path.encode())
	END
	set='answer_timeout=400ms' both_http2 "$server_port" <<-'END'
		c = Client()
		begin = ms()
		sids = [c.ask("/hang" if i == 41 else "/%d" % i) for i in range(100)]
		c.until(*(sids[:41] + sids[42:]))
		assert all(c.body[sid] == b"/%d" % i for i, sid in enumerate(sids) if i != 41)
		if is_guarded:
		    while (o := error_of(c.read)) is True:
		        pass
		    assert o == "ETIMEDOUT", o
		    assert ms() - begin >= 400
		else:
		    assert not readable(c.s, 600) or c.read()
	END
	assert_equal "$(tally "$server_port")" "99 success 1 failure answer_timeout 1"
	wait_until file_has '^reset$' "$dir/server.out"
}

@test "a stream that passes its limit is judged while its sibling goes on unharmed (A11)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    if path == "/drip":
		        server.drip(sid, 20, 0.05)
	END
	set='answer_timeout=300ms;stall_timeout=300ms' both_http2 "$server_port" <<-'END'
		c = Client()
		hung, dripped = c.ask("/hang"), c.ask("/drip")
		begin = ms()
		while dripped not in c.done:
		    assert in_time(200, c.read)
		assert ms() - begin >= 1000 and c.body[dripped] == b"x" * 20
		if is_guarded:
		    begin = ms()
		    while (o := error_of(c.read)) is True:
		        pass
		    assert o == "ETIMEDOUT" and ms() - begin >= 200, (o, ms() - begin)
	END
	assert_equal "$(tally "$server_port")" "1 success 1 failure answer_timeout 1"
}

@test "an answer that stalls; one that the app's own window holds back does not (A11, C10)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    with server.lock:
		        server.h.send_headers(sid, [(":status", "200")])
		        server.h.send_data(sid, b"x" * (1000 if path == "/full" else 10))
		        server.flush()
	END
	set='stall_timeout=600ms;abandon_after=off' both_http2 "$server_port" <<-'END'
		c = Client()
		c.h.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1000})
		c.flush()
		while c.h.remote_settings is None or c.h.local_settings.initial_window_size != 1000:
		    c.read()
		sid = c.ask("/full")
		data = b""
		while data.count(b"x") < 1000:  # the answer is read and none of it acknowledged
		    data += c.s.recv(65536)
		time.sleep(1.5)
		c.h.receive_data(data)
		c.h.increment_flow_control_window(500, sid)  # behind a long time, from when the window is open again
		c.flush()
		time.sleep(0.2)
		c.s.close()
		c = Client()
		c.ask("/stall")
		if is_guarded:
		    begin = ms()
		    while (o := error_of(c.read)) is True:
		        pass
		    assert o == "ETIMEDOUT", o
		    met(begin, 600)
		else:
		    while readable(c.s, 900):
		        c.read()
	END
	assert_equal "$(failed_by "127.0.0.1:$server_port" stall_timeout)" 1
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 1
}

@test "a server that takes the preface and never speaks is bounded like one that never answers (A11)" {
	serves server <<-'END'
		def serve(c):
		    hold(c)
	END
	set='answer_timeout=300ms' both_http2 "$server_port" <<-'END'
		begin = ms()
		c = Client()
		if is_guarded:
		    assert error_of(c.read) == "ETIMEDOUT"
		    met(begin, 300)
		else:
		    assert not readable(c.s, 600)
	END
	assert_equal "$(tally "$server_port")" "1 failure answer_timeout 1"
}

@test "all streams of a connection hang: the circuit opens (A11)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    pass
	END
	set='answer_timeout=300ms' both_http2 "$server_port" <<-'END'
		c = Client()
		for i in range(5):
		    c.ask("/")
		if is_guarded:
		    while (o := error_of(c.read)) is True:
		        pass
		    assert o == "ETIMEDOUT", o
		    assert error_of(dial) == "ECONNREFUSED"
	END
	assert_equal "$(tally "$server_port")" "5 failure 1 rejected answer_timeout 5"
}

@test "grpc-timeout is the app's own: its end is a failure of that call alone, and ends no socket (A11, C2)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    if path == "/ok":
		        server.answer(sid, trailers=[("grpc-status", "0")])
	END
	set='deadline=5s' both_http2 "$server_port" <<-'END'
		c = Client()
		sid = c.ask("/hang", [("grpc-timeout", "200m")])
		time.sleep(0.5)
		if is_guarded:
		    assert '"deadline":1' in resil("status", "--json").replace(" ", "")
		c.cancel(sid)
		sid = c.ask("/hang", [("grpc-timeout", "100000u")])
		time.sleep(0.11)
		c.cancel(sid)
		assert c.get("/ok", [("grpc-timeout", "2S")]) == 200
	END
	assert_equal "$(tally "$server_port")" "1 success 2 failure deadline 2"
}

@test "while the circuit is open the streams of a kept connection pass, and count as stale (B20)" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    server.answer(sid, 503 if path == "/503" else 200)
	END
	set='recovery_timeout=20s' both_http2 "$server_port" <<-'END'
		c = Client()
		for i in range(5):
		    assert c.get("/503") == 503
		if is_guarded:
		    assert error_of(dial) == "ECONNREFUSED"
		assert c.get("/ok") == 200
		if is_guarded:
		    assert error_of(dial) == "ECONNREFUSED"
	END
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
}

# ---- how it begins ----

@test "HTTP/2 by an upgrade from HTTP/1 (h2c): the request goes on as the first stream" {
	serves_http2 server <<-'END'
		def asked(server, sid, path):
		    server.answer(sid, 503 if path == "/503" else 200, body=path.encode())
		def serve(c):
		    fields = dict(line.split(b": ", 1) for line in head(c).split(b"\r\n") if b": " in line)
		    c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
		    Http2(c).serve(settings=fields[b"HTTP2-Settings"])
	END
	both_http2 "$server_port" <<-'END'
		s = dial()
		s.sendall(b"GET /upgraded HTTP/1.1\r\nHost: here\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
		rest = s.recv(65536).partition(b"\r\n\r\n")[2]  # what follows in the same octets is HTTP/2
		c = Client(s, begins="initiate_upgrade_connection", first=rest)
		c.until(1)
		assert c.status[1] == 200 and c.body[1] == b"/upgraded"
		assert c.get("/503") == 503
	END
	assert_equal "$(tally "$server_port")" "1 success 1 failure http_gateway 1"
	run under curl -sS --http2 "http://127.0.0.1:$server_port/x" -w ' %{http_version}'
	assert_success
	assert_output "/upgraded 2"
}

# ---- inside TLS that passes through memory, as gRPC's and asyncio's does ----

in_tls='
import ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate)
context.set_alpn_protocols(["h2"])
in_clear, begun = Http2, []
class Http2(in_clear):
    def __init__(self, c):
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(context.wrap_socket(c, server_side=True))
    def flush(self):
        super().flush()
        if self.c not in begun:
            begun.append(self.c)
            say("has begun")
'
from_memory='
import ssl
context = ssl.create_default_context(cafile=sys.argv[2])
context.set_alpn_protocols(["h2"])
class Memory:
    def __init__(self):
        self.s, self.came, self.goes = dial(), ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.came, self.goes, server_hostname="localhost")
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.s.sendall(self.goes.read())
                self.came.write(self.s.recv(65536))
        self.s.sendall(self.goes.read())
    def sendall(self, octets):
        self.tls.write(octets)
        self.s.sendall(self.goes.read())
    def recv(self, n):
        while True:
            try:
                return self.tls.read(n)
            except ssl.SSLWantReadError:
                self.came.write(self.s.recv(65536))
def until_said(line, times):
    while open(sys.argv[3]).read().split("\n").count(line) < times:
        time.sleep(0.01)
'

@test "in TLS from memory: what the server says first comes before anybody has read: its streams are told apart (A9 A11)" {
	make_certificate
	serves_http2 server <<-END
		certificate = "$certificate"
		$in_tls
		def asked(server, sid, path):
		    server.answer(sid, int(path[1:]))
	END
	both_http2 "$server_port" "$certificate" "$dir/server.out" <<-END
		$from_memory
		s = Memory()
		until_said("has begun", 2 if is_guarded else 1)  # its tickets and SETTINGS are here, and come at once
		s.came.write(s.s.recv(65536))
		c = Client(s)
		for code in 200, 503, 200, 200:
		    assert c.get("/%d" % code) == code
		s.s.close()
	END
	assert_equal "$(tally "$server_port")" "3 success 1 failure http_gateway 1"
}

@test "in TLS from memory: the connection's end comes with the last answers, before anybody has read them: they are answers (A9 A1)" {
	make_certificate
	serves_http2 server <<-END
		certificate = "$certificate"
		$in_tls
		waiting = []
		def asked(server, sid, path):
		    waiting.append(sid)
		    if len(waiting) % 5 == 0:
		        for sid in waiting[-5:-1]:
		            server.answer(sid)
		        server.c.shutdown(socket.SHUT_WR)
		        say("has ended")
	END
	set='failure_threshold=0' both_http2 "$server_port" "$certificate" "$dir/server.out" <<-END
		$from_memory
		s = Memory()
		c = Client(s)
		sids = [c.ask("/") for i in range(5)]
		until_said("has ended", 2 if is_guarded else 1)
		octets = b""
		while piece := s.s.recv(65536):
		    octets += piece
		s.came.write(octets)
		c.until(*sids[:4])
		s.came.write_eof()
		try:
		    assert s.recv(1) == b""
		except ssl.SSLEOFError:
		    pass
		s.s.close()
	END
	assert_equal "$(tally "$server_port")" "4 success 1 neutral" # the last one was dropped with the connection (A7)
}

# ---- programs that nobody here wrote ----

@test "h2load: thousands of requests over few connections are as many successes, and nothing else" {
	nghttpd_start
	url=http://127.0.0.1:$nghttpd_port
	loads() { "$1" h2load -n 3000 -c 3 -m 30 "$url/small" "$url/data"; }
	run loads bare
	assert_success
	assert_output --partial "3000 succeeded, 0 failed, 0 errored, 0 timeout"
	shim_part
	export RESIL_SET='answer_timeout=20s;stall_timeout=20s;deadline=60s'
	run loads under
	assert_success
	assert_output --partial "3000 succeeded, 0 failed, 0 errored, 0 timeout"
	assert_equal "$(tally "$nghttpd_port")" "3000 success"
}

@test "nghttp and curl: the same bytes, one stream after another and several at once" {
	nghttpd_start
	url=http://127.0.0.1:$nghttpd_port
	gets() { "$1" curl -sS --http2-prior-knowledge "$url/data" -o "$dir/got" -w '%{http_version} %{http_code}'; }
	run gets bare
	assert_success
	assert_output "2 200"
	shim_part
	run gets under
	assert_success
	assert_output "2 200"
	cmp "$dir/got" "$dir/www/data"
	under nghttp "$url/data" >"$dir/got"
	cmp "$dir/got" "$dir/www/data"
	under nghttp -d "$dir/www/data" "$url/small" >"$dir/got"
	cmp "$dir/got" "$dir/www/small"
	under nghttp -n "$url/data" "$url/small" "$url/none"
	for group in curl nghttp; do
		assert_equal "$(destination "127.0.0.1:$nghttpd_port" calls.failure -g $group)" 0
	done
	assert_equal "$(destination "127.0.0.1:$nghttpd_port" calls.success -g nghttp)" 5
}

@test "gRPC, its own client and server: statuses, a call that hangs, its own time-out (A11, A14)" {
	serves_grpc server <<-'END'
		def answer(method, request, context):
		    if method == "/s/hang":
		        time.sleep(2)
		        return b""
		    code = int(method[3:])
		    if code:
		        context.abort([c for c in grpc.StatusCode if c.value[0] == code][0], "why")
		    return b"y"
	END
	both "$server_port" <<-END
		$grpc_prelude
		channel = grpc.insecure_channel("127.0.0.1:%d" % port)
		for code in range(17):
		    assert code_of(channel, "/s/%d" % code, 20) == code
		if not is_guarded:
		    sys.exit(0)
		assert code_of(channel, "/s/hang", 0.3) == 4
		channel.close()
	END
	# That which hangs is ended by its own time-out: the client's cancelling, or the server's DEADLINE_EXCEEDED if that is first.
	run tally "$server_port"
	assert_output --regexp '^12 success 6 failure (deadline 1 grpc 5|grpc 6)$'
}

@test "a gRPC server that hangs is bounded by the deadline; the circuit opens, and the app hears UNAVAILABLE at once (A11, C1)" {
	serves_grpc server <<-'END'
		def answer(method, request, context):
		    time.sleep(3)
		    return b""
	END
	set='deadline=300ms;recovery_timeout=20s' both "$server_port" <<-END
		$grpc_prelude
		channel = grpc.insecure_channel("127.0.0.1:%d" % port)
		if not is_guarded:
		    assert code_of(channel, "/s/hang", 0.6) == 4
		    sys.exit(0)
		pool = futures.ThreadPoolExecutor(5)
		begin = ms()
		codes = list(pool.map(lambda i: code_of(channel, "/s/hang", 20), range(5)))
		took = ms() - begin
		if took >= 2500:
		    late()
		assert codes == [14] * 5 and took < 2500, (codes, took)
		assert code_of(channel, "/s/hang", 20) == 14
		channel.close()
	END
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 5
}

@test "nghttp, a hundred streams of which one hangs: that one is judged, the others finish (A11)" { one_hangs nghttp; }
@test "gRPC in TLS, a hundred calls of which one hangs: that one is judged, the others finish (A9 A11)" { one_hangs grpc tls; }
