#!/usr/bin/env bats
# Faults measured at programs that nobody here wrote, and counted over many calls. Run by `make long`.
load ../lib/common
load ../lib/services

with() { # FAULT COMMAND...
	local fault=$1
	shift
	run resil run -s breaker=off --fault "$fault" -- "$@"
}
# Three attempts: others may have the processors meanwhile.
measured() { # WHAT RIGHT_MS COMMAND...
	local what=$1 right=$2 i
	shift 2
	for i in 1 2 3; do
		run "$@"
		is_right "$what" "$right" && return
	done
	fail "$what: $output, where $right ms are right"
}
# "MEAN_MS CPU%": the mean within a tenth of what is right, the processor mostly idle.
is_right() { # WHAT RIGHT_MS
	local mean cpu
	read -r mean cpu <<<"${lines[-1]-}"
	echo "# $1: $mean ms, $cpu % of a processor" >&3
	awk -v is="$mean" -v right="$2" -v cpu="$cpu" 'BEGIN { exit !(is >= right * 0.9 && is <= right * 1.1 && cpu < 5) }'
}
# A command's own processor time and wall, with N round trips: as above.
timed() { # N COMMAND...
	python3 - "$@" <<-'END'
		import resource, subprocess, sys, time
		n, command = int(sys.argv[1]), sys.argv[2:]
		begun = time.monotonic()
		subprocess.run(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
		took = time.monotonic() - begun
		used = resource.getrusage(resource.RUSAGE_CHILDREN)
		print(f"{took * 1000 / n:.1f} {(used.ru_utime + used.ru_stime) / took * 100:.1f}")
	END
}
latency='latency 127.0.0.1 delay=200ms jitter=50ms direction=down'

@test "latency of 200 ms, 50 up and down: node, asyncio, java, on one kept connection each" {
	nginx_start server bare
	shim_part
	late=("$build/resil" run -s breaker=off --fault "$latency" --)
	measured node 200 "${late[@]}" node "$root/tests/programs/rtt.js" "$server_port" 40
	measured asyncio 200 "${late[@]}" python3 "$root/tests/programs/rtt.py" "$server_port" 40
	measured java 200 "${late[@]}" java -Xshare:auto -XX:TieredStopAtLevel=1 "$root/tests/programs/Rtt.java" "$server_port" 40
}

@test "latency: curl with forty transfers at once, redis-cli, psql" {
	nginx_start server bare
	redis_start redis
	postgres_start
	shim_part
	late=("$build/resil" run -s breaker=off --fault "$latency" --)
	# A transfer's wait for its answer.
	transfers() {
		"${late[@]}" curl -sS -Z --parallel-max 40 --parallel-immediate -o /dev/null -w '%{time_pretransfer} %{time_starttransfer}\n' \
			"http://127.0.0.1:$server_port/?[1-40]" | awk '{ sum += $2 - $1; n++ } END { printf "%.1f 0.0", sum / n * 1000 }'
	}
	measured curl 200 transfers
	# Forty pings one after another; connecting costs none of them.
	measured redis-cli 200 timed 40 "${late[@]}" redis-cli -p "$redis_port" -r 40 ping
	# psql times each query itself.
	{ echo '\timing on'; printf 'select 1;\n%.0s' $(seq 40); } >"$dir/sql"
	queries() {
		"${late[@]}" psql -w -X -q -h 127.0.0.1 -p "$postgres_port" -U tester -f "$dir/sql" postgres |
			awk '/^Time:/ { sum += $2; n++ } END { printf "%.1f 0.0", sum / n }'
	}
	measured psql 200 queries
}

@test "64k a second, both ways, over ten seconds, within 5 %; nothing is lost or doubled" {
	shim_part
	for way in up down; do
		with 'bandwidth 127.0.0.1 rate=64k' python3 "$root/tests/programs/rates.py" $way 655360
		echo "# $way: $output" >&3
		assert_output --regexp '^whole (9\.[5-9]|10\.[0-4])'
	done
}

@test "latency, rate, slices and jitter together: nothing is lost or doubled" {
	shim_part
	for way in up down; do
		run resil run -s breaker=off --fault 'latency 127.0.0.1 delay=50ms jitter=50ms distribution=pareto' \
			--fault 'bandwidth 127.0.0.1 rate=200k' --fault 'slicer 127.0.0.1 size=1000 delay=1ms' --fault 'slow_close 127.0.0.1 delay=300ms' -- \
			python3 "$root/tests/programs/rates.py" $way 400000
		assert_output --regexp '^whole '
	done
}

@test "30 percent of 10,000 calls, within four standard deviations of a binomial" {
	peer server 127.0.0.1 close
	shim_part
	for seed in 1 2 3; do
		RESIL_SEED=$seed with "refuse 127.0.0.1:$server_port percent=30%" "$bin/dial" -n 10000 127.0.0.1 "$server_port"
		hits=$(grep -c ECONNREFUSED <<<"$output")
		echo "# seed $seed: $hits" >&3
		[ "$hits" -ge 2817 ] && [ "$hits" -le 3183 ] || fail "seed $seed: $hits of 10,000"
	done
}

@test "the same seed, eight threads, ten runs: the same decisions (CF2)" {
	peer server 127.0.0.1 close
	shim_part
	for i in $(seq 10); do
		RESIL_SEED=42 run resil run -s breaker=off --fault "refuse 127.0.0.1:$server_port percent=20% skip=5 every=2 count=60" --journal "$dir/journal" -- \
			python3 "$root/tests/programs/asker.py" "$server_port" <<<"threads 8 100"
		assert_success
		sort -n -k 4 "$dir/journal" | md5sum >>"$dir/sums"
		rm "$dir/journal"
	done
	assert_equal "$(sort "$dir/sums" | uniq -c | awk '{ print $1 }')" 10
}
