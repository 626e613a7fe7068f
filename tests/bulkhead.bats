#!/usr/bin/env bats
# Bulkheads: so many calls at once over all processes of a group, and who waits for a place.
load lib/common
load lib/services
load lib/talk
load lib/http2
load lib/bulkhead

setup() {
	common_setup
	counts server
	export RESIL_GROUP=app
}
# dial's answer: the errno, and after how many ms.
dial() { under "$bin/dial" "$@" 127.0.0.1 "$server_port" | awk '{ print $1, int($2 / 1000) }'; }
# Each suite's part without the shim: two at once are with the server.
two_at_once() {
	for i in 1 2; do start "bare$i" bare curl -sS "http://127.0.0.1:$server_port/gate-bare"; done
	wait_until begun server gate-bare 2
	asked "$server_port" open-bare >/dev/null
	shim_part
}

@test "limit 1 and parallel curls: never two at the server, and a full bulkhead is no failure (CD7 D1)" {
	two_at_once
	export RESIL_SET='max_concurrent=1'
	holder first "$server_port" a
	for i in 1 2 3 4 5 6 7 8; do start "curl$i" under curl -sS "http://127.0.0.1:$server_port/in-0"; done
	for i in 1 2 3 4 5 6 7 8; do
		pid=curl${i}_pid
		status=0
		wait "${!pid}" || status=$?
		assert_equal "$status" 7
	done
	assert_equal "$(bulkhead "$server_port" rejected)" 8
	assert_equal "$(server_said server 'begins in-0')" 0
	asked "$server_port" open-a >/dev/null
	wait "$first_pid"
	run under curl -sS "http://127.0.0.1:$server_port/in-0"
	assert_output ok
	assert_equal "$(tally "$server_port")" "2 success 8 rejected"
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
	assert_equal "$(bulkhead "$server_port" in_use)" 0
	run resil events --json
	assert_output --regexp '"type":"rejected","destination":"127.0.0.1:[0-9]+","reason":"bulkhead full","count":1\}'
}

@test "a non-blocking connect on a full bulkhead returns at once, a blocking one waits for max_wait (CD4 D2)" {
	shim_part
	export RESIL_SET='max_concurrent=1;max_wait=700ms;reject_errno=EHOSTUNREACH'
	holder first "$server_port" a
	read -r error took <<<"$(dial -a)"
	assert_equal "$error" EHOSTUNREACH
	within "$took" 100
	read -r error took <<<"$(dial)"
	assert_equal "$error" EHOSTUNREACH
	[ "$took" -ge 700 ]
	within "$took" 800
	asked "$server_port" open-a >/dev/null
}

@test "eight waiters time out on a full bulkhead, and its capacity is whole again (CD3 D2)" {
	shim_part
	export RESIL_SET='max_concurrent=2;max_wait=400ms'
	holder first "$server_port" a
	holder second "$server_port" b
	for i in 1 2 3 4; do start "two$i" under "$bin/callers" 2 1 "$server_port" in-0; done
	for i in 1 2 3 4; do
		pid=two${i}_pid
		wait "${!pid}"
		assert_equal "$(cut -d' ' -f1-4 "$dir/two$i.out")" "ok 0 refused 2"
	done
	assert_equal "$(bulkhead "$server_port" waiting)" 0
	assert_equal "$(bulkhead "$server_port" rejected)" 8
	for gate in a b; do asked "$server_port" open-$gate >/dev/null; done
	wait "$first_pid" "$second_pid"
	assert_equal "$(bulkhead "$server_port" in_use)" 0
	holder third "$server_port" c
	holder fourth "$server_port" d
	assert_equal "$(bulkhead "$server_port" in_use)" 2
	for gate in c d; do asked "$server_port" open-$gate >/dev/null; done
}

