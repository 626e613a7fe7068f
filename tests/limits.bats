#!/usr/bin/env bats
# Calls on connections: how they fail, what an open circuit does to kept connections, and every limit by every way to wait. Run without the shim
# first, where there is something to see without it.
load lib/common
load lib/services
load lib/talk

# ---- A14: kinds ----

# kind KIND SETTINGS: python on stdin is the server; one GET fails so, and is found in the status and in the metrics.
kind() {
	local kind=$1
	serves server
	set=$2 both "$server_port" "$kind" <<-'END'
		s = dial()
		s.sendall(GET % b"")
		if sys.argv[2] == "abandoned":
		    assert not readable(s, 500)
		    sys.exit()
		if not is_guarded and sys.argv[2] in ("answer_timeout", "stall_timeout", "deadline"):
		    end = ms() + 700
		    while ms() < end:
		        if readable(s, 50):
		            assert s.recv(100)
		    sys.exit()
		got = error_of(s.recv, 100)
		while isinstance(got, bytes) and got:
		    got = error_of(s.recv, 100)
		assert got == {"eof": b"", "reset": "ECONNRESET"}.get(sys.argv[2], "ETIMEDOUT"), got
	END
	assert_equal "$(tally "$server_port")" "1 failure $kind 1"
	resil metrics >"$dir/metrics"
	grep -E "^resil_failures_total\{.*destination=\"127.0.0.1:$server_port\".*kind=\"$kind\".*\} 1$" "$dir/metrics" ||
		fail "$(grep resil_failures_total "$dir/metrics")"
}
@test "a reset in the middle of an answer is counted as reset (A14)" {
	kind reset '' <<-'END'
		def serve(c):
		    head(c)
		    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
		    c.recv(1) if select.select([c], [], [], 0.1)[0] else reset(c)
	END
}
@test "an end in the middle of an answer is counted as eof (A14)" {
	kind eof '' <<-'END'
		def serve(c):
		    head(c)
		    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
	END
}
@test "an end before any answer is counted as eof (A14)" {
	kind eof '' <<-'END'
		def serve(c):
		    head(c)
	END
}
@test "no answer in time is counted as answer_timeout (A14)" {
	kind answer_timeout 'answer_timeout=300ms;deadline=5s' <<-'END'
		def serve(c):
		    head(c)
		    hold(c)
	END
}
@test "silence in the middle of an answer is counted as stall_timeout (A14)" {
	kind stall_timeout 'stall_timeout=300ms;answer_timeout=5s;deadline=5s' <<-'END'
		def serve(c):
		    head(c)
		    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
		    hold(c)
	END
}
@test "an answer that drips past the deadline is counted as deadline (A14 A1)" {
	kind deadline 'stall_timeout=300ms;answer_timeout=300ms;deadline=500ms' <<-'END'
		def serve(c):
		    head(c)
		    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
		    while True:
		        time.sleep(0.05)
		        c.sendall(b"x")
	END
}
@test "an app that tires of waiting is counted as abandoned (A14)" {
	kind abandoned 'abandon_after=300ms' <<-'END'
		def serve(c):
		    head(c)
		    hold(c)
	END
}

@test "a kind that trip_on does not name is counted, and the circuit stays closed (A14)" {
	serves server <<-'END'
		def serve(c):
		    head(c)
		    reset(c)
	END
	set='trip_on=refused eof;failure_threshold=2' both "$server_port" <<-'END'
		for i in range(5):
		    s = dial()
		    s.sendall(GET % b"")
		    assert error_of(s.recv, 1) == "ECONNRESET"
		    s.close()
	END
	assert_equal "$(failed_by "127.0.0.1:$server_port" reset)" 5
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
	assert_equal "$(destination "127.0.0.1:$server_port" consecutive_failures)" 0
}

# ---- A15: what is no data ----

