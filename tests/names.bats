#!/usr/bin/env bats
# Names: look-ups with a limit (D7). The name server is the test's own.
load lib/common
load lib/dns
load lib/clients

@test "the server and the programs, without the shim" {
	dns_start
	zone one.test answer 127.0.0.1
	zone both.test answer 127.0.0.1 ::1
	zone broken.test servfail
	zone cut.test truncated 127.0.0.1 127.0.0.2
	told bare "$bin/lookup" getaddrinfo4 one.test
	assert_output 127.0.0.1
	told bare "$bin/lookup" getaddrinfo6 both.test
	assert_output ::1
	told bare "$bin/lookup" getaddrinfo gone.test
	assert_output EAI_NONAME
	told bare "$bin/lookup" getaddrinfo broken.test
	assert_output EAI_AGAIN
	told bare "$bin/lookup" gethostbyname cut.test
	assert_output cut.test,127.0.0.1,127.0.0.2
}

@test "a look-up ends at resolve_timeout, each form with its own word for it (D7 CD2)" {
	dns_start
	zone silent.test never
	shim_part
	export RESIL_SET='resolve_timeout=300ms'
	for how in getaddrinfo getaddrinfo4 getaddrinfo6; do
		told under "$bin/lookup" "$how" silent.test
		assert_output EAI_AGAIN
		[ "$took" -ge 299 ] || fail "$how: $took ms"
		within "$took" 330
	done
	for how in gethostbyname gethostbyname2 gethostbyname_r gethostbyname2_r; do
		told under "$bin/lookup" "$how" silent.test
		assert_output TRY_AGAIN
		[ "$took" -ge 299 ] || fail "$how: $took ms"
		within "$took" 330
	done
	zone 9.2.0.192.in-addr.arpa never
	for how in gethostbyaddr gethostbyaddr_r; do
		told under "$bin/lookup" "$how" 192.0.2.9
		assert_output TRY_AGAIN
		within "$took" 330
	done
	run resil events --json
	assert_line --partial '"type":"deadline","destination":"dns:silent.test","phase":"resolve","limit_ms":300'
}

@test "with a limit and a server that answers, each form answers as without us (E1)" {
	dns_start
	zone many.test answer 127.0.0.1 127.0.0.2 127.0.0.3
	zone thirty.test truncated $(printf '127.0.1.%d ' {1..30})
	zone 9.2.0.192.in-addr.arpa answer nine.test
	for how in getaddrinfo gethostbyname gethostbyname_r; do
		as_without_us "$how" many.test thirty.test gone.test localhost MANY.test.
	done
	for how in gethostbyaddr gethostbyaddr_r; do
		as_without_us "$how" 192.0.2.9
	done
}

@test "a deadline bounds the look-up alone too, and says EAI_FAIL (C3 D7 CD2)" {
	dns_start
	zone silent.test never
	shim_part
	RESIL_SET='deadline=300ms' told under "$bin/lookup" getaddrinfo silent.test
	assert_output EAI_FAIL
	within "$took" 330
	RESIL_SET='deadline=300ms;resolve_timeout=5s' told under "$bin/lookup" gethostbyname silent.test
	assert_output NO_RECOVERY
	within "$took" 330
	told resil run --deadline 400ms -- "$bin/lookup" getaddrinfo silent.test
	assert_output EAI_FAIL
	within "$took" 430
}

@test "the limit is that of the name's section, whatever the port where none is named" {
	dns_start
	zone a.silent.test never
	zone b.silent.test never
	shim_part
	cat >"$dir/conf" <<-'END'
		[defaults]
		resolve_timeout = 800ms
		[destination a]
		match = a.silent.test:80
		resolve_timeout = 200ms
		[destination b]
		match = *.Silent.test:443
		resolve_timeout = 400ms
	END
	export RESIL_CONF=$dir/conf
	expect() { # MS NAME [SERVICE]
		told under "$bin/lookup" getaddrinfo "${@:2}"
		assert_output EAI_AGAIN
		[ "$took" -ge $(($1 - 1)) ] || fail "${*:2}: $took ms"
		within "$took" $(($1 + 30))
	}
	expect 200 a.silent.test
	expect 200 A.SILENT.test. 80
	expect 400 a.silent.test 443
	expect 800 a.silent.test 25
	expect 400 b.silent.test
}