@test "waiters of several processes are served in the order of their arrival, and newcomers pass them by (D2)" {
	shim_part
	export RESIL_SET='max_concurrent=1;max_wait=20s'
	holder first "$server_port" a
	for i in 1 2 3 4 5; do waiter "waiter$i" "$server_port" "in-$i" "$i"; done
	assert_equal "$(resil status | cut -f8)" "1/1"
	run resil why
	assert_output --partial "is closed, and its one place is taken: resil rejects further calls with ECONNREFUSED, or lets them wait"
	assert_output --partial "Bulkhead: 1 of 1 places taken, 5 wait for one, 0 rejected for want of one; max_concurrent = 1 (RESIL_SET), max_wait = 20s (RESIL_SET)"
	resil which "127.0.0.1:$server_port" | grep -P '^places	1 of 1 taken	app$'
	read -r error _ <<<"$(dial -a)"
	assert_equal "$error" ECONNREFUSED
	asked "$server_port" open-a >/dev/null
	for i in 1 2 3 4 5; do
		pid=waiter${i}_pid
		wait "${!pid}"
		assert_equal "$(cut -d' ' -f1,2 "$dir/waiter$i.out")" "ok 1"
	done
	assert_equal "$(sed -n 's/^begins in-//p' "$dir/server.out" | xargs)" "1 2 3 4 5"
	assert_equal "$(asked "$server_port" most)" 1
	resil metrics | grep -E '^resil_bulkhead_wait_seconds_count\{.*\} 5$'
	resil metrics | grep -E '^resil_bulkhead_limit\{.*\} 1$'
	resil metrics | grep -E '^resil_calls_total\{.*outcome="bulkhead_full"\} 1$'
}

@test "kill -9 of a waiter leaves no trace: the next is served (CD8 D2)" {
	shim_part
	export RESIL_SET='max_concurrent=1;max_wait=20s'
	holder first "$server_port" a
	waiter killed "$server_port" in-1 1
	waiter stopped "$server_port" in-2 2
	waiter next "$server_port" in-3 3
	kill -9 "$killed_pid"
	kill -STOP "$stopped_pid"
	before=$(now_ms)
	asked "$server_port" open-a >/dev/null
	wait "$next_pid"
	[ $(($(now_ms) - before)) -lt 5000 ]
	assert_equal "$(cut -d' ' -f1,2 "$dir/next.out")" "ok 1"
	assert_equal "$(server_said server 'begins in-[12]')" 0
	kill -CONT "$stopped_pid"
	wait "$stopped_pid"
	assert_equal "$(cut -d' ' -f1,2 "$dir/stopped.out")" "ok 1"
}

@test "half of the clients are killed: the capacity is whole within a second (D1)" {
	shim_part
	export RESIL_SET='max_concurrent=6;max_wait=20s'
	for i in 1 2 3 4 5 6; do start "held$i" under curl -sS "http://127.0.0.1:$server_port/hang"; done
	wait_until begun server hang 6
	for i in 1 2 3; do start "waits$i" under "$bin/callers" 1 1 "$server_port" in-0; done
	wait_until bulkhead_is "$server_port" waiting 3
	before=$(now_ms)
	kill -9 "$held1_pid" "$held2_pid" "$held3_pid"
	for i in 1 2 3; do
		pid=waits${i}_pid
		wait "${!pid}"
		assert_equal "$(cut -d' ' -f1,2 "$dir/waits$i.out")" "ok 1"
	done
	# A second where nothing else runs (the unit test has it by the clock); they would have waited for twenty.
	[ $(($(now_ms) - before)) -lt 5000 ]
	assert_equal "$(bulkhead "$server_port" in_use)" 3
	resil metrics | grep -E '^resil_bulkhead_reclaimed_total\{.*\} 3$'
}

@test "half-open while the bulkhead is full: the probe is given back, and the next call probes (CB13 B7)" {
	shim_part
	export RESIL_SET='failure_threshold=1;max_concurrent=2;recovery_timeout=300ms;recovery_jitter=0%'
	at=127.0.0.1:$server_port
	holder first "$server_port" a
	run under curl -sS "http://$at/reset"
	assert_equal "$(destination "$at" state)" open
	due() { [ "$(destination "$at" retry_after_ms)" = 0 ]; }
	wait_until due
	export RESIL_SET="$RESIL_SET;max_concurrent=1"
	for i in 1 2; do
		run under curl -sS "http://$at/in-0"
		assert_failure 7
		assert_equal "$(destination "$at" state)" half_open
		assert_equal "$(destination "$at" probes.in_flight)" 0
		assert_equal "$(bulkhead "$server_port" rejected)" $i
	done
	asked "$server_port" open-a >/dev/null
	wait "$first_pid"
	run under curl -sS "http://$at/in-0"
	assert_output ok
	assert_equal "$(destination "$at" state)" closed
}

