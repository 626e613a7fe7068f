#!/usr/bin/env bats
# A deadline bounds the call, not the read: slow bytes do not extend it, and the program meets an error, never a false end (C1 C5 C6). And
# nothing of it is paid for at each send and recv (C8).
load lib/common
load lib/services

ten_bytes_in_2_7_s() { # read|poll|stdio
	local came how ms
	peer server 127.0.0.1 trickle
	read -r came how ms < <(bare "$bin/drip_reader" "$1" "$server_port")
	assert_equal "$came $how" "10 all"
	[ "$ms" -ge 2690 ] || fail "ten bytes came within $ms ms"
	shim_part
	export RESIL_SET='deadline=1s'
	read -r came how ms < <(under "$bin/drip_reader" "$1" "$server_port")
	# libc's own reads inside stdio give the kernel's word for it: no hook is there to say it better.
	if [ "$1" = stdio ] && { [ "$how" = EPIPE ] || [ "$how" = ECONNRESET ]; }; then how=ETIMEDOUT; fi
	assert_equal "$how" ETIMEDOUT
	[ "$ms" -ge 999 ] || fail "ended after $ms ms, before the limit"
	within "$ms" 1020
	[ "$came" = 3 ] || too_late "$came octets came"
	assert_equal "$(failed_by "127.0.0.1:$server_port" deadline)" 1
	# What ended it was a reset, as the server saw it.
	wait_until peer_has server closed 2
	assert_equal "$(tail -n 1 "$dir/server.log" | cut -d' ' -f6)" reset
}
@test "ten bytes in 2.7 s under a deadline of 1 s, read: ETIMEDOUT at 1 s (C1 C5 C6)" { ten_bytes_in_2_7_s read; }
@test "ten bytes in 2.7 s under a deadline of 1 s, poll and read: ETIMEDOUT at 1 s (C1 C5 C6)" { ten_bytes_in_2_7_s poll; }
@test "ten bytes in 2.7 s under a deadline of 1 s, stdio: an error at 1 s and no end of file (C1 C5 C6)" { ten_bytes_in_2_7_s stdio; }

# counted FILE HOW COMMAND...: the system calls of all its processes, "NAME COUNT" a line.
counted() {
	local file=$1 how=$2 set=()
	shift 2
	[ "$how" = bare ] || set=(-E "LD_PRELOAD=$shim")
	timeout -k 2 "$TEST_TIMEOUT" strace -f -c -U calls,name -o "$file.raw" ${set[@]+"${set[@]}"} "$@" >"$file.out" 2>&1 3>&-
	awk '$1 ~ /^[0-9]+$/ && $2 != "total" { print $2, $1 }' "$file.raw" >"$file"
}
# more FEW MANY: "NAME COUNT" of what MANY has more.
more() { awk 'NR == FNR { few[$1] = $2; next } $2 != few[$1] { print $1, $2 - few[$1] }' "$1" "$2" | sort; }

@test "a thousand exchanges on a connection cost no system call of ours, with every limit armed (C8)" {
	peer server 127.0.0.1 answer
	counted "$dir/bare.few" bare "$bin/exchanges" "$server_port" 10
	counted "$dir/bare.many" bare "$bin/exchanges" "$server_port" 1010
	assert_equal "$(more "$dir/bare.few" "$dir/bare.many" | paste -sd' ')" "recvfrom 1000 sendto 1000"
	shim_part
	export RESIL_SET='answer_timeout=30s;stall_timeout=30s;deadline=60s'
	counted "$dir/under.few" under "$bin/exchanges" "$server_port" 10
	counted "$dir/under.many" under "$bin/exchanges" "$server_port" 1010
	assert_equal "$(grep -E '^(recvfrom|sendto) ' "$dir/under.many" | sort | paste -sd' ')" "recvfrom 1010 sendto 1010"
	# A thread of ours may have been woken in the longer run.
	extra=$(more "$dir/under.few" "$dir/under.many" | awk '$1 != "recvfrom" && $1 != "sendto" { n += $2 < 0 ? -$2 : $2 } END { print n + 0 }')
	[ "$extra" -le 10 ] || fail "$(more "$dir/under.few" "$dir/under.many")"
}

@test "redis-benchmark, a thousand requests on a connection: the same system calls (C8)" {
	redis_start redis
	benchmark=(redis-benchmark -p "$redis_port" -c 1 -n 1000 -t ping_mbulk -q)
	counted "$dir/bare.calls" bare "${benchmark[@]}"
	sends=$(awk '$1 == "write" || $1 == "sendto" { n += $2 } END { print n }' "$dir/bare.calls")
	[ "$sends" -ge 1000 ] || fail "$(cat "$dir/bare.calls")"
	shim_part
	export RESIL_SET='answer_timeout=30s;stall_timeout=30s;deadline=60s'
	counted "$dir/under.calls" under "${benchmark[@]}"
	# A handful at the start: of each kind, and of all.
	[ "$(more "$dir/bare.calls" "$dir/under.calls" | awk '{ if ($2 > worst) worst = $2; n += $2 } END { print worst <= 60 && n <= 200 }')" = 1 ] ||
		fail "$(more "$dir/bare.calls" "$dir/under.calls")"
}

@test "after fork and after daemon() the limits of a call in progress hold for the child that waits (E4 C5)" {
	peer server 127.0.0.1 hang
	shim_part
	export RESIL_SET='answer_timeout=400ms'
	for how in "fork recv" "daemon recv" "daemon poll"; do
		# shellcheck disable=SC2086 # two words
		run under "$bin/inherit" "$server_port" $how
		assert_output --regexp '^ETIMEDOUT '
		within "${output#* }" 440
	done
}