@test "no limit, /etc/hosts and literals: no thread (E5 D7)" {
	dns_start
	zone one.test answer 127.0.0.1
	shim_part
	threads() { strace -f -qq -e trace=clone,clone3 -e signal=none -E LD_PRELOAD="$shim" -o "$dir/trace" "$bin/lookup" "$@" >/dev/null && wc -l <"$dir/trace"; }
	via_threads() { "${via[@]}" env "RESIL_SET=$1" bash -c "$(declare -f threads); shim=$shim bin=$bin dir=$dir; threads ${*:2}"; }
	assert_equal "$(via_threads '' getaddrinfo4 one.test)" 0
	assert_equal "$(via_threads 'resolve_timeout=2s' getaddrinfo4 localhost)" 0
	assert_equal "$(via_threads 'resolve_timeout=2s' gethostbyname hosts-only.test)" 0
	assert_equal "$(via_threads 'resolve_timeout=2s' getaddrinfo 127.0.0.1)" 0
	assert_equal "$(via_threads 'resolve_timeout=2s' getaddrinfo4 one.test)" 1
}

@test "the end of the process does not wait for a look-up (D7 CD2)" {
	dns_start
	zone silent.test never
	shim_part
	export RESIL_SET='resolve_timeout=100ms'
	begin=$(now_ms)
	told under "$bin/lookup" getaddrinfo silent.test
	assert_output EAI_AGAIN
	# libc alone would be at it for 5 s and more.
	within $(($(now_ms) - begin)) 1500
}

@test "threads look up a silent name while the process forks: nothing hangs, nothing is left (D7 E4 E5)" {
	dns_start
	zone silent.test never
	zone good.test late-20 127.0.0.1
	peer server 127.0.0.1 refuse
	shim_part
	printf '[resil]\ncontrol = off\n[defaults]\nbreaker = observe\nresolve_timeout = 150ms\n' >"$dir/conf"
	export RESIL_CONF=$dir/conf
	run under "$bin/lookups" 30 3 silent.test
	assert_success
	assert_output --regexp '^ok 90 [0-9]+$'
	run under "$bin/lookups" 30 10 good.test "$server_port"
	assert_success
	assert_output --regexp '^ok 300 [0-9]+$'
}

@test "an answer that comes too late is freed, and so is the rest (D7)" {
	dns_start
	zone late.test late-400 127.0.0.1
	shim_part
	export RESIL_SET='resolve_timeout=150ms;breaker=observe'
	run via_valgrind "$bin/lookups" 4 2 late.test
	assert_success
	assert_output --regexp 'no leaks are possible|definitely lost: 0 bytes'
	assert_output --regexp 'ok 8 [0-9]+'
}
# A fork's child has the memory of look-ups whose threads it has not: no leak of anybody's, so leaks are read from what the parent says.
via_valgrind() {
	under valgrind --leak-check=full --child-silent-after-fork=yes --errors-for-leak-kinds=none --error-exitcode=9 "$@" 2>&1
}

@test "a thread with resolver settings of its own resolves in place (D7)" {
	dns_start
	zone slow.test late-400 127.0.0.1
	cat >"$dir/own.c" <<-'END'
		#include <netdb.h>
		#include <netinet/in.h>
		#include <resolv.h>
		#include <stdio.h>
		#include <string.h>
		int main(int argc, char **argv)
		{
			struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list;
			if (argc > 2) {
				res_init();
				if (strcmp(argv[2], "own") == 0)
					_res.options |= RES_USEVC;
			}
			return !printf("%d\n", getaddrinfo(argv[1], "1", &hints, &list));
		}
	END
	gcc -o "$dir/own" "$dir/own.c" -lresolv
	run bare "$dir/own" slow.test own
	assert_output 0
	file_has '^query slow.test A tcp' "$dir/dns.out"
	shim_part
	export RESIL_SET='resolve_timeout=150ms'
	run under "$dir/own" slow.test own
	assert_output 0
	run under "$dir/own" slow.test same
	assert_output -- -3
	run under "$dir/own" slow.test
	assert_output -- -3
}