@test "an idle kept HTTP connection holds no place; its next request asks for one, and waits where it blocks (D1 D2 B20)" {
	both "$server_port" <<-'END'
		s, t = dial(), dial()
		assert get(s, "in-0") == (200, b"ok\n") and get(t, "in-0") == (200, b"ok\n")
	END
	export RESIL_SET='max_concurrent=1;max_wait=20s'
	talks under "$server_port" <<-'END'
		def in_use():
		    import json
		    return json.loads(resil("status", "--json"))["groups"][0]["destinations"][0]["bulkhead"]["in_use"]
		s = dial()
		assert in_use() == 1
		assert get(s, "in-0") == (200, b"ok\n")
		assert in_use() == 0
		t = dial()
		t.sendall(GET % b"gate-t")
		assert in_use() == 1
		# Blocking: it waits until the other is answered.
		def open_gate():
		    while b'"waiting":1' not in resil("status", "--json").encode():
		        time.sleep(0.02)
		    subprocess.run(["curl", "-sS", "http://127.0.0.1:%d/open-t" % port], env={}, stdout=subprocess.DEVNULL)
		    answer(t)  # its end is what gives the place back
		thread = threading.Thread(target=open_gate)
		thread.start()
		assert get(s, "in-0") == (200, b"ok\n")
		thread.join()
		# Non-blocking: at once, as if the server had dropped it.
		t.sendall(GET % b"gate-u")
		s.setblocking(False)
		begin = ms()
		assert error_of(s.send, GET % b"in-0") == "ECONNRESET"
		met(begin, 1)
		subprocess.run(["curl", "-sS", "http://127.0.0.1:%d/open-u" % port], env={}, stdout=subprocess.DEVNULL)
		answer(t)
		# Sent together: one place until both are answered.
		t.sendall(GET % b"in-0" + GET % b"gate-v")
		assert answer(t) == (200, b"ok\n")
		assert in_use() == 1
		subprocess.run(["curl", "-sS", "http://127.0.0.1:%d/open-v" % port], env={}, stdout=subprocess.DEVNULL)
		assert answer(t) == (200, b"ok\n")
		assert in_use() == 0
	END
}

@test "what is not framed holds its place until the last of its numbers is closed; dup, fork and exec (D1)" {
	shim_part
	export RESIL_SET='max_concurrent=3'
	talks under "$server_port" <<-'END'
		def in_use():
		    import json
		    return json.loads(resil("status", "--json"))["groups"][0]["destinations"][0]["bulkhead"]["in_use"]
		s = dial()
		copy = s.dup()
		s.close()
		assert in_use() == 1
		copy.close()
		assert in_use() == 0
		# A fork neither doubles nor drops it.
		s = dial()
		r, w = os.pipe()
		pid = os.fork()
		if pid == 0:
		    s.close()
		    t = dial()  # its own
		    os.write(w, b"x")
		    signal.pause()
		os.read(r, 1)
		assert in_use() == 2, in_use()
		os.kill(pid, signal.SIGKILL)
		os.waitpid(pid, 0)
		begin = ms()
		while in_use() != 1:  # looked at no more than each tenth of a second
		    assert ms() < begin + 1000 + int(os.environ["TEST_ALLOWANCE_MS"])
		s.close()
		assert in_use() == 0
		# One that fails, and one that is let go.
		listener = socket.socket()
		listener.bind(("127.0.0.1", 0))
		s = socket.socket()
		s.connect(("127.0.0.1", port))
		assert in_use() == 1
		s.shutdown(socket.SHUT_RDWR)
		assert in_use() == 0
		s.close()
		s = dial()
		os.set_inheritable(s.fileno(), True)
		assert in_use() == 1
		pid = os.fork()
		if pid == 0:
		    t = dial()
		    assert in_use() == 2
		    os.execv("/bin/sh", ["sh", "-c", "kill -STOP $$"])
		os.waitpid(pid, os.WUNTRACED)
		assert in_use() == 1, in_use()
		os.kill(pid, signal.SIGKILL)
	END
}

