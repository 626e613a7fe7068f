# A server that counts who is with it, for the suites of bulkheads. Load it after `lib/talk`.

# counts NAME: an HTTP server; says "begins PATH" and "ends PATH" for each request. Paths:
#   /in-20...   answered after so many ms       /gate-x...  when /open-x has been asked for
#   /reset      ends in a reset                 /hang       when the client goes away, never answered
#   /most       how many requests there were at once at the most, those of this line not among them
# What is no HTTP request is a connection that is held until the client ends it.
counts() {
	serves "$1" <<-'END'
		now = most = 0
		lock = threading.Lock()
		gates = {}
		def gate(name):
		    with lock:
		        return gates.setdefault(name, threading.Event())
		def serve(c):
		    while True:
		        h = head(c)
		        if not h:
		            return
		        path = h.split()[1][1:].decode()
		        what, _, value = path.partition("-")
		        if path == "most":
		            ok(c, b"%d\n" % most)
		        elif what == "open":
		            gate(value).set()
		            ok(c)
		        else:
		            work(c, path, what, value)
		def work(c, path, what, value):
		    global now, most
		    with lock:
		        now += 1
		        most = max(most, now)
		        say("begins", path)
		    if what == "in":
		        time.sleep(int(value) / 1000)
		    elif what == "gate":
		        gate(value).wait()
		    elif what == "hang":
		        hold(c)
		    with lock:
		        now -= 1
		        say("ends", path)
		    if what == "reset":
		        reset(c)
		    elif what != "hang":
		        ok(c)
	END
}
asked() { bare curl -sS "http://127.0.0.1:$1/$2"; }          # PORT PATH: by one that is not counted
begun() { [ "$(server_said "$1" "begins $2")" -ge "${3:-1}" ]; } # NAME PATH [TIMES]
# bulkhead PORT FIELD: in_use, limit, waiting, rejected.
bulkhead() { destination "127.0.0.1:$1" "bulkhead.$2"; }
bulkhead_is() { [ "$(bulkhead "$1" "$2" 2>/dev/null)" = "$3" ]; } # PORT FIELD VALUE
# holder NAME PORT GATE: a curl in the background that is answered when the gate opens; returns when it is with the server.
holder() {
	start "$1" under curl -sS -m $((TEST_TIMEOUT * 3)) "http://127.0.0.1:$2/gate-$3"
	wait_until begun server "gate-$3"
}
# waiter NAME PORT PATH: a blocking client in the background; returns when it waits, as the N-th.
waiter() {
	start "$1" under "$bin/callers" 1 1 "$2" "$3"
	wait_until bulkhead_is "$2" waiting "$4"
}
# two_services MAX_WAIT: the configuration of a critical one that may be waited for, at server, and an optional one, at other.
two_services() {
	cat >"$dir/resil.conf" <<-END
		[destination payments]
		match = 127.0.0.1:$server_port
		max_concurrent = 20
		max_wait = $1
		[destination recommendations]
		match = 127.0.0.1:$other_port
		max_concurrent = 5
	END
}