@test "MSG_PEEK in front of each recv: still one success a call (A15)" {
	serves server <<-'END'
		def serve(c):
		    while head(c):
		        ok(c)
	END
	set='deadline=2s;failure_threshold=1' both "$server_port" <<-'END'
		def peeked(n):
		    b = s.recv(n, socket.MSG_PEEK)
		    assert b and b == s.recv(len(b), socket.MSG_PEEK)
		    assert s.recv(len(b)) == b
		    return b
		s = dial()
		for i in range(2):
		    s.sendall(GET % b"")
		    b = b""
		    while not b.endswith(b"\r\n\r\nok\n"):
		        b += peeked(7)
	END
	assert_equal "$(tally "$server_port")" "2 success"
}

@test "MSG_PEEK at the end of a stream settles nothing that the recv after it would not (A15)" {
	serves server <<-'END'
		def serve(c):
		    c.recv(100)
		    c.sendall(b"bye")
	END
	set='failure_threshold=1' both "$server_port" <<-'END'
		s = dial()
		s.sendall(b"hello")
		b = b""
		while b != b"bye":
		    b += s.recv(1)
		assert s.recv(1, socket.MSG_PEEK) == b""
		assert s.recv(1) == b""
	END
	assert_equal "$(tally "$server_port")" "1 success"
}

@test "urgent data is no answer (A15)" {
	serves server <<-'END'
		def serve(c):
		    c.recv(100)
		    c.send(b"!", socket.MSG_OOB)
		    hold(c)
	END
	set='answer_timeout=400ms' both "$server_port" <<-'END'
		s = dial()
		s.sendall(b"*1\r\n$4\r\nping\r\n")
		begin = ms()
		p = select.poll()
		p.register(s, select.POLLPRI)
		assert p.poll(5000)
		assert s.recv(1, socket.MSG_OOB) == b"!"
		if is_guarded:
		    assert error_of(s.recv, 1) == "ETIMEDOUT"
		    met(begin, 400)
		else:
		    assert not readable(s, 600)
	END
	assert_equal "$(tally "$server_port")" "1 failure answer_timeout 1"
}

@test "urgent data that is sent is no request (A15)" {
	serves server <<-'END'
		def serve(c):
		    c.recv(100)
		    c.sendall(b"+PONG\r\n")
		    hold(c)
	END
	set='answer_timeout=400ms;failure_threshold=1' both "$server_port" <<-'END'
		s = dial()
		s.sendall(b"*1\r\n$4\r\nping\r\n")
		b = b""
		while b != b"+PONG\r\n":
		    b += s.recv(100)
		s.send(b"!", socket.MSG_OOB)
		assert not readable(s, 800)
		s.close()
	END
	assert_equal "$(tally "$server_port")" "1 success"
}

@test "a request whose body is sent after its head is owed an answer in time (A14)" {
	hung_server
	set='answer_timeout=400ms' both "$server_port" <<-'END'
		s = dial()
		s.sendall(b"POST /hang HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n\r\n")
		s.sendall(b"body")
		begin = ms()
		if is_guarded:
		    assert readable(s, 2000)
		    assert error_of(s.recv, 1) == "ETIMEDOUT"
		    met(begin, 400)
		else:
		    assert not readable(s, 600)
	END
	assert_equal "$(tally "$server_port")" "1 failure answer_timeout 1"
}

# ---- B20: kept connections while the circuit is open ----

@test "an open circuit and a request on a kept HTTP connection: ECONNRESET, nothing is sent, and the reconnect is refused, of the same call (B20 B11)" {
	serves server <<-'END'
		def serve(c):
		    while True:
		        h = head(c)
		        if not h:
		            return
		        say("asked", h.split(b" ")[1].decode())
		        ok(c)
	END
	both "$server_port" <<-'END'
		s, name = dial(), "127.0.0.1:%d" % port
		assert get(s, "first") == (200, b"ok\n")
		if not is_guarded:
		    assert get(s, "second") == (200, b"ok\n")
		    sys.exit()
		resil("force", name, "open", "--forever")
		assert error_of(s.send, GET % b"second") == "ECONNRESET"
		s.close()
		assert error_of(dial) == "ECONNREFUSED"
		resil("force", name, "auto")
		assert get(dial(), "third") == (200, b"ok\n")
	END
	assert_equal "$(grep ^asked "$dir/server.out" | paste -sd' ')" "asked /first asked /second asked /first asked /third"
	assert_equal "$(server_said server accepted)" 3
	assert_equal "$(tally "$server_port")" "2 success 1 rejected"
}

