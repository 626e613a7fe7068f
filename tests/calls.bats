#!/usr/bin/env bats
# Calls on connections: where they begin and end, what each comes to, and what no limit may cut. Each test says its rule's number; each of them
# is run without the shim first, where the same client must see the same of the same server.
load lib/common
load lib/services
load lib/talk

# ---- A2: where a call ends ----

@test "three requests of a plain protocol on one connection are three calls (A2)" {
	serves server <<-'END'
		def serve(c):
		    while True:
		        b = c.recv(100)
		        if not b:
		            return
		        c.sendall(b"+" + b)
	END
	both "$server_port" <<-'END'
		s = dial()
		for word in b"one", b"two", b"three":
		    s.sendall(word[:1])
		    s.sendall(word[1:])  # before an octet of the answer: the same request
		    got = b""
		    while got.replace(b"+", b"") != word:
		        got += s.recv(100)
		s.close()
	END
	assert_equal "$(tally "$server_port")" "3 success"
}

@test "three commands of a redis-cli session are calls of their own (A2)" {
	redis_start redis
	commands=$'set a 1\nget a\nping'
	assert_equal "$(bare redis-cli -p "$redis_port" <<<"$commands" | paste -sd' ')" "OK 1 PONG"
	shim_part
	asked() { bare redis-cli -p "$redis_port" info stats | sed -n 's/^total_commands_processed:\([0-9]*\).*/\1/p'; }
	before=$(asked)
	assert_equal "$(under redis-cli -p "$redis_port" <<<"$commands" | paste -sd' ')" "OK 1 PONG"
	after=$(asked)
	# Those of the session, without that of `asked` itself.
	assert_equal "$(tally "$redis_port")" "$((after - before - 1)) success"
}

@test "three requests on one HTTP connection are three calls (A2)" {
	serves server <<-'END'
		def serve(c):
		    while head(c):
		        ok(c)
	END
	both "$server_port" <<-'END'
		s = dial()
		for i in range(3):
		    assert get(s) == (200, b"ok\n")
	END
	assert_equal "$(tally "$server_port")" "3 success"
}

@test "a connection is first used by a copy of its number, by two threads at once, after a fork, or after an exec that failed (A2, E4)" {
	serves server <<-'END'
		def serve(c):
		    while head(c):
		        ok(c)
	END
	both "$server_port" <<-'END'
		import threading
		s = dial()
		copy = s.dup()
		assert get(copy) == (200, b"ok\n")
		s.close()
		assert get(copy) == (200, b"ok\n")
		for i in range(20):
		    s, got = dial(), []
		    reader = threading.Thread(target=lambda: got.append(answer(s)))
		    reader.start()
		    s.sendall(GET % b"")
		    reader.join()
		    assert got == [(200, b"ok\n")]
		s = dial()  # the child uses what the parent keeps the call of, then has one of its own
		if os.fork() == 0:
		    assert get(s) == (200, b"ok\n")
		    assert get(s) == (200, b"ok\n")
		    os._exit(0)
		assert os.wait()[1] == 0
		s.close()
		s = dial()
		assert error_of(os.execv, "/nowhere", ["nowhere"]) == "ENOENT"
		assert get(s) == (200, b"ok\n")
	END
	assert_equal "$(tally "$server_port")" "23 success 2 neutral"
}

