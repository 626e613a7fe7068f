#!/usr/bin/env bats
# What opens a circuit beside a streak, what a full registry does, a service that moves, and histories against real sockets.
load lib/common
load lib/talk

dial() { under "$bin/dial" "$@"; }
call() { under curl -sS -o /dev/null "http://127.0.0.1:$1/"; }
reason() { destination "127.0.0.1:$1" last_transition | python3 -c 'import json, sys; print(json.load(sys.stdin)["reason"])'; }

@test "half of the last calls fail: the rate opens, at minimum_calls and not before (B10 B11)" {
	peer server 127.0.0.1 answer
	shim_part
	export RESIL_SET='failure_threshold=0;sliding_window=10;minimum_calls=4;recovery_timeout=1h;recovery_max=1h'
	call "$server_port"
	call "$server_port"
	peer_now server refuse
	run call "$server_port"
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
	assert_equal "$(destination "127.0.0.1:$server_port" failure_rate)" null
	run call "$server_port"
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
	assert_equal "$(reason "$server_port")" "50.00% failed (2 of 4 calls)"
}

@test "a rate over a time: silence empties it, and one failing probe reopens whatever minimum_calls is (B8 B9 CB6)" {
	peer server 127.0.0.1 refuse
	shim_part
	export RESIL_SET='failure_threshold=0;sliding_window=1s;minimum_calls=3;recovery_timeout=1500ms;recovery_jitter=0%'
	for i in 1 2; do run dial 127.0.0.1 "$server_port"; done
	sleep 1.2 # the rule is about silence
	run dial 127.0.0.1 "$server_port"
	assert_equal "$(destination "127.0.0.1:$server_port" state)" closed
	run dial -n 3 127.0.0.1 "$server_port"
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
	wait_until due "$server_port"
	run dial 127.0.0.1 "$server_port"
	assert_equal "$(destination "127.0.0.1:$server_port" opened_total)" 2
}
due() { [ "$(destination "127.0.0.1:$1" retry_after_ms)" = 0 ]; }

@test "calls that are slow, all of them: they open, though each succeeds" {
	serves server <<-'END'
		def serve(c):
		    head(c)
		    time.sleep(0.3)
		    ok(c)
	END
	shim_part
	export RESIL_SET='sliding_window=20;minimum_calls=3;slow_call_duration=200ms;recovery_timeout=1h;recovery_max=1h'
	for i in 1 2 3; do call "$server_port"; done
	assert_equal "$(destination "127.0.0.1:$server_port" state)" open
	assert_equal "$(reason "$server_port")" "100.00% slow (3 of 3 calls)"
	assert_equal "$(destination "127.0.0.1:$server_port" calls.success)" 3
}

@test "more destinations than max_destinations: the one longest unused goes, an open one stays (B17)" {
	local n
	for n in a b c d; do peer "$n" 127.0.0.1 answer; done
	peer dead 127.0.0.1 refuse
	shim_part
	printf '[resil]\nmax_destinations = 4\n[defaults]\nfailure_threshold = 1\nrecovery_timeout = 1h\nrecovery_max = 1h\n' >"$dir/conf"
	export RESIL_CONF=$dir/conf
	run call "$dead_port"
	for n in "$a_port" "$b_port" "$c_port" "$b_port" "$d_port"; do call "$n"; done
	assert_equal "$(resil status | cut -f1 | sort)" "$(printf '127.0.0.1:%s\n' "$dead_port" "$b_port" "$c_port" "$d_port" | sort)"
	assert_equal "$(resil metrics | sed -n 's/^resil_registry_evictions_total.* //p')" 1
	assert_equal "$(resil metrics | grep -c "127.0.0.1:$a_port")" 0
	call "$a_port"
	assert_equal "$(destination "127.0.0.1:$a_port" calls.total)" 1
	assert_equal "$(destination "127.0.0.1:$dead_port" state)" open
}

@test "a name that moves to another address is probed at once (B21)" {
	local flags=(-m)
	[ "$(id -u)" = 0 ] || flags=(-r -m)
	printf '127.0.0.1 localhost\n127.0.0.2 mover\n' >"$dir/hosts"
	via=(unshare "${flags[@]}" -- sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$dir/hosts")
	"${via[@]}" true 2>/dev/null || skip "a mount namespace is not to be had here"
	peer old 127.0.0.2 refuse
	peer new 127.0.0.3 answer "$old_port"
	shim_part
	export RESIL_SET='failure_threshold=2;recovery_timeout=1h;recovery_max=1h'
	for i in 1 2 3; do run dial mover "$old_port"; done
	assert_equal "$(destination "mover:$old_port" state)" open
	assert_equal "$(destination "mover:$old_port" calls.rejected)" 1
	printf '127.0.0.1 localhost\n127.0.0.3 mover\n' >"$dir/hosts"
	run dial -x mover "$old_port"
	assert_success
	assert_equal "$(transitions "mover:$old_port" | paste -sd' ')" "closed>open open>half_open half_open>closed"
}

@test "when a mode set --for a time ends is told (B15)" {
	peer server 127.0.0.1 answer
	shim_part
	call "$server_port"
	resil force "127.0.0.1:$server_port" closed --for 10m
	local left
	left=$(destination "127.0.0.1:$server_port" mode_ends_ms)
	[ "$left" -gt 500000 ] && [ "$left" -le 600000 ] || fail "it ends in $left ms"
	assert_equal "$(resil status | cut -f2)" forced_closed
	[[ $(resil status | cut -f3) == 5*s ]] || [[ $(resil status | cut -f3) == 600.0s ]] || fail "$(resil status)"
	resil force "127.0.0.1:$server_port" auto
	assert_equal "$(destination "127.0.0.1:$server_port" mode_ends_ms)" null
	# A year is the most: what is longer is meant for ever, or mistyped.
	for time in 8761h 100000h 365.1d; do
		for verb in "force 127.0.0.1:$server_port open" "fault add refuse 127.0.0.1:$server_port"; do
			# shellcheck disable=SC2086 # words
			run resil $verb --for $time
			assert_failure 2
			assert_output --partial "'$time' is too long: 8760h (a year) is the most; --forever holds until told otherwise"
		done
	done
	assert_equal "$(destination "127.0.0.1:$server_port" mode)" auto
	resil force "127.0.0.1:$server_port" closed --for 8760h
	assert_equal "$(destination "127.0.0.1:$server_port" mode)" forced_closed
}

@test "random histories replayed against real sockets: after each step the circuit is as the model has it (B2-B16)" {
	shim_part
	RESIL_TEST_SHIM=$shim run "$build/unit/model_replay" 16
	echo "$output"
	assert_success
}