@test "an open circuit and a plain protocol on a kept connection: it passes, and its verdict is stale and counted (B20 B2 CB9)" {
	serves server <<-'END'
		def serve(c):
		    while c.recv(4):
		        c.sendall(b"pong")
	END
	set='failure_threshold=1' both "$server_port" <<-'END'
		def ask():
		    s.sendall(b"ping")
		    assert s.recv(4) == b"pong"
		s, name = dial(), "127.0.0.1:%d" % port
		ask()
		resil("force", name, "open", "--forever")
		ask()
		ask()
		s.close()
	END
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
	assert_equal "$(destination "127.0.0.1:$server_port" calls.rejected)" 0
	stale=$(resil metrics | sed -nE "s/^resil_stale_results_total\{.*destination=\"127.0.0.1:$server_port\".*\} //p")
	[ "${stale:-0}" -ge 2 ] || fail "stale results: '$stale'"
}

@test "twenty slow replies held across open and half-open: one probe reaches the server (B2 B5 CB2)" {
	serves server <<-'END'
		go = threading.Event()
		signal.signal(signal.SIGUSR1, lambda *a: go.set())
		probe = threading.Event()
		signal.signal(signal.SIGUSR2, lambda *a: probe.set())
		def serve(c):
		    while True:
		        h = head(c)
		        if not h:
		            return
		        path = h.split(b" ")[1].decode()
		        say("asked", path)
		        if path == "/slow":
		            go.wait()
		        if path == "/probe":
		            probe.wait()
		        ok(c, status="503 No" if path == "/bad" else "200 OK")
	END
	shim_part
	export RESIL_SET='failure_threshold=3;recovery_timeout=300ms;recovery_jitter=0%'
	talks under "$server_port" "$server_pid" <<-'END'
		server, name = int(sys.argv[2]), "127.0.0.1:%d" % port
		slow = [dial() for i in range(20)]
		for s in slow:
		    s.sendall(GET % b"slow")
		s = dial()
		for i in range(3):
		    assert get(s, "bad")[0] == 503
		refused = 0
		end = ms() + 10000
		while True:  # the wait for the probe
		    p = error_of(dial)
		    if p != "ECONNREFUSED":
		        break
		    refused += 1
		    assert ms() < end
		    time.sleep(0.02)
		assert refused
		p.sendall(GET % b"probe")
		for i in range(20):
		    assert error_of(dial) == "ECONNREFUSED"
		os.kill(server, signal.SIGUSR1)
		for s in slow:  # their verdicts are of an older generation
		    assert answer(s) == (200, b"ok\n")
		for s in slow:
		    assert error_of(s.send, GET % b"more") == "ECONNRESET"
		    assert error_of(dial) == "ECONNREFUSED"
		os.kill(server, signal.SIGUSR2)
		assert answer(p) == (200, b"ok\n")
		assert get(dial(), "after")[0] == 200
	END
	assert_equal "$(grep -c 'asked /probe' "$dir/server.out")" 1
	assert_equal "$(grep -c 'asked /more' "$dir/server.out" || true)" 0
	assert_equal "$(transitions "127.0.0.1:$server_port" | paste -sd' ')" "closed>open open>half_open half_open>closed"
}