@test "chunks, and an answer until the end of the stream, are framed (A2)" {
	serves server <<-'END'
		def serve(c):
		    while True:
		        h = head(c)
		        if b"/chunks" in h:
		            c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab")
		            c.sendall(b"c\r\n0\r\n")
		            c.sendall(b"\r\n")
		        else:
		            c.sendall(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
		            return
	END
	set='stall_timeout=300ms;deadline=2s' both "$server_port" <<-'END'
		s = dial()
		s.sendall(GET % b"chunks")
		b = b""
		while not b.endswith(b"0\r\n\r\n"):
		    b += s.recv(100)
		assert not readable(s, 900)  # idle for three times its limit
		s.sendall(GET % b"close")
		b = b""
		while True:
		    o = s.recv(100)
		    if not o:
		        break
		    b += o
		assert b.endswith(b"until the end")
	END
	assert_equal "$(tally "$server_port")" "2 success"
}

@test "Connection: close, a whole body and no end of the stream: the limit ends the wait for it (A2)" {
	serves server <<-'END'
		def serve(c):
		    head(c)
		    ok(c, extra="Connection: close\r\n")
		    hold(c)
	END
	set='deadline=400ms' both "$server_port" <<-'END'
		begin, s = ms(), dial()
		assert get(s) == (200, b"ok\n")
		if is_guarded:
		    assert error_of(s.recv, 1) == "ETIMEDOUT"
		    met(begin, 400)
		else:
		    assert not readable(s, 800)
	END
	wait_until file_has '^reset$' "$dir/server.out"
	assert_equal "$(failed_by "127.0.0.1:$server_port" deadline)" 1
}

@test "Connection: close, a whole body and an app that is content with it: a success (A2)" {
	serves server <<-'END'
		def serve(c):
		    head(c)
		    ok(c, extra="Connection: close\r\n")
		    hold(c)
	END
	set='deadline=400ms' both "$server_port" <<-'END'
		s = dial()
		assert get(s) == (200, b"ok\n")
		s.close()
	END
	assert_equal "$(tally "$server_port")" "1 success"
}

@test "quiet does not end a call in the middle of a RESP value whose length is known (A2)" {
	serves server <<-'END'
		def serve(c):
		    c.recv(100)
		    c.sendall(b"$100\r\nhalf of it")
		    hold(c)
	END
	set='deadline=1500ms' both "$server_port" <<-'END'
		begin, s, b = ms(), dial(), b""
		s.sendall(b"*2\r\n$3\r\nget\r\n$1\r\na\r\n")
		while len(b) < 16:
		    b += s.recv(100)
		if is_guarded:
		    assert readable(s, 3000)  # nothing else ends it
		    assert error_of(s.recv, 1) == "ETIMEDOUT"
		    met(begin, 1500)
		else:
		    assert not readable(s, 1800)
	END
	assert_equal "$(tally "$server_port")" "1 failure deadline 1"
}

# ---- A4: the server speaks first ----

@test "a server that speaks first and then closes in order has answered (A4)" {
	serves server <<-'END'
		def serve(c):
		    c.sendall(b"220 here I am\r\n")
	END
	set='answer_timeout=300ms;deadline=600ms;failure_threshold=1' both "$server_port" <<-'END'
		s, b = dial(), b""
		while True:
		    o = s.recv(100)
		    if not o:
		        break
		    b += o
		assert b == b"220 here I am\r\n"
	END
	assert_equal "$(tally "$server_port")" "1 success"
}

@test "a banner, and an app that then leaves: the server has answered (A4)" {
	serves server <<-'END'
		def serve(c):
		    c.sendall(b"220 here I am\r\n")
		    hold(c)
	END
	set='answer_timeout=300ms;deadline=600ms;failure_threshold=1' both "$server_port" <<-'END'
		s = dial()
		assert s.recv(100) == b"220 here I am\r\n"
		s.close()
	END
	assert_equal "$(tally "$server_port")" "1 success"
}

# ---- A5: the app hangs up ----


@test "exit after a wait longer than abandon_after is a hang-up: abandoned (A5)" {
	hung_server
	set='abandon_after=300ms' both "$server_port" <<-'END'
		s = dial()
		s.sendall(GET % b"hang")
		assert not readable(s, 500)
		s.detach()  # nobody closes it but the exit
		sys.exit(0)
	END
	assert_equal "$(tally "$server_port")" "1 failure abandoned 1"
}

@test "exit after a shorter wait is neutral (A5)" {
	hung_server
	set='abandon_after=5s' both "$server_port" <<-'END'
		s = dial()
		s.sendall(GET % b"hang")
		assert not readable(s, 300)
		s.detach()
	END
	assert_equal "$(tally "$server_port")" "1 neutral"
}

@test "death by a signal is neutral, however long it had waited (A5)" {
	hung_server
	code='
s = dial()
s.sendall(GET % b"hang")
assert not readable(s, 600)
if os.fork() == 0:
    os.kill(os.getppid(), signal.SIGKILL)
    os._exit(0)
time.sleep(60)
'
	run bare python3 -c "$client_prelude$code" "$server_port"
	assert_equal "$status" 137
	shim_part
	export RESIL_SET='abandon_after=300ms;failure_threshold=1'
	run under python3 -c "$client_prelude$code" "$server_port"
	assert_equal "$status" 137
	wait_until eval '[ "$(server_said server ended)" = 2 ]'
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 0
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
	# Whose process is gone holds nothing in flight.
	talks under "$server_port" <<<'assert get(dial()) == (200, b"ok\n")'
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 0
}

@test "the app's own SO_RCVTIMEO that ran out, and then a close: abandoned (A5 C2)" {
	hung_server
	set='abandon_after=5s;deadline=10s' both "$server_port" <<-'END'
		s = dial()
		s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200000))
		s.sendall(GET % b"hang")
		begin = ms()
		assert error_of(s.recv, 1) == "EAGAIN"
		assert ms() - begin >= 199
		s.close()
	END
	assert_equal "$(tally "$server_port")" "1 failure abandoned 1"
}

