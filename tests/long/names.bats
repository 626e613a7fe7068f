#!/usr/bin/env bats
# Names, long: every client against a resolver that is silent, and crowds of look-ups.
load ../lib/common
load ../lib/dns
load ../lib/clients

# CLIENT WORDS MS: it fails with its own words, soon after the limit.
resolves() {
	local begin
	client "$1" silent.test 80
	begin=$(now_ms)
	run under "${cmd[@]}"
	assert_failure
	assert_output --regexp "$2"
	within $(($(now_ms) - begin)) "$3"
	echo "# $1: $(($(now_ms) - begin)) ms: ${lines[-1]}" >&3
}

@test "every client ends in time when the resolver is silent (D7 CD2)" {
	dns_start
	zone silent.test never
	shim_part
	export RESIL_SET='resolve_timeout=500ms'
	resolves curl 'Could not resolve host' 4500
	resolves wget 'unable to resolve host address' 4500
	resolves urllib 'Temporary failure in name resolution' 4500
	resolves asyncio 'gaierror -3' 4500
	resolves node 'EAI_AGAIN' 4500
	resolves java 'UnknownHost|Temporary failure|silent.test' 8000
	resolves psql 'Temporary failure in name resolution' 4500
	resolves redis-cli 'Temporary failure in name resolution' 4500
	resolves git 'Could not resolve host' 4500
	resolves ssh 'Temporary failure in name resolution' 4500
	resolves php 'Temporary failure in name resolution|getaddrinfo' 4500
	resolves ruby 'Temporary failure in name resolution|getaddrinfo' 4500
	resolves perl . 4500
	resolves nc 'Temporary failure in name resolution|forward host lookup failed|Unknown' 4500
	resolves bash 'Temporary failure in name resolution' 4500
}

told() {
	run "$@"
	output=${output% *}
}

@test "every form, with a limit and a server that answers, each form answers as without us (E1)" {
	dns_start
	zone many.test answer 127.0.0.1 127.0.0.2 127.0.0.3
	zone late.test late-150 127.0.0.4
	zone broken.test servfail
	zone thirty.test truncated $(printf '127.0.1.%d ' {1..30})
	zone 9.2.0.192.in-addr.arpa answer nine.test
	for how in getaddrinfo getaddrinfo4 getaddrinfo6 gethostbyname gethostbyname2 gethostbyname_r gethostbyname2_r; do
		for name in many.test late.test broken.test thirty.test gone.test localhost hosts-only.test 127.0.0.7 MANY.test.; do
			told bare "$bin/lookup" "$how" "$name"
			expected="$output $status"
			[ -z "$TEST_BARE" ] || continue
			RESIL_SET='resolve_timeout=5s' told under "$bin/lookup" "$how" "$name"
			assert_equal "$how $name: $output $status" "$how $name: $expected"
		done
	done
	for how in gethostbyaddr gethostbyaddr_r; do
		for address in 192.0.2.9 192.0.2.10 127.0.0.1; do
			told bare "$bin/lookup" "$how" "$address"
			expected="$output $status"
			[ -z "$TEST_BARE" ] || continue
			RESIL_SET='resolve_timeout=5s' told under "$bin/lookup" "$how" "$address"
			assert_equal "$how $address: $output $status" "$how $address: $expected"
		done
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