@test "a hundred connects against a hung server while half-open: one connection reaches it (B5 B6 CB7)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='failure_threshold=1;recovery_timeout=300ms;recovery_jitter=0%'
	talks under "$server_port" <<<'assert error_of(dial) == "ECONNREFUSED"'
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
	peer_now server hang
	wait_until eval '[ "$(destination "127.0.0.1:$server_port" retry_after_ms)" = 0 ]'
	talks under "$server_port" <<-'END'
		start, got = threading.Barrier(100), []
		def one():
		    start.wait()
		    s = error_of(dial)
		    if not isinstance(s, str):
		        s.sendall(GET % b"")
		    got.append(s)
		all = [threading.Thread(target=one) for i in range(100)]
		for t in all:
		    t.start()
		for t in all:
		    t.join()
		assert got.count("ECONNREFUSED") == 99, got
	END
	assert_equal "$(peer_accepted server)" 1
}

# ---- C: deadlines ----

@test "the app's own SO_RCVTIMEO, shorter than the deadline, ends the wait as it does bare (C2)" {
	hung_server
	set='deadline=3s' both "$server_port" <<-'END'
		s, times = dial(), struct.pack("ll", 0, 200000)
		s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, times)
		s.sendall(GET % b"hang")
		for i in range(2):
		    begin = ms()
		    assert error_of(s.recv, 1) == "EAGAIN"
		    met(begin, 200)
		assert s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16) == times
	END
}

@test "a deadline shorter than the app's own SO_RCVTIMEO wins (C2)" {
	hung_server
	set='deadline=400ms' both "$server_port" <<-'END'
		begin, s = ms(), dial()
		s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 900000))
		s.sendall(GET % b"hang")
		assert error_of(s.recv, 1) == ("ETIMEDOUT" if is_guarded else "EAGAIN")
		met(begin, 400 if is_guarded else 900)
	END
}