@test "a success of the destination meanwhile makes an abandoned call neutral (A5)" {
	hung_server
	set='abandon_after=300ms' both "$server_port" <<-'END'
		s = dial()
		s.sendall(GET % b"hang")
		assert not readable(s, 500)
		assert get(dial()) == (200, b"ok\n")
		s.close()
	END
	assert_equal "$(tally "$server_port")" "1 success 1 neutral"
}

@test "leaving in the middle of an answer: what counts is the silence (A5)" {
	serves server <<-'END'
		def serve(c):
		    h = head(c)
		    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsome")
		    if b"/drip" in h:
		        for i in range(1000):
		            c.sendall(b"x")
		            time.sleep(0.05)
		    hold(c)
	END
	set='abandon_after=400ms' both "$server_port" <<-'END'
		def leave(path, wait):
		    s = dial()
		    s.sendall(GET % path)
		    end = ms() + wait
		    while (left := end - ms()) > 0:
		        if readable(s, left):
		            s.recv(100)
		    s.close()
		leave(b"drip", 800)
		leave(b"silent", 700)
	END
	assert_equal "$(tally "$server_port")" "1 failure 1 neutral abandoned 1"
}

# ---- A7: kept connections ----

@test "a kept connection idle under limits for four times their length, then used: nothing is counted (A7)" {
	hung_server
	set='answer_timeout=300ms;stall_timeout=300ms;deadline=300ms;failure_threshold=1' both "$server_port" <<-'END'
		s = dial()
		assert get(s) == (200, b"ok\n")
		assert not readable(s, 1200)
		assert get(s) == (200, b"ok\n")
	END
	assert_equal "$(tally "$server_port")" "2 success"
}

@test "a server that closes a kept connection while it is idle: nothing is counted (A7)" {
	serves server <<-'END'
		def serve(c):
		    head(c)
		    ok(c)
	END
	set='deadline=300ms;failure_threshold=1' both "$server_port" <<-'END'
		s = dial()
		assert get(s) == (200, b"ok\n")
		assert readable(s, 5000)
		assert s.recv(1) == b""
		s.close()
		s = dial()
		assert get(s) == (200, b"ok\n")
		assert readable(s, 5000)
		s.close()  # without having read the end
	END
	assert_equal "$(tally "$server_port")" "2 success"
}

dropped_at_the_second() { # reset|end
	serves server <<-END
		def serve(c):
		    head(c)
		    ok(c)
		    c.recv(1)
		    if "$1" == "reset":
		        reset(c)
		    else:
		        while select.select([c], [], [], 0.05)[0] and c.recv(65536):
		            pass
	END
	set='deadline=2s;failure_threshold=1' both "$server_port" "$1" <<-'END'
		s = dial()
		assert get(s) == (200, b"ok\n")
		s.sendall(GET % b"again")
		assert error_of(s.recv, 1) == {"reset": "ECONNRESET", "end": b""}[sys.argv[2]]
		s.close()
	END
	assert_equal "$(tally "$server_port")" "1 success 1 neutral"
}
@test "a request on a kept connection that meets a reset before its answer is neutral (A7)" { dropped_at_the_second reset; }
@test "a request on a kept connection that meets an end before its answer is neutral (A7)" { dropped_at_the_second end; }

@test "the first request on a connection that meets a reset is a failure (A7 A14)" {
	serves server <<-'END'
		def serve(c):
		    head(c)
		    reset(c)
	END
	both "$server_port" <<-'END'
		s = dial()
		s.sendall(GET % b"")
		assert error_of(s.recv, 1) == "ECONNRESET"
	END
	assert_equal "$(tally "$server_port")" "1 failure reset 1"
}

