#!/usr/bin/env bats
# Names, long: every client against a resolver that is silent, and crowds of look-ups.
load ../lib/common
load ../lib/dns
load ../lib/clients

# HOW CLIENT WORDS [MORE_MS]: it fails with its own words, once the limit has passed and soon after. HOW: client or caller, of
# lib/clients.
resolves() {
	local begin own took
	"$1" "$2" refused.test 80
	begin=$(now_ms)
	run bare "${cmd[@]}" # what it takes by itself, for a name that is known at once
	own=$(($(now_ms) - begin))
	"$1" "$2" silent.test 80
	begin=$(now_ms)
	run under "${cmd[@]}"
	took=$(($(now_ms) - begin))
	assert_failure
	assert_output --regexp "$3"
	[ "$took" -ge 500 ] || fail "$2: $took ms"
	echo "# $1 $2: $took ms, $own of them by itself: $(grep -E -- "$3" <<<"$output" | tail -1)" >&3
	# Beside others a start may take twice as long as the one before it.
	within "$took" $((2 * own + 500 + ${4-1000}))
}

silent() {
	dns_start
	zone silent.test never
	zone refused.test answer 127.0.0.1
	shim_part
	export RESIL_SET='resolve_timeout=500ms'
}

@test "every client of python ends in time, in its own words, when the resolver is silent (D7 CD2)" {
	silent
	resolves caller urllib 'Errno -3. Temporary failure in name resolution'
	resolves caller http.client 'Errno -3. Temporary failure in name resolution'
	resolves caller asyncio 'Errno -3. Temporary failure in name resolution'
	resolves caller requests 'Errno -3. Temporary failure in name resolution'
	resolves client asyncio 'gaierror -3'
}

@test "every client of node and java ends in time, in its own words, when the resolver is silent (D7 CD2)" {
	silent
	resolves caller node 'EAI_AGAIN'
	resolves caller HttpClient 'ConnectException|UnresolvedAddress|UnknownHost'
	resolves client java 'UnknownHost|silent.test'
}

@test "every client of php, ruby and perl ends in time, in its own words, when the resolver is silent (D7 CD2)" {
	silent
	resolves caller php 'getaddrinfo.*silent.test.*Temporary failure in name resolution'
	resolves client php 'Temporary failure in name resolution'
	resolves caller ruby 'getaddrinfo.*(Temporary failure in name resolution|silent.test)'
	resolves client ruby 'getaddrinfo.*Temporary failure in name resolution'
	resolves caller perl "Temporary failure in name resolution|Could not connect to 'silent.test:80'|Bad hostname"
	resolves client perl 'Temporary failure in name resolution|Invalid argument|Bad hostname'
}

@test "every other client ends in time, in its own words, when the resolver is silent (D7 CD2)" {
	silent
	resolves caller curl 'curl: \(6\) Could not resolve host: silent.test'
	resolves caller wget "unable to resolve host address .silent.test."
	resolves caller HttpURLConnection 'UnknownHostException: silent.test'
	# Four look-ups: IPv4, then IPv6, and both once more for the command.
	resolves caller redis-cli 'Could not connect to Redis at silent.test:80: Temporary failure in name resolution' 2000
	resolves caller psql 'could not translate host name "silent.test" to address: Temporary failure in name resolution'
	resolves client git 'Could not resolve host: silent.test'
	resolves client ssh 'Could not resolve hostname silent.test: Temporary failure in name resolution'
	resolves client nc 'Temporary failure in name resolution|forward host lookup failed|Unknown'
	resolves client bash 'silent.test: Temporary failure in name resolution'
}

@test "every form, with a limit and a server that answers, each form answers as without us (E1)" {
	dns_start
	zone many.test answer 127.0.0.1 127.0.0.2 127.0.0.3
	zone late.test late-150 127.0.0.4
	zone broken.test servfail
	zone thirty.test truncated $(printf '127.0.1.%d ' {1..30})
	zone 9.2.0.192.in-addr.arpa answer nine.test
	for how in getaddrinfo getaddrinfo4 getaddrinfo6 gethostbyname gethostbyname2 gethostbyname_r gethostbyname2_r; do
		as_without_us "$how" many.test late.test broken.test thirty.test gone.test localhost hosts-only.test 127.0.0.7 MANY.test.
	done
	for how in gethostbyaddr gethostbyaddr_r; do
		as_without_us "$how" 192.0.2.9 192.0.2.10 127.0.0.1
	done
}

@test "a hundred threads look a silent name up and connect while the process forks (D7 E4 E5)" {
	dns_start
	zone silent.test never
	zone good.test late-20 127.0.0.1
	peer server 127.0.0.1 refuse
	shim_part
	printf '[resil]\ncontrol = off\n[defaults]\nbreaker = observe\nresolve_timeout = 300ms\n' >"$dir/conf"
	export RESIL_CONF=$dir/conf
	for round in 1 2 3 4 5; do
		run under "$bin/lookups" 100 5 silent.test
		assert_success
		assert_output --regexp '^ok 500 [0-9]+$'
		run under "$bin/lookups" 100 20 good.test "$server_port"
		assert_success
		assert_output --regexp '^ok 2000 [0-9]+$'
	done
}