# Each with its own words for a resolver that does not answer in time.
resolves() { # CLIENT WORDS
	local begin
	client "$1" silent.test 80
	begin=$(now_ms)
	run under "${cmd[@]}"
	assert_failure
	assert_output --regexp "$2"
	within $(($(now_ms) - begin)) 4500
}

@test "programs as they are end in time when the resolver is silent (D7 CD2)" {
	dns_start
	zone silent.test never
	shim_part
	export RESIL_SET='resolve_timeout=500ms'
	resolves curl 'Could not resolve host'
	resolves wget 'unable to resolve host address'
	resolves psql 'Temporary failure in name resolution'
}

@test "look-ups have a circuit of their own, dns:NAME; while it is open they fail at once with EAI_FAIL (D8)" {
	dns_start
	zone flaky.test never
	shim_part
	export RESIL_SET='resolve_timeout=200ms;trip_on=dns refused;failure_threshold=2;recovery_timeout=30s'
	for i in 1 2; do
		told under "$bin/lookup" getaddrinfo flaky.test
		assert_output EAI_AGAIN
	done
	assert_equal "$(destination dns:flaky.test state)" open
	assert_equal "$(failed_by dns:flaky.test dns)" 2
	asked=$(queries flaky.test)
	zone flaky.test answer 127.0.0.1
	told under "$bin/lookup" getaddrinfo FLAKY.test.
	assert_output EAI_FAIL
	within "$took" 30
	told under "$bin/lookup" gethostbyname flaky.test
	assert_output NO_RECOVERY
	assert_equal "$(queries flaky.test)" "$asked"
	assert_equal "$(destination dns:flaky.test calls.rejected)" 2
	run resil metrics
	assert_line --regexp '^resil_deadline_exceeded_total\{.*destination="dns:flaky.test",phase="resolve"\} 2$'
	# The probe.
	resil reset dns:flaky.test
	told under "$bin/lookup" getaddrinfo4 flaky.test
	assert_output 127.0.0.1
	assert_equal "$(destination dns:flaky.test state)" closed
}

@test "no such name is an answer; SERVFAIL and silence are not; addresses and /etc/hosts have no circuit (D8)" {
	dns_start "options timeout:1 attempts:1"
	zone broken.test servfail
	zone nothing.test answer
	shim_part
	export RESIL_SET='trip_on=dns;failure_threshold=1;recovery_timeout=30s'
	for i in 1 2; do
		told under "$bin/lookup" getaddrinfo gone.test
		assert_output EAI_NONAME
		told under "$bin/lookup" gethostbyname nothing.test
		assert_output NO_DATA
	done
	assert_equal "$(destination dns:gone.test calls.success)" 2
	assert_equal "$(destination dns:nothing.test state)" closed
	told under "$bin/lookup" getaddrinfo broken.test
	assert_output EAI_AGAIN
	told under "$bin/lookup" getaddrinfo broken.test
	assert_output EAI_FAIL
	for name in localhost hosts-only.test 127.0.0.1; do
		run under "$bin/lookup" getaddrinfo "$name"
		assert_success
	done
	run resil status
	refute_output --regexp 'localhost|hosts-only|127.0.0.1'
}

