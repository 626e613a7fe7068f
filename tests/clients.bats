#!/usr/bin/env bats
# Unmodified programs against a port where nobody listens: five attempts get the system's error, then the circuit is open and the sixth meets
# the same words and the same exit code without a connect leaving the process (B10 B13).
load lib/common
load lib/clients

# Runs made until the circuit must have opened, and one more: exactly five connects enter the kernel, whatever a program does by itself.
fails_fast() {
	local run code connects total=0
	peer dead 127.0.0.1 refuse
	client "$1" 127.0.0.1 "$dead_port"
	bare "${cmd[@]}" >"$dir/bare.out" 2>&1 </dev/null && fail "the port is not dead"
	code=$?
	[ "$code" -lt 124 ] || [ "$code" -gt 127 ] || fail "without the shim it ends with $code: $(cat "$dir/bare.out")"
	shim_part
	export RESIL_SET='recovery_timeout=5m;recovery_max=5m' # longer than six starts of a slow program
	for run in 1 2 3 4 5 6; do
		traced "$dir/trace" under "${cmd[@]}" >"$dir/run.out" 2>&1 </dev/null && fail "run $run succeeds"
		assert_equal "run $run: $?" "run $run: $code"
		same_words || fail "run $run says something else than without the shim"
		connects=$(connects_to "$dead_port" "$dir/trace")
		total=$((total + connects))
	done
	assert_equal "connects of all runs: $total" "connects of all runs: 5"
	assert_equal "connects of run 6: $connects" "connects of run 6: 0"
	assert_equal "$(destination "127.0.0.1:$dead_port" state)" open
}

same_words() {
	local as_bare as_run
	IFS= read -rd '' as_bare <"$dir/bare.out" || true
	IFS= read -rd '' as_run <"$dir/run.out" || true
	[ "$as_bare" = "$as_run" ] || diff <(normalised <"$dir/bare.out") <(normalised <"$dir/run.out")
}

@test "curl: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast curl; }
@test "wget: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast wget; }
@test "urllib: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast urllib; }
@test "asyncio: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast asyncio; }
@test "node: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast node; }
@test "java: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast java; }
@test "psql: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast psql; }
@test "redis-cli: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast redis-cli; }
@test "git: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast git; }
@test "ssh: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast ssh; }
@test "php: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast php; }
@test "ruby: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast ruby; }
@test "perl: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast perl; }
@test "nc: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast nc; }
@test "bash: five refusals open, the sixth never leaves the process (B10 B13)" { fails_fast bash; }