# Connects that entered the kernel of the namespace, streams alone.
opened() { "${via[@]}" awk '/^Tcp:/ && n++ { print $6 }' /proc/net/snmp; }

@test "IPv6 refused and IPv4 fine, threshold 1, a thousand calls: closed throughout; both dead: open after one (A3 CN4)" {
	dns_start
	zone dual.test answer ::1 127.0.0.1
	peer v4 127.0.0.1 answer
	shim_part
	cat >"$dir/calls.py" <<-'END'
		import socket, sys
		failed = 0
		for i in range(int(sys.argv[3])):
		    try:
		        socket.create_connection((sys.argv[1], int(sys.argv[2]))).close()
		    except OSError as e:
		        failed += 1
		print(failed)
	END
	export RESIL_GROUP=dual
	for eject in off on; do
		rm -rf "$RESIL_STATE_DIR"
		export RESIL_SET="failure_threshold=1;eject=$eject"
		before=$(opened) accepted=$(peer_accepted v4)
		run under python3 "$dir/calls.py" dual.test "$v4_port" 1000
		assert_output 0
		count=$(($(opened) - before))
		assert_equal "$(transitions "dual.test:$v4_port")" ''
		assert_equal "$(destination "dual.test:$v4_port" failures)" '{}'
		assert_equal "$(destination "dual.test:$v4_port" calls.total)" 1000
		assert_equal "$(($(peer_accepted v4) - accepted))" 1000
		echo "# eject=$eject: $count connects for 1000 calls" >&3
		if [ $eject = off ]; then assert_equal "$count" 2000; else [ "$count" -lt 1100 ]; fi
	done
	peer_now v4 refuse
	rm -rf "$RESIL_STATE_DIR"
	export RESIL_SET='failure_threshold=1;recovery_timeout=1m'
	before=$(opened)
	run under python3 "$dir/calls.py" dual.test "$v4_port" 20
	assert_output 20
	assert_equal "$(($(opened) - before))" 2
	assert_equal "$(transitions "dual.test:$v4_port")" 'closed>open'
	assert_equal "$(destination "dual.test:$v4_port" calls.rejected)" 19
	assert_equal "$(destination "dual.test:$v4_port" failures.refused)" 1
}

@test "both families dead, open after one call; one of them healed, whichever: it recovers (A3 CN4)" {
	dns_start
	zone dual.test answer ::1 127.0.0.1
	peer v4 127.0.0.1 refuse
	peer v6 ::1 refuse "$v4_port"
	shim_part
	cat >"$dir/call.py" <<-'END'
		import socket, sys
		try:
		    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
		    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
		    assert s.recv(100)
		    print(s.getpeername()[0])
		except OSError as e:
		    print(e.errno)
	END
	export RESIL_GROUP=dual RESIL_SET='failure_threshold=1;recovery_timeout=300ms;recovery_backoff=1;recovery_jitter=0%'
	call() { told_now=$(under python3 "$dir/call.py" dual.test "$v4_port"); }
	is_well() { call && [ "$told_now" = "$1" ]; }
	local family address before
	for family in v4 v6; do
		address=127.0.0.1
		[ $family = v4 ] || address=::1
		before=$(opened)
		call
		assert_equal "$told_now" 111
		assert_equal "$(($(opened) - before))" 2
		assert_equal "$(destination "dual.test:$v4_port" state)" open
		peer_now $family answer
		wait_until is_well "$address"
		assert_equal "$(destination "dual.test:$v4_port" state)" closed
		for i in 1 2 3 4 5; do
			call
			assert_equal "$told_now" "$address"
		done
		assert_equal "$(destination "dual.test:$v4_port" state)" closed
		run under curl -sS -m 20 -o /dev/null -w '%{remote_ip}' "http://dual.test:$v4_port/"
		assert_output "$address"
		assert_equal "$(destination "dual.test:$v4_port" state)" closed
		peer_now $family refuse
	done
	run transitions "dual.test:$v4_port"
	refute_output --partial 'half_open>open closed>open closed>open'
}

@test "a hundred threads look up and connect while the resolver stalls, with forks in between, under valgrind: no leak, no hang (D7 E4 E5)" {
	dns_start
	zone silent.test never
	zone good.test late-20 127.0.0.1
	peer server 127.0.0.1 refuse
	shim_part
	printf '[resil]\ncontrol = off\n[defaults]\nbreaker = observe\nresolve_timeout = 2s\n' >"$dir/conf"
	export RESIL_CONF=$dir/conf
	TEST_TIMEOUT=100 # a fork under valgrind takes its time
	# A fork's child has the memory of look-ups whose threads it has not: leaks are read from what the parent says.
	valgrind=(valgrind --leak-check=full --child-silent-after-fork=yes --errors-for-leak-kinds=none --error-exitcode=9)
	for what in 'silent.test' "good.test $server_port"; do
		# shellcheck disable=SC2086
		run under "${valgrind[@]}" "$bin/lookups" 100 1 $what
		assert_success
		assert_output --regexp 'no leaks are possible|definitely lost: 0 bytes'
		assert_output --regexp 'no leaks are possible|indirectly lost: 0 bytes'
		assert_output --regexp 'ok 100 [0-9]+'
		assert_output --partial 'ERROR SUMMARY: 0 errors'
	done
}