@test "dns that is not in trip_on opens nothing, and with no key set a look-up leaves nothing behind (D8 E5)" {
	dns_start
	zone silent.test never
	zone one.test answer 127.0.0.1
	shim_part
	export RESIL_SET='resolve_timeout=100ms;failure_threshold=1'
	for i in 1 2; do
		told under "$bin/lookup" getaddrinfo silent.test
		assert_output EAI_AGAIN
	done
	assert_equal "$(destination dns:silent.test state)" closed
	rm -rf "$RESIL_STATE_DIR"
	RESIL_SET='' under "$bin/lookup" getaddrinfo4 one.test
	[ ! -e "$RESIL_STATE_DIR" ] || fail "$(ls -lR "$RESIL_STATE_DIR")"
}

@test "stale_dns: the last good answer, in a new process too, when the resolver fails; told in the events (D9)" {
	dns_start
	zone app.test answer 127.0.0.1 127.0.0.2 ::1
	zone other.test answer 127.0.0.3
	shim_part
	export RESIL_SET='resolve_timeout=200ms;stale_dns=1h;trip_on=dns;failure_threshold=2;recovery_timeout=30s'
	told under "$bin/lookup" getaddrinfo app.test
	assert_success
	fresh=$output
	zone app.test never
	told under "$bin/lookup" getaddrinfo app.test
	assert_output "$fresh"
	[ "$took" -ge 199 ] || fail "$took ms"
	told under "$bin/lookup" getaddrinfo6 app.test 80
	assert_output ::1
	# Open by now: at once, and still the last good answer.
	assert_equal "$(destination dns:app.test state)" open
	for how in gethostbyname gethostbyname_r gethostbyname2; do
		told under "$bin/lookup" "$how" app.test
		assert_output app.test,127.0.0.1,127.0.0.2
		within "$took" 30
	done
	told under "$bin/lookup" getaddrinfo other.test
	assert_output 127.0.0.3
	assert_equal "$(destination dns:app.test fallbacks.stale_dns)" 5
	run resil events --json
	assert_line --regexp '"type":"fallback","destination":"dns:app.test","reason":"stale_dns: an answer of [0-9]+m?s ago"'
	run resil metrics
	assert_line --regexp '^resil_fallback_total\{.*destination="dns:app.test",source="stale_dns"\} 5$'
}

@test "stale_dns: never older than that, and not where the resolver says no (D9)" {
	dns_start
	zone app.test answer 127.0.0.1
	shim_part
	export RESIL_SET='resolve_timeout=100ms;stale_dns=1500ms'
	told under "$bin/lookup" getaddrinfo app.test
	assert_output 127.0.0.1
	answered=$(now_ms)
	zone app.test nxdomain
	told under "$bin/lookup" getaddrinfo app.test
	assert_output EAI_NONAME
	zone app.test never
	is_refused() {
		asked=$(now_ms)
		told under "$bin/lookup" getaddrinfo app.test
		[ "$output" = EAI_AGAIN ] || { [ "$output" = 127.0.0.1 ] && [ $((asked - answered)) -lt 1500 ] && return 1; }
	}
	wait_until is_refused
	assert_output EAI_AGAIN
	[ $(($(now_ms) - answered)) -ge 1500 ] || fail "refused after $(($(now_ms) - answered)) ms"
}

# --- ejection ---

answer_of() { under "$bin/lookup" "$@" | sed 's/ .*//'; }
dial_name='import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))).close()'

