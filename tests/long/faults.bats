#!/usr/bin/env bats
# Faults measured at programs that nobody here wrote, and counted over many calls. Run by `make long`.
load ../lib/common
load ../lib/services
load ../lib/asker

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
	[[ ${lines[0]-} != "#"* ]] || echo "# $1: ${lines[0]#"# "}" >&3
	echo "# $1: $mean ms, $cpu % of a processor" >&3
	awk -v is="$mean" -v right="$2" -v cpu="$cpu" 'BEGIN { exit !(is >= right * 0.9 && is <= right * 1.1 && cpu < 5) }'
}
# spends COMMAND...: what it says; in $dir/spent how many ms it took, and how many of them on a processor: those of all its threads, from its
# start to its end (rusage).
spends() {
	python3 - "$dir/spent" "$@" <<-'END'
		import resource, subprocess, sys, time
		begun = time.monotonic()
		subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL, check=True)
		took = time.monotonic() - begun
		used = resource.getrusage(resource.RUSAGE_CHILDREN)
		open(sys.argv[1], "w").write(f"{took * 1000:.0f} {(used.ru_utime + used.ru_stime) * 1000:.0f}")
	END
}
# The last line of a measure: the mean that awk makes of what a command said, its share of a processor; and what the same cost bare.
burden() { # AWK COMMAND...
	local mean bare
	spends "${@:2}" >"$dir/said" || return
	bare=$(cat "$dir/spent")
	spends "${late[@]}" "${@:2}" >"$dir/said" || return
	mean=$(awk "$1" "$dir/said")
	awk -v mean="$mean" -v bare="$bare" '{
		split(bare, b)
		printf "# %d ms of a processor in %d ms; bare %d in %d\n", $2, $1, b[2], b[1]
		print mean == "took" ? $1 / 40 : mean, $2 / $1 * 100
	}' "$dir/spent"
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

@test "latency: curl with two transfers at a time, redis-cli, psql; start and all they are under 5 % of a processor" {
	nginx_start server bare
	redis_start redis
	postgres_start
	shim_part
	late=("$build/resil" run -s breaker=off --fault "$latency" --)
	# Eighty, on two connections: a transfer's wait for its answer.
	measured curl 200 burden '{ sum += $2 - $1; n++ } END { print sum / n * 1000 }' \
		curl -sS -Z --parallel-max 2 -o /dev/null -w '%{time_pretransfer} %{time_starttransfer}\n' "http://127.0.0.1:$server_port/?[1-80]"
	# Forty pings one after another; connecting costs none of them.
	measured redis-cli 200 burden 'END { print "took" }' redis-cli -p "$redis_port" -r 40 ping
	# psql times each query itself.
	{ echo '\timing on'; printf 'select 1;\n%.0s' $(seq 40); } >"$dir/sql"
	measured psql 200 burden '/^Time:/ { sum += $2; n++ } END { print sum / n }' \
		psql -w -X -q -h 127.0.0.1 -p "$postgres_port" -U tester -f "$dir/sql" postgres
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

@test "app and command, killed at any of twenty moments: no file, no rule and no listener is left (CF7)" {
	peer server 127.0.0.1 answer
	shim_part
	local at=127.0.0.1:$server_port files
	printf '[resil]\ncontrol = off\n[defaults]\nbreaker = off\n' >"$dir/resil.conf"
	export RESIL_CONF=$dir/resil.conf
	mkdir -p "$dir/tmp" "$RESIL_RUNTIME_DIR"
	asker_start "$server_port" RESIL_GROUP=asker
	asks connect
	files=$(cd "$dir" && find state run tmp home 2>/dev/null | sort)
	kill -9 "$asker_pid"
	for i in $(seq 20); do
		TMPDIR=$dir/tmp asker_start "$server_port" RESIL_GROUP=asker \
			RESIL_FAULTS="slicer $at size=7 delay=1ms percent=50%"$'\n'"slow_connect $at delay=20ms percent=20%"$'\n'"short_io $at"
		# Half of them in the midst of their start, half at work.
		[ $((i % 2)) = 0 ] || asks connect
		begin_asking threads 4 500
		for k in 1 2 3; do
			"$build/resil" fault add latency "$at" "delay=${k}ms" --forever -g asker >/dev/null 2>&1 3>&- &
			started+=("$!")
		done
		nap "0.$(printf %03d $((RANDOM % 300)))"
		local all=("$asker_pid" "${started[@]: -3}")
		for k in $(shuf -e 0 1 2 3); do kill -9 "${all[k]}" 2>/dev/null || true; done
		for k in 0 1 2 3; do wait "${all[k]}" 2>/dev/null || true; done
		run resil fault ls
		assert_output ''
		assert_equal "$(cd "$dir" && find state run tmp home 2>/dev/null | sort)" "$files"
		# Who comes later inherits none.
		[ $((i % 5)) = 0 ] || continue
		asker_start "$server_port" RESIL_GROUP=asker
		asks connect
		assert_equal "${said% *}" ok
		run resil fault ls
		assert_output ''
		asks ask
		assert_equal "${said% *}" ok
		run ss -Hltnp
		refute_output --partial "pid=$asker_pid,"
		refute_output --partial "pid=${all[0]},"
		kill -9 "$asker_pid"
	done
}