early_413() { # before|after: the answer is read before or after the EPIPE
	serves server <<-'END'
		def serve(c):
		    head(c)
		    ok(c, b"too large\n", "413 Content Too Large", "Connection: close\r\n")
	END
	set='deadline=5s;failure_threshold=1' both "$server_port" "$1" <<-'END'
		s = dial()
		s.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000000\r\n\r\n")
		assert readable(s, 5000)
		if sys.argv[2] == "before":
		    assert answer(s) == (413, b"too large\n")
		error = 65536
		while isinstance(error, int):
		    error = error_of(s.send, b"x" * 65536)
		assert error in ("EPIPE", "ECONNRESET"), error
		if sys.argv[2] == "after":
		    assert answer(s) == (413, b"too large\n")
		s.close()
	END
	assert_equal "$(tally "$server_port")" "1 success"
}
@test "an early 413, read, and then EPIPE: the answer stands (A7)" { early_413 before; }
@test "an early 413, then EPIPE, and then read: the answer stands (A7)" { early_413 after; }

# ---- A8: HTTP/1 ----

# Answers each request with the status that its path names.
status_server() {
	serves server <<-'END'
		def serve(c):
		    while True:
		        h = head(c)
		        if not h:
		            return
		        ok(c, status=h.split(b" ")[1][1:].decode() + " Some Words")
	END
}

@test "requests sent in crumbs, without any limit, are told as what they are (A2, A8)" {
	serves server <<-'END'
		def serve(c):
		    while head(c):
		        c.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
	END
	both "$server_port" <<-'END'
		s = dial()
		for i in range(2):
		    for crumb in b"G", b"E", b"T", (GET % b"")[3:]:
		        s.sendall(crumb)
		    assert answer(s) == (503, b"")
	END
	assert_equal "$(tally "$server_port")" "2 failure http_gateway 2"
}
@test "502, 503 and 504 are http_gateway, other 5xx http_5xx, 4xx and 429 successes (A8)" {
	status_server
	set='failure_threshold=0' both "$server_port" <<-'END'
		s = dial()
		for status in 502, 503, 504, 500, 501, 505, 599, 400, 404, 429, 499, 200, 302:
		    assert get(s, str(status)) == (status, b"ok\n")
	END
	assert_equal "$(tally "$server_port")" "6 success 7 failure http_5xx 4 http_gateway 3"
}

@test "a status that is a failure is one for whoever leaves without its body: python, wget, curl -f (A1 A8)" {
	serves server <<-'END'
		def serve(c):
		    h = head(c)
		    status = h.split()[1][1:]
		    c.sendall(b"HTTP/1.1 " + status + b" X\r\nContent-Length: 9\r\nConnection: close\r\n\r\n")
		    c.recv(1)  # until it leaves
	END
	set='failure_threshold=0' both "$server_port" <<-'END'
		for status in b"502", b"500", b"404", b"200":
		    s = dial()
		    s.sendall(GET % status)
		    got = b""
		    while b"\r\n\r\n" not in got:
		        got += s.recv(100)
		    assert got.startswith(b"HTTP/1.1 " + status)
		    s.close()
	END
	assert_equal "$(tally "$server_port")" "2 failure 2 neutral http_5xx 1 http_gateway 1"
	export RESIL_SET='failure_threshold=2;recovery_timeout=5m;recovery_max=5m' RESIL_GROUP=leaves
	run under wget -q -t1 -O- "http://127.0.0.1:$server_port/503"
	assert_equal "$status" 8
	run under curl -sf "http://127.0.0.1:$server_port/504"
	assert_equal "$status" 22
	assert_equal "$(resil status -g leaves "127.0.0.1:$server_port" | cut -f2)" open
}