@test "after its first failure no client's first attempt goes to a dead address; the name stays closed (D10 A3)" {
	dns_start
	three_addresses app.test
	shim_part
	export RESIL_GROUP=app RESIL_SET='failure_threshold=1;recovery_timeout=30s'
	assert_equal "$(attempts python3 -c "$dial_name" app.test "$port")" "127.0.0.1 127.0.0.2 "
	assert_equal "$(attempts python3 -c "$dial_name" app.test "$port")" "127.0.0.2 "
	assert_equal "$(attempts curl -sS -m 5 "http://app.test:$port/")" "127.0.0.2 "
	assert_equal "$(attempts wget -q -O- -T 5 --tries=1 "http://app.test:$port/")" "127.0.0.2 "
	for how in getaddrinfo gethostbyname gethostbyname2_r; do
		assert_equal "$(answer_of "$how" app.test | sed s/app.test,//)" 127.0.0.2,127.0.0.3,127.0.0.1
	done
	assert_equal "$(answer_of getaddrinfo app.test $((port - 1)))" 127.0.0.1,127.0.0.2,127.0.0.3
	assert_equal "$(destination "app.test:$port" state)" closed
	assert_equal "$(destination "app.test:$port" failures)" '{}'
	destination "app.test:$port" endpoints | python3 -c '
import json, sys
e = {x["address"].split(":")[0]: x for x in json.load(sys.stdin)}
assert e["127.0.0.1"]["state"] == "ejected" and 0 < e["127.0.0.1"]["ejected_until_ms"] <= 30000, e
assert e["127.0.0.1"]["consecutive_failures"] == 1, e
assert e["127.0.0.2"]["state"] == "healthy" and e["127.0.0.2"]["ejected_until_ms"] == 0, e'
	run resil events --json
	assert_line --regexp "\"type\":\"ejected\",\"destination\":\"app.test:$port\",\"reason\":\"127.0.0.1:$port \(refused\), for 30s\""
	run resil metrics
	assert_line --regexp "^resil_ejected_endpoints\{.*destination=\"app.test:$port\"\} 1$"
	RESIL_SET='eject=off' run answer_of getaddrinfo app.test "$port"
	assert_output 127.0.0.1,127.0.0.2,127.0.0.3
	RESIL_SET='max_ejection=33%' run answer_of getaddrinfo app.test "$port"
	assert_output 127.0.0.1,127.0.0.2,127.0.0.3
}

@test "a healed address comes back, and failing again it is ejected for longer (D10 CB11)" {
	dns_start
	three_addresses app.test
	shim_part
	export RESIL_GROUP=app RESIL_SET='recovery_timeout=400ms;recovery_max=60s;recovery_backoff=3'
	under python3 -c "$dial_name" app.test "$port"
	first_is() { [ "$(answer_of getaddrinfo app.test "$port" | cut -d, -f1)" = "$1" ]; }
	# Its time is over: it is offered in its place, and one failure is enough again.
	wait_until first_is 127.0.0.1
	under python3 -c "$dial_name" app.test "$port"
	run resil events --json
	assert_line --regexp "\(refused\), for 400ms"
	assert_line --regexp "\(refused\), for 1200ms"
	peer healed 127.0.0.1 answer "$port"
	wait_until first_is 127.0.0.1
	ask='import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(b"GET / HTTP/1.0\r\n\r\n"); assert s.recv(99)'
	under python3 -c "$ask" app.test "$port"
	run resil events --json
	assert_line --regexp "\"type\":\"returned\",\"destination\":\"app.test:$port\",\"reason\":\"127.0.0.1:$port\""
	assert_equal "$(destination "app.test:$port" state)" closed
}

@test "ejection with one address, and with two: never worse off than the resolver's order (D10 CD5)" {
	dns_start
	peer good 127.0.0.2 answer
	port=$good_port
	zone one.test answer 127.0.0.1
	zone two.test answer 127.0.0.1 127.0.0.2
	zone none.test answer 127.0.0.1 127.0.0.4
	shim_part
	export RESIL_GROUP=app RESIL_SET='recovery_timeout=30s;failure_threshold=9'
	for name in one.test two.test none.test; do
		under python3 -c "$dial_name" "$name" "$port" || true
	done
	assert_equal "$(answer_of getaddrinfo one.test "$port")" 127.0.0.1
	assert_equal "$(answer_of getaddrinfo two.test "$port")" 127.0.0.2,127.0.0.1
	assert_equal "$(answer_of getaddrinfo none.test "$port")" 127.0.0.1,127.0.0.4
	assert_equal "$(destination "one.test:$port" endpoints)" '[]'
	# A look-up to bind to is never touched.
	run under python3 -c 'import socket, sys
print(socket.getaddrinfo(sys.argv[1], int(sys.argv[2]), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][4][0])' two.test "$port"
	assert_output 127.0.0.1
}

