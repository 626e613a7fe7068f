#!/usr/bin/env bats
# Faults that shape a connection, seen from both of its ends: which octets came, and what ended it. Shared with toxiproxy are latency,
# bandwidth, slow_close, timeout, reset_peer, slicer and limit_data: what its documentation says of them holds here, but for what the table
# in doc/cookbook.md says.
load lib/common
load lib/asker

ends_start() {
	shim_part
	asker_run RESIL_SET=breaker=off RESIL_GROUP=ends python3 "$root/tests/programs/ends.py"
	asks up 10
	assert_equal "$(what)" "app 2 prefix end server 14 prefix end"
}
# What the ends got, without units and times.
what() { awk '{ print $1, $2, $3, $5, $7, $8, $9, $11 }' <<<"$said"; }
# puts_in FAULT;FAULT...: a fault's destination is written for it.
puts_in() {
	local fault words
	while IFS= read -rd ';' fault; do
		read -ra words <<<"$fault"
		resil fault add "${words[0]}" 127.0.0.1 "${words[@]:1}" --forever -g ends >/dev/null 2>&1 || fail "no such fault: $fault"
	done <<<"$1;"
}
takes_out() { resil fault clear -g ends >/dev/null; }
lets() {
	puts_in "$1"
	asks "$2"
	takes_out
}
# FAULT | LINE | what the app got | what the server got | pieces, to the receiver: *N: of N each, <N: at most | after how many ms at least each had its end
rows() {
	while IFS='|' read -r fault line app server unit least; do
		[ -n "$fault" ] || continue
		fault=${fault%"${fault##*[! ]}"} line=${line# } unit=${unit// /}
		read -ra app <<<"$app"
		read -ra server <<<"$server"
		read -ra least <<<"$least"
		lets "$fault" "${line%"${line##*[! ]}"}"
		local way=${line%% *} f at
		echo "# $fault: $said"
		assert_equal "$fault: $(what)" "$fault: app ${app[*]} server ${server[*]}"
		read -ra f <<<"$said"
		[ "$way" = down ] && at=3 || at=9
		case $unit in
		\**)
			[ "${f[at]%:*}" -gt 0 ] || fail "$fault: it came in one piece"
			assert_equal "$fault: $((${f[at]%:*} % ${unit#?})) more than pieces of ${unit#?}" "$fault: 0 more than pieces of ${unit#?}"
			;;
		'<'*) [ "${f[at]#*:}" -le "${unit#?}" ] || fail "$fault: a piece of ${f[at]#*:}" ;;
		esac
		[ "${f[5]/#-/0}" -ge "${least[0]}" ] || fail "$fault: the app's end after ${f[5]} ms"
		[ "${f[11]/#-/0}" -ge "${least[1]}" ] || fail "$fault: the server's end after ${f[11]} ms"
	done
}

@test "what is shaped arrives whole at either end: the octets are those that were sent, and the ends orderly" {
	ends_start
	rows <<-'END'
		latency delay=40ms jitter=20ms          | down 300000 | 300000 prefix end | 4 prefix end      | -    | 40 60
		latency delay=40ms jitter=20ms          | up 300000   | 2 prefix end      | 300004 prefix end | -    | 40 20
		latency delay=5ms jitter=5ms distribution=pareto | up 300000 | 2 prefix end | 300004 prefix end | -  | 10 5
		bandwidth rate=2M                       | down 300000 | 300000 prefix end | 4 prefix end      | -    | 135 0
		bandwidth rate=2M                       | up 300000   | 2 prefix end      | 300004 prefix end | -    | 135 135
		slow_close delay=200ms                  | down 300000 | 300000 prefix end | 4 prefix end      | -    | 200 400
		slow_close delay=200ms                  | up 300000   | 2 prefix end      | 300004 prefix end | -    | 400 200
		slow_close delay=200ms direction=down   | up 300000   | 2 prefix end      | 300004 prefix end | -    | 200 0
		slicer size=1000 delay=5ms              | down 20000  | 20000 prefix end  | 4 prefix end      | *1000 | 95 0
		slicer size=1000 delay=5ms              | up 20000    | 2 prefix end      | 20004 prefix end  | *1000 | 95 95
		short_io size=700                       | down 300000 | 300000 prefix end | 4 prefix end      | <700 | 0 0
		short_io size=700                       | up 300000   | 2 prefix end      | 300004 prefix end | -    | 0 0
		limit_data bytes=1M                     | down 300000 | 300000 prefix end | 4 prefix end      | -    | 0 0
		reset after_bytes=1M                    | down 300000 | 300000 prefix end | 4 prefix end      | -    | 0 0
		blackhole after_bytes=1M                | down 300000 | 300000 prefix end | 4 prefix end      | -    | 0 0
		slow_connect delay=200ms                | down 300000 | 300000 prefix end | 4 prefix end      | -    | 200 200
	END
}

@test "what is cut is cut at the octet: limit_data ends both sides in order, a reset resets both" {
	ends_start
	rows <<-'END'
		limit_data bytes=5000                   | down 300000 stays | 5000 prefix end  | 4 prefix end    | - | 0 0
		limit_data bytes=0                      | down 300000 stays | 0 prefix end     | 4 prefix end    | - | 0 0
		limit_data bytes=5000 direction=up      | up 60000 stays    | 0 prefix end     | 5000 prefix end | - | 0 0
		reset after_bytes=5000                  | down 300000 | 5000 prefix ECONNRESET | 4 prefix ECONNRESET    | - | 0 0
		reset                                   | down 300000 | 0 prefix ECONNRESET    | 4 prefix ECONNRESET    | - | 0 0
		reset delay=200ms                       | down 300000 | 0 prefix ECONNRESET    | 4 prefix ECONNRESET    | - | 200 200
		reset after_bytes=5000 direction=up     | up 60000    | 0 prefix ECONNRESET    | 5000 prefix ECONNRESET | - | 0 0
		blackhole;reset direction=up delay=200ms | down 300000 | 0 prefix ECONNRESET   | 0 prefix ECONNRESET    | - | 200 200
	END
}

@test "a black hole: so many octets, then neither octets nor an end at either side; lifted, both are reset (CF6)" {
	ends_start
	while IFS='|' read -r fault line expected; do
		puts_in "${fault%"${fault##*[! ]}"}"
		begin_asking "$line"
		hears
		assert_equal "$said" silent
		takes_out
		asked=$((asked + 1))
		hears
		assert_equal "$(what)" "${expected# }"
	done <<-'END'
		blackhole after_bytes=5000 direction=down | down 300000 hole 5000 | app 5000 prefix ECONNRESET server 4 prefix ECONNRESET
		blackhole direction=down                  | down 1000 hole 0      | app 0 prefix ECONNRESET server 4 prefix ECONNRESET
		blackhole                                 | down 1000 hole 0      | app 0 prefix ECONNRESET server 0 prefix ECONNRESET
		blackhole direction=up                    | up 1000 hole 0        | app 0 prefix ECONNRESET server 0 prefix ECONNRESET
	END
}

@test "down: a connect is refused and the server sees none; lifted, it is served" {
	peer server 127.0.0.1 answer
	shim_part
	asker_start "$server_port" RESIL_SET=breaker=off RESIL_GROUP=ends
	asks ask
	puts_in refuse
	asks connect 2
	assert_equal "${said% *}" ECONNREFUSED,ECONNREFUSED
	takes_out
	asks ask
	assert_equal "${said% *}" ok
	assert_equal "$(peer_accepted server)" 2
}