@test "500 is counted and trips only where trip_on names it; 503 trips (A8 A14)" {
	status_server
	code='
s = dial()
for i in range(5):
    assert get(s, sys.argv[2]) == (int(sys.argv[2]), b"ok\n")
'
	talks bare "$server_port" 500 <<<"$code"
	talks bare "$server_port" 503 <<<"$code"
	shim_part
	export RESIL_SET='failure_threshold=2;recovery_timeout=5m;recovery_max=5m'
	talks under "$server_port" 500 <<<"$code"
	assert_equal "$(destination "127.0.0.1:$server_port" state) $(tally "$server_port")" "closed 5 failure http_5xx 5"
	assert_equal "$(destination "127.0.0.1:$server_port" consecutive_failures)" 0
	local meets='
s = dial()
for i in range(2):
    assert get(s, sys.argv[2]) == (int(sys.argv[2]), b"ok\n")
assert error_of(s.send, GET % b"more") == "ECONNRESET"
assert error_of(dial) == "ECONNREFUSED"
'
	talks under "$server_port" 503 <<<"$meets"
	assert_equal "$(transitions "127.0.0.1:$server_port")" "closed>open"
	resil reset "127.0.0.1:$server_port"
	RESIL_SET="$RESIL_SET;trip_on=http_5xx" talks under "$server_port" 500 <<<"$meets"
	RESIL_SET="$RESIL_SET;trip_on=http_5xx" resil reset "127.0.0.1:$server_port"
	RESIL_SET="$RESIL_SET;trip_on=http_5xx" talks under "$server_port" 503 <<<"$code"
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
}

@test "100 Continue and then 200: one success, and 100 is no answer (A8)" {
	serves server <<-'END'
		def serve(c):
		    while True:
		        h = head(c)
		        if not h:
		            return
		        c.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
		        if b"/never" in h:
		            hold(c)
		            return
		        c.recv(4)
		        c.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n")
		        ok(c)
	END
	set='answer_timeout=400ms;failure_threshold=0' both "$server_port" <<-'END'
		POST = b"POST /%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
		s = dial()
		for i in range(2):
		    s.sendall(POST % b"")
		    assert answer(s)[0] == 100
		    s.sendall(b"body")
		    assert answer(s)[0] == 103
		    assert answer(s) == (200, b"ok\n")
		s = dial()
		s.sendall(POST % b"never")
		assert answer(s)[0] == 100
		s.sendall(b"body")
		begin = ms()
		if is_guarded:
		    assert error_of(s.recv, 1) == "ETIMEDOUT"
		    met(begin, 400)
		else:
		    assert not readable(s, 600)
	END
	assert_equal "$(tally "$server_port")" "2 success 1 failure answer_timeout 1"
}

@test "HEAD, 204 and 304 have no body whatever their heads say (A8)" {
	serves server <<-'END'
		def serve(c):
		    while True:
		        h = head(c)
		        if not h:
		            return
		        status = b"204 No Content" if b"/204" in h else b"304 Not Modified" if b"/304" in h else b"200 OK"
		        c.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 1000\r\n\r\n")
	END
	set='stall_timeout=300ms;deadline=600ms;failure_threshold=1' both "$server_port" <<-'END'
		s = dial()
		for method, path, status in (b"HEAD", "", 200), (b"GET", "204", 204), (b"GET", "304", 304), (b"HEAD", "", 200):
		    s.sendall(GET.replace(b"GET", method) % path.encode())
		    assert answer(s, False) == (status, b"")
		assert not readable(s, 900)
		s.close()
	END
	assert_equal "$(tally "$server_port")" "4 success"
}

# After its first answer the connection is another's: silence for longer than three limits, and then it is used.
opaque_stream() { # REQUEST
	set='answer_timeout=300ms;stall_timeout=300ms;deadline=300ms;failure_threshold=1' both "$server_port" "$1" <<-'END'
		s = dial()
		s.sendall(sys.argv[2].replace("|", "\r\n").encode())
		answer(s, False)
		for i in range(2):
		    assert not readable(s, 1000)
		    s.sendall(b"ping")
		    assert s.recv(4) == b"pong"
		s.close()
	END
	assert_equal "$(tally "$server_port")" "1 success"
}
@test "101 Switching Protocols, and then silence for three limits: untouched (A8 C9)" {
	serves server <<-'END'
		def serve(c):
		    head(c)
		    c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: talk\r\nConnection: Upgrade\r\n\r\n")
		    while c.recv(4):
		        c.sendall(b"pong")
	END
	opaque_stream 'GET / HTTP/1.1|Host: 127.0.0.1|Upgrade: talk|Connection: Upgrade||'
}
@test "a tunnel by CONNECT, and then silence for three limits: untouched (A8 C9)" {
	serves far <<-'END'
		def serve(c):
		    while c.recv(4):
		        c.sendall(b"pong")
	END
	serves server <<-'END'
		def serve(c):
		    host, port = head(c).split(b" ")[1].split(b":")
		    far = socket.create_connection((host.decode(), int(port)))
		    c.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
		    ends = {c: far, far: c}
		    while True:
		        for s in select.select([c, far], [], [])[0]:
		            b = s.recv(65536)
		            if not b:
		                return
		            ends[s].sendall(b)
	END
	opaque_stream "CONNECT 127.0.0.1:$far_port HTTP/1.1|Host: 127.0.0.1:$far_port||"
}