@test "without the shim the resolver's order is as the zone has it" {
	dns_start
	three_addresses app.test
	run bare "$bin/lookup" getaddrinfo app.test "$port"
	assert_output --regexp '^127.0.0.1,127.0.0.2,127.0.0.3 '
}

# --- which call, which name ---

hung_server() {
	start hung bare python3 -u -c '
import socket, sys, time
l = socket.create_server(("127.0.0.1", 0))
sys.stdout.write("port %d\n" % l.getsockname()[1])
kept = []
while True: kept.append(l.accept()[0])'
	wait_until file_has '^port ' "$dir/hung.out"
	port=$(sed -n 's/^port //p' "$dir/hung.out")
}

@test "a call begins with its look-up, on whichever thread that was, and with none of another name (C3 A13)" {
	dns_start
	zone slow.test late-500 127.0.0.1
	zone fast.test answer 127.0.0.2 127.0.0.1
	hung_server
	shim_part
	cat >"$dir/call.py" <<-'END'
		import os, socket, sys, threading, time
		name, port, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
		found = []
		def look_up():
		    found[:] = socket.getaddrinfo(name, port, socket.AF_INET, socket.SOCK_STREAM)
		if how == "other":  # a look-up of another name before the call
		    known = socket.getaddrinfo("fast.test", port, socket.AF_INET, socket.SOCK_STREAM)
		    time.sleep(1.1)
		begin = time.monotonic()
		if how == "same":
		    look_up()
		else:
		    t = threading.Thread(target=look_up)
		    t.start()
		    t.join()
		to = ("127.0.0.1", port)
		if how == "other":
		    begin = time.monotonic()
		    to = ("127.0.0.2", port)
		s = socket.socket()
		try:
		    s.connect(to)
		    s.sendall(b"GET / HTTP/1.1\r\n\r\n")
		    s.recv(1)
		    print("answered")
		except OSError as e:
		    print(e.errno, int((time.monotonic() - begin) * 1000))
	END
	start hung2 bare python3 -u -c 'import socket, sys, time
l = socket.create_server(("127.0.0.2", int(sys.argv[1]))); print("up", flush=True)
kept = []
while True: kept.append(l.accept()[0])' "$port"
	wait_until file_has up "$dir/hung2.out"
	export RESIL_SET='deadline=1s'
	for how in same thread other; do
		told under python3 "$dir/call.py" slow.test "$port" "$how"
		assert_output 110
		[ "$took" -ge 995 ] || fail "$how: $took ms"
		within "$took" 1080
	done
}

@test "an address under two names is this thread's latest look-up, else the process's; results are kept (A13)" {
	dns_start
	peer server 127.0.0.1 answer
	zone a.test answer 127.0.0.1
	zone b.test answer 127.0.0.1
	for i in {1..100}; do echo "n$i.test answer 127.0.1.$i"; done >>"$dir/zone"
	shim_part
	run under python3 -c '
import socket, sys, threading
port = int(sys.argv[1])
def call(n):
    for i in range(n):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while s.recv(100): pass
        s.close()
def look_up(name): return socket.getaddrinfo(name, port)
barrier = threading.Barrier(2)
def thread(name, n):
    look_up(name)
    barrier.wait()
    call(n)
threads = [threading.Thread(target=thread, args=a) for a in (("a.test", 2), ("b.test", 3))]
for t in threads: t.start()
for t in threads: t.join()
look_up("a.test")
for i in range(1, 101): look_up("n%d.test" % i)
call(4)
def other(): call(5)
t = threading.Thread(target=other); t.start(); t.join()
' "$server_port"
	assert_success
	assert_equal "$(destination "a.test:$server_port" calls.success)" 11
	assert_equal "$(destination "b.test:$server_port" calls.success)" 3
	run resil status --json
	refute_output --partial '"name":"127.0.0.1'
}