@test "a wait ends with the call's deadline, the socket's own limit, and as a connect does by a signal (C2 C3 D2 E1)" {
	shim_part
	export RESIL_SET='max_concurrent=1;max_wait=20s;deadline=300ms'
	RESIL_SET='max_concurrent=1' holder first "$server_port" a
	talks under "$server_port" <<-'END'
		begin = ms()
		assert error_of(dial) == "ETIMEDOUT"
		met(begin, 300)
		s = socket.socket()
		s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("qq", 0, 150000))
		begin = ms()
		assert error_of(s.connect, ("127.0.0.1", port)) == "ECONNREFUSED"
		met(begin, 150)
	END
	export RESIL_SET='max_concurrent=1;max_wait=400ms'
	for case in eintr restart; do
		run under "$bin/calls" $case "$server_port"
		assert_equal "$output" "connect $([ $case = eintr ] && echo EINTR || echo ECONNREFUSED)"
	done
	# Python waits for the outcome then: it is told one.
	talks under "$server_port" <<-'END'
		signal.signal(signal.SIGALRM, lambda *_: None)
		s = socket.socket()
		signal.setitimer(signal.ITIMER_REAL, 0.03)
		assert error_of(s.connect, ("127.0.0.1", port)) == "ETIMEDOUT"
		assert error_of(s.send, b"x") == "ETIMEDOUT"
		assert error_of(s.connect, ("127.0.0.1", port)) == "ECONNREFUSED"
		s.close()
	END
	assert_equal "$(bulkhead "$server_port" waiting)" 0
	asked "$server_port" open-a >/dev/null
}

@test "breaker = off keeps the limit, observe only counts, and a reload without one shows none (B18)" {
	shim_part
	at=127.0.0.1:$server_port
	RESIL_SET='max_concurrent=1;breaker=off' holder first "$server_port" a
	RESIL_SET='max_concurrent=1;breaker=off' run under curl -sS "http://$at/in-0"
	assert_failure 7
	RESIL_SET='max_concurrent=1;breaker=observe' run under curl -sS "http://$at/in-0"
	assert_output ok
	assert_equal "$(bulkhead "$server_port" rejected)" 1
	RESIL_SET='' run under curl -sS "http://$at/in-0"
	assert_output ok
	assert_equal "$(bulkhead "$server_port" limit)" null
	# Never trips, whatever happens.
	asked "$server_port" open-a >/dev/null
	wait "$first_pid"
	for i in 1 2 3 4 5 6; do RESIL_SET='max_concurrent=1;breaker=off;failure_threshold=1' run under curl -sS "http://$at/reset"; done
	assert_equal "$(server_said server 'begins reset')" 6
	assert_equal "$(destination "$at" state)" closed
}

@test "payments wait in order, recommendations never queue: a hang of the one leaves the other alone (D1 D2)" {
	counts other
	shim_part
	two_services 20s
	export RESIL_CONF=$dir/resil.conf
	# The optional one hangs: five are stuck in it, everybody else is told so at once.
	for i in 1 2 3 4 5; do start "stuck$i" under curl -sS "http://127.0.0.1:$other_port/hang"; done
	wait_until begun other hang 5
	run under "$bin/callers" 8 4 "$other_port" in-0
	assert_output --partial "ok 0 refused 32 other 0"
	# The critical one meanwhile: two hundred at once, in eight processes.
	for i in 1 2 3 4 5 6 7 8; do start "crowd$i" under "$bin/callers" 25 1 "$server_port" in-20; done
	for i in 1 2 3 4 5 6 7 8; do
		pid=crowd${i}_pid
		wait "${!pid}"
		assert_equal "$(cut -d' ' -f1-6 "$dir/crowd$i.out")" "ok 25 refused 0 other 0"
	done
	most=$(asked "$server_port" most)
	[ "$most" -le 20 ] && [ "$most" -ge 10 ] || fail "$most at once"
	assert_equal "$(asked "$other_port" most)" 5
	assert_equal "$(bulkhead "$server_port" in_use)" 0
	assert_equal "$(bulkhead "$other_port" in_use)" 5
}

@test "each stream of an HTTP/2 connection has a place while it is open; one that finds none goes without (D1 A11 B20)" {
	serves_http2 http2 <<-'END'
		kept = []
		def asked(server, sid, path):
		    if path == "/all":
		        for one in kept:
		            server.answer(one)
		        kept.clear()
		        server.answer(sid)
		    else:
		        kept.append(sid)
	END
	server_port=$http2_port
	set='max_concurrent=3' both_http2 "$http2_port" <<-'END'
		import json
		def in_use():
		    return json.loads(resil("status", "--json"))["groups"][0]["destinations"][-1]["bulkhead"]["in_use"] if is_guarded else None
		c = Client()
		sids = [c.ask("/keep") for _ in range(2)]
		assert in_use() in (None, 2), in_use()
		sids += [c.ask("/keep") for _ in range(2)]
		assert in_use() in (None, 3), in_use()
		if is_guarded:
		    assert error_of(dial) == "ECONNREFUSED"
		sids.append(c.ask("/all"))
		c.until(*sids)
		assert [c.status[sid] for sid in sids] == [200] * 5
		assert in_use() in (None, 0), in_use()
		c.s.close()
	END
}
