#!/usr/bin/env bats
# getaddrinfo_a and its kin: look-ups that the program comes back for, with a limit (D7). The name server is the test's own.
load lib/common
load lib/dns

@test "getaddrinfo_a: each way to wait for it answers as bare, and under a limit that does not pass (E1)" {
	dns_start
	zone fine.test answer 127.0.0.5
	zone other.test answer 127.0.0.6
	for how in wait nowait suspend thread signal; do
		told bare "$bin/later" "$how" fine.test gone.test other.test
		assert_equal "$how: $output" "$how: 127.0.0.5 EAI_NONAME 127.0.0.6"
	done
	shim_part
	for how in wait nowait suspend thread signal; do
		told under "$bin/later" "$how" fine.test gone.test other.test # nothing asks for anything: libc's own
		assert_equal "$how: $output" "$how: 127.0.0.5 EAI_NONAME 127.0.0.6"
		RESIL_SET='resolve_timeout=10s' told under "$bin/later" "$how" fine.test gone.test other.test 127.0.0.9 localhost
		assert_equal "$how: $output" "$how: 127.0.0.5 EAI_NONAME 127.0.0.6 127.0.0.9 127.0.0.1"
	done
}

@test "getaddrinfo_a: a silent name ends at resolve_timeout, a deadline says EAI_FAIL, others are answered meanwhile (D7)" {
	dns_start
	zone silent.test never
	zone fine.test answer 127.0.0.5
	shim_part
	for how in wait nowait suspend thread signal; do
		RESIL_SET='resolve_timeout=300ms' told under "$bin/later" "$how" silent.test fine.test
		assert_equal "$how: $output" "$how: EAI_AGAIN 127.0.0.5"
		[ "$took" -ge 300 ]
		within "$took" 450
	done
	RESIL_SET='deadline=300ms' told under "$bin/later" wait silent.test fine.test
	assert_output 'EAI_FAIL 127.0.0.5'
	within "$took" 450
	# More than there are threads: the limit counts from the request.
	many=() expected=
	for i in {1..40}; do
		zone "s$i.test" never
		many+=("s$i.test")
		expected+='EAI_AGAIN '
	done
	RESIL_SET='resolve_timeout=300ms' told under "$bin/later" wait "${many[@]}"
	assert_equal "$output" "${expected% }"
	within "$took" 900
}

@test "gai_suspend: its own time-out and a signal end it; gai_cancel ends what is under way (D7)" {
	dns_start
	zone silent.test never
	zone fine.test answer 127.0.0.5
	shim_part
	export RESIL_SET='resolve_timeout=600ms'
	told under "$bin/later" short silent.test
	assert_output 'EAI_AGAIN EAI_AGAIN'
	within "$took" 750
	told under "$bin/later" interrupt silent.test
	assert_output 'EAI_INTR EAI_AGAIN'
	RESIL_SET='resolve_timeout=20s' told under "$bin/later" cancel silent.test silent.test
	assert_output 'EAI_CANCELED EAI_CANCELED EAI_CANCELED EAI_CANCELED'
	within "$took" 300
	told under "$bin/later" cancel-after fine.test
	assert_output 'EAI_ALLDONE 127.0.0.5'
}
