#!/usr/bin/env bats
# Every client and every fault of a resolver, each bare first: what ends by itself ends as it did, what does not ends at the limit in the
# client's own words for it (D7 CD2); and of addresses of which the first is dead no client tries that first (D10).
load ../lib/common
load ../lib/dns
load ../lib/clients

# Its last words without what differs from run to run: times, numbers, who listens.
words() { tail -n 1 <<<"$output" | sed -E 's/0x[0-9a-f]+/X/g; s/[0-9]+/N/g'; }
# Bare and under the limit the same, for a name of each fault that ends by itself.
as_bare() { # HOW CLIENT PORT
	local name expected
	for name in soon broken refused gone cut one two three thirty; do
		"$1" "$2" "$name.test" "$3"
		run bare "${cmd[@]}"
		expected="$status $(words)"
		run under "${cmd[@]}"
		assert_equal "$2 $name: $status $(words)" "$2 $name: $expected"
	done
}
# It fails with its own words, once the limit has passed and soon after: far sooner than the resolver would tell or give up.
at_the_limit() { # HOW CLIENT WORDS PORT [MORE_MS]
	local begin own took name
	"$1" "$2" one.test "$4"
	begin=$(now_ms)
	run bare "${cmd[@]}" # what it takes by itself, for a name that is known at once
	own=$(($(now_ms) - begin))
	for name in never late; do
		"$1" "$2" "$name.test" "$4"
		begin=$(now_ms)
		run under "${cmd[@]}"
		took=$(($(now_ms) - begin))
		assert_failure
		assert_output --regexp "$3"
		[ "$took" -ge 500 ] || fail "$2 $name: $took ms"
		echo "# $2 $name: $took ms, $own of them by itself" >&3
		within "$took" $((2 * own + 500 + ${5-1500}))
	done
}
# HOW CLIENT WORDS [answer|refuse] [MORE_MS]: with a server behind the addresses that answers, or none.
row() {
	dns_start
	zone never.test never
	zone late.test late-9000 127.0.0.1
	zone soon.test late-200 127.0.0.1
	zone broken.test servfail
	zone refused.test refused
	zone cut.test truncated 127.0.0.1
	zone one.test answer 127.0.0.1
	zone two.test answer 127.0.0.1 127.0.0.2
	zone three.test answer 127.0.0.1 127.0.0.2 127.0.0.3
	zone thirty.test truncated 127.0.0.1 $(printf '127.0.1.%d ' {1..29})
	peer server 127.0.0.1 "${4-answer}"
	shim_part
	# Connects that fail are not what is looked at here.
	export RESIL_SET='resolve_timeout=500ms;breaker=observe;eject=off'
	at_the_limit "$1" "$2" "$3" "$server_port" "${5-1500}"
	export RESIL_SET='resolve_timeout=10s;breaker=observe;eject=off'
	as_bare "$1" "$2" "$server_port"
}

@test "urllib: a resolver that fails in every way (D7 CD2)" { row caller urllib 'Errno -3. Temporary failure in name resolution'; }
@test "http.client: a resolver that fails in every way (D7 CD2)" { row caller http.client 'Errno -3. Temporary failure in name resolution'; }
@test "asyncio: a resolver that fails in every way (D7 CD2)" { row caller asyncio 'Errno -3. Temporary failure in name resolution'; }
@test "requests: a resolver that fails in every way (D7 CD2)" { row caller requests 'Errno -3. Temporary failure in name resolution'; }
@test "curl: a resolver that fails in every way (D7 CD2)" { row caller curl 'curl: \(6\) Could not resolve host'; }
@test "wget: a resolver that fails in every way (D7 CD2)" { row caller wget 'unable to resolve host address'; }
@test "node: a resolver that fails in every way (D7 CD2)" { row caller node EAI_AGAIN; }
@test "HttpClient: a resolver that fails in every way (D7 CD2)" { row caller HttpClient 'ConnectException|UnresolvedAddress|UnknownHost'; }
@test "HttpURLConnection: a resolver that fails in every way (D7 CD2)" { row caller HttpURLConnection UnknownHostException; }
@test "php: a resolver that fails in every way (D7 CD2)" { row caller php 'Temporary failure in name resolution'; }
@test "ruby: a resolver that fails in every way (D7 CD2)" { row caller ruby 'getaddrinfo.*(Temporary failure in name resolution|.test)'; }
@test "perl: a resolver that fails in every way (D7 CD2)" { row caller perl "Temporary failure in name resolution|Could not connect to|Bad hostname"; }
# Four look-ups: IPv4, then IPv6, and both once more for the command.
@test "redis-cli: a resolver that fails in every way (D7 CD2)" { row caller redis-cli 'Temporary failure in name resolution' refuse 3000; }
@test "psql: a resolver that fails in every way (D7 CD2)" { row caller psql 'Temporary failure in name resolution' refuse; }
@test "git: a resolver that fails in every way (D7 CD2)" { row client git 'Could not resolve host' refuse; }
@test "ssh: a resolver that fails in every way (D7 CD2)" { row client ssh 'Temporary failure in name resolution' refuse; }
@test "nc: a resolver that fails in every way (D7 CD2)" { row client nc 'Temporary failure in name resolution' refuse; }
@test "bash: a resolver that fails in every way (D7 CD2)" { row client bash 'Temporary failure in name resolution' refuse; }

@test "curl with a longer --max-time of its own ends at ours (CD2)" {
	dns_start
	zone never.test never
	shim_part
	begin=$(now_ms)
	RESIL_SET='resolve_timeout=500ms' run under curl -sS --max-time 25 http://never.test/
	assert_failure 6
	within $(($(now_ms) - begin)) 3500
	begin=$(now_ms)
	RESIL_SET='deadline=700ms' run under curl -sS --max-time 25 http://never.test/
	assert_failure 6
	within $(($(now_ms) - begin)) 3700
}

# first_is HOW CLIENT...: its first attempt goes to an address that is well, and by itself it would not.
first_is() {
	local how=$1 client to
	shift
	dns_start
	three_addresses app.test
	shim_part
	export RESIL_GROUP=app RESIL_SET='failure_threshold=1;recovery_timeout=10m;recovery_max=10m'
	under python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))).close()' app.test "$port"
	for client in "$@"; do
		"$how" "$client" app.test "$port"
		to=$(RESIL_SET='eject=off;breaker=observe' attempts "${cmd[@]}")
		assert_equal "$client: ${to%% *}" "$client: 127.0.0.1"
		to=$(attempts "${cmd[@]}")
		assert_equal "$client: ${to%% *}" "$client: 127.0.0.2"
	done
	assert_equal "$(destination "app.test:$port" state)" closed
}

@test "[dead, good, good]: no first attempt of curl, wget and Python goes to the dead one (D10 A3)" { first_is caller curl wget urllib http.client asyncio requests; }
@test "[dead, good, good]: no first attempt of php, ruby and perl goes to the dead one (D10 A3)" { first_is caller php ruby perl; }
@test "[dead, good, good]: no first attempt of node, java, git, nc, bash and psql goes to the dead one (D10 A3)" {
	first_is client node java git nc bash psql
}
