#!/usr/bin/env bats
# An hour's worth of healthy calls in short, inside TLS and by HTTP/2 in it, under every limit: not one verdict but success, and each octet
# arrives as it was sent, by hashes at both ends (A9 A11 E1).
: "${TEST_TIMEOUT:=100}" # thousands of calls, beside others
load ../lib/common
load ../lib/services
load ../lib/talk
load ../lib/http2
load ../lib/table
load ../lib/tls

limits='answer_timeout=25s;stall_timeout=25s;deadline=28s;resolve_timeout=25s'

@test "3,600 requests of HTTP/1 inside TLS, over ninety connections: as many successes, and the same hashes at both ends (A9 E1)" {
	make_certificate
	serves server <<-END
		import hashlib, ssl
		context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
		context.load_cert_chain("$certificate")
		came, went = hashlib.sha256(), hashlib.sha256()
		def serve(c):
		    global came, went
		    with context.wrap_socket(c, server_side=True) as s, s.makefile("rwb") as f:
		        while line := f.readline():
		            n = 0
		            while (field := f.readline()) != b"\r\n":
		                if field.startswith(b"Content-Length: "):
		                    n = int(field[16:])
		            body = f.read(n)
		            came.update(body)
		            said = body[::-1]
		            if line.startswith(b"GET /sums"):
		                said = b"%s %s" % (came.hexdigest().encode(), went.hexdigest().encode())
		                came, went = hashlib.sha256(), hashlib.sha256()
		            else:
		                went.update(said)
		            f.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
		            f.flush()
	END
	calls() { # HOW SEED
		RESIL_SET=$limits talks "$1" "$server_port" "$certificate" <<-END
			import hashlib, random, ssl
			context = ssl.create_default_context(cafile=sys.argv[2])
			some = random.Random($2)
			sent, got = hashlib.sha256(), hashlib.sha256()
			def call(f, line, body):
			    f.write(line + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
			    f.flush()
			    assert f.readline() == b"HTTP/1.1 200 OK\r\n"
			    n = int(f.readline()[16:])
			    assert f.readline() == b"\r\n"
			    said = f.read(n)
			    assert len(said) == n
			    return said
			for i in range(90):
			    with context.wrap_socket(dial(), server_hostname="localhost") as s, s.makefile("rwb") as f:
			        for k in range(40):
			            body = some.randbytes(some.choice([0, 1, 100, 1000, 5000, 17000, 100000 if k == 7 else 10]))
			            said = call(f, b"POST /", body)
			            assert said == body[::-1]
			            sent.update(body)
			            got.update(said)
			        if i == 89:
			            sums = call(f, b"GET /sums", b"").decode().split()
			with open("$dir/sums", "a") as f:
			    print(*sums, sent.hexdigest(), got.hexdigest(), file=f)
		END
	}
	calls bare 1
	read -r came went sent got <"$dir/sums"
	assert_equal "$came $went" "$sent $got"
	shim_part
	calls under 2
	read -r came went sent got < <(tail -1 "$dir/sums")
	assert_equal "$came $went" "$sent $got"
	assert_equal "$(tally "$server_port")" "3601 success"
	assert_equal "$(transitions "127.0.0.1:$server_port")" ""
}

@test "3,600 streams of HTTP/2 inside TLS, twenty at once: as many successes, and the same hashes at both ends (A9 A11 E1)" {
	make_certificate
	serves_http2 server <<-END
		import hashlib, ssl
		context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
		context.load_cert_chain("$certificate")
		context.set_alpn_protocols(["h2"])
		class Hashing(h2.connection.H2Connection):
		    sums = {}
		    def receive_data(self, data):
		        events = super().receive_data(data)
		        for e in events:
		            if isinstance(e, h2.events.DataReceived):
		                self.sums.setdefault((id(self), e.stream_id), hashlib.sha256()).update(e.data)
		        return events
		h2.connection.H2Connection = Hashing
		in_clear = Http2
		class Http2(in_clear):
		    def __init__(self, c):
		        super().__init__(context.wrap_socket(c, server_side=True))
		def asked(server, sid, path):
		    body = os.urandom(int(path[1:]))
		    came = Hashing.sums.pop((id(server.h), sid), hashlib.sha256()).hexdigest()
		    server.answer(sid, body=body, trailers=[("x-came", came), ("x-went", hashlib.sha256(body).hexdigest())])
	END
	calls() { # HOW SEED
		RESIL_SET=$limits talks "$1" "$server_port" "$certificate" <<-END
			$http2_prelude
			$http2_client
			import hashlib, random, ssl
			context = ssl.create_default_context(cafile=sys.argv[2])
			context.set_alpn_protocols(["h2"])
			some = random.Random($2)
			def ask(c, body):
			    sid = c.h.get_next_available_stream_id()
			    c.h.send_headers(sid, [(":method", "POST"), (":path", "/%d" % some.choice([0, 1, 100, 3000])), (":scheme", "https"), (":authority", "here")])
			    c.h.send_data(sid, body, end_stream=True)
			    c.flush()
			    return sid
			for i in range(18):
			    c = Client(context.wrap_socket(dial(), server_hostname="localhost"))
			    assert c.s.selected_alpn_protocol() == "h2"
			    while c.h.remote_settings.max_concurrent_streams != 1000:
			        c.read()
			    for k in range(10):
			        bodies = {}
			        for n in range(20):
			            body = some.randbytes(some.choice([0, 1, 500, 3000]))
			            bodies[ask(c, body)] = body
			        c.until(*bodies)
			        for sid, body in bodies.items():
			            assert c.status[sid] == 200
			            assert c.trailers[sid]["x-came"] == hashlib.sha256(body).hexdigest()
			            assert c.trailers[sid]["x-went"] == hashlib.sha256(c.body.get(sid, b"")).hexdigest()
			    c.s.close()
		END
	}
	calls bare 1
	shim_part
	calls under 2
	assert_equal "$(tally "$server_port")" "3600 success"
	assert_equal "$(transitions "127.0.0.1:$server_port")" ""
	assert_equal "$(resil metrics | sed -n 's/^resil_unseen_streams_total.* //p')" 0
}