pipelined() { # COUNT: sent together; the answers come one by one, slower all in all than every limit
	serves server <<-'END'
		def serve(c):
		    while head(c):
		        time.sleep(0.05)
		        ok(c)
	END
	set='answer_timeout=400ms;stall_timeout=400ms;deadline=400ms;failure_threshold=1' both "$server_port" "$1" <<-'END'
		s, n = dial(), int(sys.argv[2])
		s.sendall(GET % b"" * n)
		for i in range(n):
		    assert in_time(300, answer, s) == (200, b"ok\n")
		assert not readable(s, 900)
		assert in_time(300, get, s) == (200, b"ok\n")
	END
}
@test "twenty pipelined requests: no failure and no limit (A8)" {
	pipelined 20
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 0
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
}
@test "four pipelined requests are four calls (A8)" {
	pipelined 4
	assert_equal "$(tally "$server_port")" "5 success"
}

@test "garbage in the place of an answer: no failure, and not cut (A8)" {
	serves server <<-'END'
		def serve(c):
		    head(c)
		    c.sendall(b"\x00\x01 this is no HTTP\r\n")
		    if c.recv(4):
		        c.sendall(b"still here")
	END
	set='answer_timeout=300ms;stall_timeout=300ms;deadline=300ms;failure_threshold=1' both "$server_port" <<-'END'
		s = dial()
		s.sendall(GET % b"")
		assert s.recv(100).endswith(b"no HTTP\r\n")
		assert not readable(s, 1000)
		s.sendall(b"more")
		b = b""
		while b != b"still here":
		    b += s.recv(100)
		s.close()
	END
	assert_equal "$(destination "127.0.0.1:$server_port" calls.failure)" 0
}

# ---- A12: who owes an answer ----

@test "a writer that never reads and is never answered is not cut by a deadline, and has succeeded (A12)" {
	serves server <<-'END'
		def serve(c):
		    hold(c)
	END
	set='answer_timeout=300ms;deadline=300ms;failure_threshold=1' both "$server_port" <<-'END'
		s, end = dial(), ms() + 1200
		while ms() < end:
		    s.sendall(b"a line of a log\n")
		    time.sleep(0.05)
		time.sleep(0.1)  # acknowledged
		s.close()
	END
	assert_equal "$(server_said server ended)" 2
	assert_equal "$(tally "$server_port")" "1 success"
}

@test "a writer that reads is owed an answer (A12)" {
	serves server <<-'END'
		def serve(c):
		    hold(c)
	END
	set='deadline=400ms' both "$server_port" <<-'END'
		begin, s = ms(), dial()
		s.sendall(b"a question\n")
		if is_guarded:
		    assert error_of(s.recv, 1) == "ETIMEDOUT"
		    met(begin, 400)
		else:
		    assert not readable(s, 600)
	END
	wait_until file_has '^reset$' "$dir/server.out"
	assert_equal "$(tally "$server_port")" "1 failure deadline 1"
}

@test "a connection on which nothing was sent has limits only once the app reads (A12)" {
	serves server <<-'END'
		def serve(c):
		    hold(c)
	END
	set='answer_timeout=300ms;deadline=400ms' both "$server_port" <<-'END'
		s = dial()
		assert not readable(s, 1200)  # no limit has cut it
		assert so_error(s) == 0
		if is_guarded:
		    begin = ms()
		    assert error_of(s.recv, 1) == "ETIMEDOUT"
		    took = ms() - begin
		    if took > 420 + int(os.environ["TEST_ALLOWANCE_MS"]):
		        late()
		        assert False, took
	END
	wait_until file_has '^reset$' "$dir/server.out"
}

@test "a connection made ahead of need and used later has its whole deadline (A12)" {
	serves server <<-'END'
		def serve(c):
		    head(c)
		    time.sleep(0.15)
		    ok(c)
	END
	set='deadline=500ms;failure_threshold=1' both "$server_port" <<-'END'
		for wait in (600, 1300):
		    s = dial()
		    assert not readable(s, wait)
		    assert get(s) == (200, b"ok\n")
	END
	assert_equal "$(tally "$server_port")" "2 success"
}
