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