@test "the deadline clamps the connect: 300 ms of a connect_timeout of 10 s (C3)" {
	peer server 127.0.0.1 full
	run bare timeout 1 "$bin/dial" 127.0.0.1 "$server_port"
	assert_equal "$status" 124
	shim_part
	export RESIL_SET='deadline=300ms;connect_timeout=10s'
	for how in '' -a; do
		run under "$bin/dial" $how 127.0.0.1 "$server_port"
		assert_equal "${output% *}" ETIMEDOUT
		[ "${output#* }" -ge 299000 ] || fail "$output"
		within $((${output#* } / 1000)) 320
	done
}

error_and_reset() { # recv|poll|edge|thread
	hung_server
	set='deadline=400ms' both "$server_port" "$1" <<-'END'
		begin, s, way = ms(), dial(), sys.argv[2]
		s.sendall(GET % b"hang")
		wait = 5000 if is_guarded else 600
		if way == "poll":
		    came = readable(s, wait)
		elif way == "edge":
		    e = select.epoll()
		    e.register(s, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
		    came = e.poll(wait / 1000)
		elif is_guarded and way == "thread":
		    got = []
		    t = threading.Thread(target=lambda: got.append(error_of(s.recv, 1)))
		    t.start()
		    t.join()
		    assert got == ["ETIMEDOUT"]
		    came = True
		else:
		    came = is_guarded or readable(s, wait)
		assert bool(came) == is_guarded
		if is_guarded:
		    assert error_of(s.recv, 1) == "ETIMEDOUT"
		    met(begin, 400)
		    assert error_of(s.recv, 1) == "ETIMEDOUT"  # sticky
	END
	wait_until file_has '^reset$' "$dir/server.out"
	assert_equal "$(server_said server reset)" 1
}
@test "a limit in a blocking recv: an error for the app, a reset for the peer (C5 C6)" { error_and_reset recv; }
@test "a limit in poll: an error for the app, a reset for the peer (C5 C6)" { error_and_reset poll; }
@test "a limit in edge-triggered epoll: an error for the app, a reset for the peer (C5 C6)" { error_and_reset edge; }
@test "a limit in another thread's recv: an error for the app, a reset for the peer (C5 C6)" { error_and_reset thread; }

@test "a subscription that was answered long ago is not cut by a deadline (C9)" {
	serves server <<-'END'
		def serve(c):
		    c.recv(100)
		    c.sendall(b"subscribed")
		    for i in range(2):
		        if select.select([c], [], [], 1.5)[0]:
		            say("gone")
		            return
		        c.sendall(b"news")
		    hold(c)
	END
	set='answer_timeout=300ms;stall_timeout=300ms;deadline=300ms;failure_threshold=1' both "$server_port" <<-'END'
		s = dial()
		s.sendall(b"subscribe")
		assert s.recv(100) == b"subscribed"
		for i in range(2):
		    assert s.recv(100) == b"news"
		s.close()
	END
	assert_equal "$(tally "$server_port")" "1 success"
}

@test "an answer that came in time and lies unread: the app is slow, and nothing has failed (C10)" {
	hung_server
	set='answer_timeout=300ms;failure_threshold=1' both "$server_port" <<-'END'
		s = dial()
		s.sendall(GET % b"")
		time.sleep(1)
		assert answer(s) == (200, b"ok\n")
	END
	assert_equal "$(tally "$server_port")" "1 success"
}

@test "after its end each write gets ETIMEDOUT and no SIGPIPE, and SO_ERROR stays (C11)" {
	hung_server
	shim_part
	export RESIL_SET='deadline=300ms'
	talks under "$server_port" <<-'END'
		pipes = []
		signal.signal(signal.SIGPIPE, lambda *a: pipes.append(a))
		s = dial()
		s.sendall(GET % b"hang")
		assert readable(s, 5000)
		for i in range(2):
		    assert so_error(s) == errno.ETIMEDOUT
		for f in (lambda: s.send(b"x"), lambda: os.write(s.fileno(), b"x"), lambda: s.recv(1), lambda: s.sendmsg([b"x"])) * 2:
		    assert error_of(f) == "ETIMEDOUT"
		assert so_error(s) == errno.ETIMEDOUT
		assert not pipes
	END
}

@test "a write on a connection that the peer has reset raises SIGPIPE as it does bare, limits or not (C11)" {
	serves server <<-'END'
		def serve(c):
		    head(c)
		    reset(c)
	END
	set='deadline=5s;answer_timeout=5s' both "$server_port" <<-'END'
		pipes = []
		signal.signal(signal.SIGPIPE, lambda *a: pipes.append(a))
		def count():  # a handler runs when a function is entered, at the latest
		    return len(pipes)
		for write in (lambda s: s.send(b"x")), (lambda s: os.write(s.fileno(), b"x")):
		    s = dial()
		    s.sendall(GET % b"")
		    assert readable(s, 5000)
		    assert error_of(s.recv, 1) == "ECONNRESET"
		    before = count()
		    assert error_of(write, s) == "EPIPE"
		    assert count() == before + 1
		    assert error_of(s.send, b"x", socket.MSG_NOSIGNAL) == "EPIPE"
		    assert count() == before + 1
	END
}

reused() { # fclose|inline connect|pair
	peer hung 127.0.0.1 hang
	peer good 127.0.0.1 answer
	bare "$bin/reuse" "$1" "$2" "$hung_port" "$good_port" 300
	shim_part
	export RESIL_SET='deadline=300ms'
	under "$bin/reuse" "$1" "$2" "$hung_port" "$good_port" 300
}
@test "a connection ended by fclose, its number another connection's: the old deadline touches nothing (C7)" { reused fclose connect; }
@test "a connection ended by fclose, its number a socketpair's: the old deadline touches nothing (C7)" { reused fclose pair; }
@test "a connection ended by a system call inline, its number another connection's: the old deadline touches nothing (C7)" { reused inline connect; }
@test "a connection ended by a system call inline, its number a socketpair's: the old deadline touches nothing (C7)" { reused inline pair; }

# ---- one socket, several descriptors, several processes ----

@test "written on one descriptor and read on its dup: one call, one success (A1)" {
	hung_server
	set='deadline=2s;failure_threshold=1' both "$server_port" <<-'END'
		s = dial()
		r = s.dup()
		for i in range(2):
		    s.sendall(GET % b"")
		    assert answer(r) == (200, b"ok\n")
		s.close()
		r.close()
	END
	assert_equal "$(tally "$server_port")" "2 success"
}

@test "a limit holds on a dup, also when the descriptor that asked is closed (C5 C6)" {
	hung_server
	set='deadline=400ms' both "$server_port" <<-'END'
		for closes in False, True:
		    begin, s = ms(), dial()
		    r = s.dup()
		    s.sendall(GET % b"hang")
		    if closes:
		        s.close()
		    if is_guarded:
		        assert error_of(r.recv, 1) == "ETIMEDOUT"
		        met(begin, 400)
		    else:
		        assert not readable(r, 500)
	END
	assert_equal "$(tally "$server_port")" "2 failure deadline 2"
}

@test "a fork's child that closes the parent's connection: neither a verdict nor an end (E4)" {
	hung_server
	set='abandon_after=1ms;deadline=5s;failure_threshold=1' both "$server_port" <<-'END'
		s = dial()
		s.sendall(GET % b"")
		assert readable(s, 5000)
		child = os.fork()
		if child == 0:
		    s.close()
		    os._exit(0)
		assert os.waitpid(child, 0)[1] == 0
		assert answer(s) == (200, b"ok\n")
		assert get(s) == (200, b"ok\n")
	END
	assert_equal "$(tally "$server_port")" "2 success"
}

# ---- the deadline header ----

@test "the deadline header is sent once with each request, lowered where the app's is larger, left where it is smaller" {
	serves server <<-'END'
		def serve(c):
		    while True:
		        h = head(c)
		        if not h:
		            return
		        ok(c, h)
	END
	set='deadline=5s;deadline_header=X-Deadline-Ms' both "$server_port" <<-'END'
		s = dial()
		for own, least, most in ("", 4000, 5000), ("X-Deadline-Ms: 99999\r\n", 4000, 5000), ("x-deadline-ms: 7\r\n", 7, 7):
		    request = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + own.encode() + b"\r\n"
		    assert s.send(request) == len(request)
		    status, seen = answer(s)
		    if not is_guarded:
		        assert seen == request
		        continue
		    values = [l.split(b":")[1] for l in seen.split(b"\r\n") if l.lower().startswith(b"x-deadline-ms:")]
		    assert len(values) == 1 and least <= int(values[0]) <= most, seen
		    assert [l for l in seen.split(b"\r\n") if b"eadline" not in l] == [l for l in request.split(b"\r\n") if b"eadline" not in l]
	END
	assert_equal "$(tally "$server_port")" "3 success"
}

@test "the deadline header and a body of 1 MB in partial sends: the app's octets and its own counts" {
	serves server <<-'END'
		import hashlib
		def serve(c):
		    h = head(c)
		    time.sleep(0.2)
		    body = b""
		    while len(body) < 1 << 20:
		        body += c.recv(4096)
		    ok(c, h + hashlib.sha256(body).hexdigest().encode())
	END
	set='deadline=20s;deadline_header=X-Deadline-Ms' both "$server_port" <<-'END'
		import hashlib
		for step in 1 << 30, 7:  # the whole at once; a head in crumbs, which is left as it is
		    s = socket.socket()
		    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
		    s.connect(("127.0.0.1", port))
		    s.setblocking(False)
		    body = os.urandom(1 << 20)
		    first = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
		    whole, at = memoryview(first + body), 0
		    while at < len(whole):
		        left = len(whole) - at
		        n = error_of(s.send, whole[at : at + (step if at < len(first) else left)])
		        if n == "EAGAIN":
		            select.select([], [s], [])
		            continue
		        assert 0 < n <= left
		        at += n
		    s.setblocking(True)
		    status, seen = answer(s)
		    head, digest = seen[:-64], seen[-64:].decode()
		    assert digest == hashlib.sha256(body).hexdigest()
		    lines = head.split(b"\r\n")
		    assert sum(l.startswith(b"X-Deadline-Ms: ") for l in lines) == (is_guarded and step > 7), (step, head)
		    assert b"\r\n".join(l for l in lines if not l.startswith(b"X-Deadline-Ms: ")) == first
		    s.close()
	END
	assert_equal "$(tally "$server_port")" "2 success"
}

# ---- what a server may take its time with ----

@test "a large request that a server takes in slowly is not cut: the answer is due when all of it is sent (C1 A14)" {
	serves server <<-'END'
		def serve(c):
		    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
		    h = head(c)
		    left = int(h.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
		    time.sleep(0.7)
		    while left > 0:
		        left -= len(c.recv(200000))
		        time.sleep(0.004)
		    ok(c)
	END
	set='answer_timeout=300ms' both "$server_port" <<-'END'
		body = bytes(8000000)
		for how in "at once", "in pieces", "by sendfile":
		    s = dial()
		    s.sendall(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + (body if how == "at once" else b""))
		    if how == "in pieces":
		        for i in range(0, len(body), 65536):
		            s.sendall(body[i:i + 65536])
		    elif how == "by sendfile":
		        with os.fdopen(os.memfd_create("body"), "w+b") as f:
		            f.write(body)
		            f.flush()
		            f.seek(0)
		            s.sendfile(f)
		    assert answer(s) == (200, b"ok\n"), how
		    s.close()
	END
	assert_equal "$(tally "$server_port")" "3 success"
}

@test "an answer that is not HTTP closes a half-open circuit, and a server that breaks off many pipelined requests opens it (A8 B7)" {
	serves server <<-'END'
		def serve(c):
		    if b"many" in c.recv(100000):
		        reset(c)
		    else:
		        c.sendall(b"ICY 200 OK\r\n\r\naudio")
	END
	shim_part
	run both "$server_port" <<<'pass'
	export RESIL_SET='failure_threshold=3;recovery_timeout=100ms;recovery_jitter=0%'
	set=$RESIL_SET both "$server_port" <<-'END'
		for i in range(3):
		    s = dial()
		    s.sendall(GET % b"many" * 17)
		    assert error_of(s.recv, 10) == "ECONNRESET"
		    s.close()
	END
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
	wait_until retry_is_over
	set=$RESIL_SET both "$server_port" <<-'END'
		s = dial()
		s.sendall(GET % b"")
		assert s.recv(100)
		s.close()
	END
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
}
retry_is_over() { [ "$(destination "127.0.0.1:$server_port" retry_after_ms)" = 0 ]; }

@test "a kept connection read through stdio: each request has a deadline of its own (A7 C9 C10)" {
	serves server <<-'END'
		def serve(c):
		    while head(c):
		        ok(c)
	END
	set='deadline=1s' both "$server_port" <<-'END'
		script = """exec 3<>/dev/tcp/127.0.0.1/%d
		for i in 1 2 3 4 5 6; do
		  printf 'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3 || exit 3
		  read -r -t 5 line <&3 || exit 4
		  for skip in 1 2 3; do read -r -t 5 rest <&3 || exit 5; done
		  sleep 0.4
		done
		echo fine""" % port
		said = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
		assert said.stdout == "fine\n", (said.returncode, said.stdout, said.stderr)
	END
	RESIL_GROUP='' assert_equal "$(resil status --json | python3 -c 'import json, sys; print(sum(d["calls"]["failure"] for g in json.load(sys.stdin)["groups"] for d in g["destinations"]))')" 0
}

@test "a reload reaches the next call on a kept connection (B18)" {
	serves server <<-'END'
		def serve(c):
		    while head(c):
		        time.sleep(0.5)
		        ok(c)
	END
	shim_part
	printf '[defaults]\nanswer_timeout = off\n' >"$dir/kept.conf"
	export RESIL_CONF=$dir/kept.conf resil=$build/resil
	both "$server_port" <<-'END'
		s = dial()
		assert get(s) == (200, b"ok\n")
		if is_guarded:
		    with open(os.environ["RESIL_CONF"], "w") as f:
		        f.write("[defaults]\nanswer_timeout = 200ms\n")
		    subprocess.run([os.environ["resil"], "reload"], check=True, env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"})
		    assert error_of(get, s) == "ETIMEDOUT"
	END
}
