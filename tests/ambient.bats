#!/usr/bin/env bats
# The ambient deadline: what a tree of processes has left bounds whatever each of them does on the network (C4).
load lib/common
load lib/services
load lib/talk

hung_server() {
	serves server <<-'END'
		def serve(c):
		    h = head(c)
		    if b"/late" in h:
		        time.sleep(1)
		        ok(c)
		    else:
		        hold(c)
	END
}
# within_deadline LIMIT CODE WORDS...: python under `resil run --deadline LIMIT`; left() is what the tree has left, in ms.
within_deadline() {
	local limit=$1 code=$2 prelude=$client_prelude"
def left():
    return int(os.environ['RESIL_DEADLINE_AT']) // 1000000 - ms()
def passed():  # now, and not long ago
    since = -left()
    if since > 20 + int(os.environ['TEST_ALLOWANCE_MS']):
        late()
    assert -1 <= since <= 20 + int(os.environ['TEST_ALLOWANCE_MS']), since
if left() < 200:
    late()
    sys.exit('the start has taken nearly all of it')
"
	shift 2
	resil run --deadline "$limit" -- env PRELUDE="$prelude" TEST_ALLOWANCE_MS="$TEST_ALLOWANCE_MS" python3 -c "$prelude
$code" "$@" 2>&1 || fail "it ended with $?"
}

@test "run --deadline bounds a connect (C4 C3)" {
	peer server 127.0.0.1 full
	shim_part
	within_deadline 1500ms '
assert error_of(dial) == "ETIMEDOUT"
passed()' "$server_port"
}

@test "run --deadline bounds a request to a hung server (C4)" {
	hung_server
	shim_part
	within_deadline 1500ms '
s = dial()
s.sendall(GET % b"hang")
assert error_of(s.recv, 1) == "ETIMEDOUT"
passed()' "$server_port"
	wait_until file_has '^reset$' "$dir/server.out"
}

@test "a deadline that has passed: no look-up, no SYN, EAI_FAIL and ETIMEDOUT (C4)" {
	peer server 127.0.0.1 answer
	shim_part
	RESIL_DEADLINE_AT=1 traced "$dir/trace" under "$bin/dial" 127.0.0.1 "$server_port" || true
	RESIL_DEADLINE_AT=1 traced "$dir/trace2" under python3 -c "$client_prelude"'
try:
    socket.getaddrinfo("localhost", port)
    assert 0
except socket.gaierror as e:
    assert e.errno == socket.EAI_FAIL, e
assert error_of(dial) == "ETIMEDOUT"
' "$server_port" || fail "$(cat "$dir/trace2")"
	assert_equal "$(connects_to "$server_port" "$dir/trace")" 0
	assert_equal "$(connects_to "$server_port" "$dir/trace2")" 0
	assert_equal "$(peer_accepted server)" 0
}

@test "a nested deadline only shortens (C4)" {
	hung_server
	shim_part
	code='
s = dial()
s.sendall(GET % b"hang")
assert error_of(s.recv, 1) == "ETIMEDOUT"
took = ms() - int(sys.argv[2])
assert took >= 1499, took'
	RESIL_DEADLINE=1500ms within_deadline 1h "$code
passed()" "$server_port" "$(/usr/bin/python3 -c 'import time; print(time.monotonic_ns() // 1000000)')"
	RESIL_DEADLINE=1h within_deadline 1500ms "$code
passed()" "$server_port" "$(/usr/bin/python3 -c 'import time; print(time.monotonic_ns() // 1000000)')"
}

@test "a deadline holds across fork and exec (C4)" {
	hung_server
	shim_part
	within_deadline 1500ms '
ask = """
s = dial()
s.sendall(GET % b"hang")
assert error_of(s.recv, 1) == "ETIMEDOUT"
"""
child = os.fork()
if child == 0:
    exec(ask)
    passed()
    os._exit(0)
other = subprocess.run([sys.executable, "-c", os.environ["PRELUDE"] + ask, sys.argv[1]])
assert other.returncode == 0
passed()
assert os.waitpid(child, 0)[1] == 0' "$server_port"
}

@test "setsid drops the deadline: a server started under it outlives it (C4)" {
	hung_server
	shim_part
	within_deadline 500ms '
child = os.fork()
if child == 0:
    os.setsid()
    assert get(dial(), "late") == (200, b"ok\n")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0' "$server_port"
}

@test "what is left under nested deadlines: 2.0, 0.5, 0.3 by its own limit, and 7 outside (C2 C4)" {
	peer server 127.0.0.1 full
	shim_part
	waits() { # NAME CONNECT_TIMEOUT COMMAND...
		local name=$1
		RESIL_SET="connect_timeout=$2;breaker=observe" start "$name" bare "${@:3}" "$bin/dial" 127.0.0.1 "$server_port"
	}
	waits seven 7s "$build/resil" run --
	waits two 10s "$build/resil" run --deadline 2s --
	waits half 10s "$build/resil" run --deadline 2s -- "$build/resil" run --deadline 500ms --
	waits own 300ms "$build/resil" run --deadline 2s -- "$build/resil" run --deadline 500ms --
	for each in own:300 half:500 two:2000 seven:7000; do
		name=${each%:*} ms=${each#*:}
		wait_until file_has ETIMEDOUT "$dir/$name.out"
		took=$(($(cut -d' ' -f2 "$dir/$name.out") / 1000))
		within "$took" $((ms + 20))
		# The start of the program is a part of its deadline, not of what its connect has.
		[ "$took" -ge $((ms - 150)) ] || too_late "$name: $took ms"
	done
}
