# The table: clients as they are against servers that take the connection and then fail. A row a client, a column a fault; `row CLIENT` runs one.
# A cell is as due when each of five calls ends with an error, at its limit and not later than 20 ms after it (by the server's own clock, from
# where the limit counts, so that no program's start is in it), and the fifth has opened the circuit, by failures of the fault's kind.

# FAULT  policy  the limit in ms, and the server's clock from where it runs: in (last octet of the request), accept, out (last of the answer)  kind
faults() {
	cat <<-'END'
		hang         answer_timeout=600ms  600   in      answer_timeout
		drip         deadline=1s           1000  accept  deadline
		half         stall_timeout=600ms   600   out     stall_timeout
		cut          breaker=on            0     -       reset
		early        breaker=on            0     -       eof
		unavailable  breaker=on            0     -       http_gateway
	END
}

# What is not as due and cannot be, as it is seen instead: CLIENT FAULT SEEN REASON.
exceptions() {
	cat <<-'END'
		php                drip         short   its streams end a body at a failed read, and tell nobody
		php                half         short   its streams end a body at a failed read, and tell nobody
		php                cut          short   its streams end a body at a failed read, and tell nobody
		php                early        short   its streams do not compare a body with its Content-Length
		requests           early        short   urllib3 1.26 does not compare a body with its Content-Length
		ruby               early        short   Net::HTTP ignores an early end (ignore_eof)
		HttpURLConnection  early        short   it does not compare a body with its Content-Length
		redis-cli          unavailable  closed  RESP has no gateway's answer: -LOADING is an answer, and the client says it
		stdio              half         hangs   libc's own reads are not seen: silence may be the end of an answer
		stdio              cut          closed  libc's own reads are not seen: an end after bytes is the end of an answer
		stdio              early        closed  libc's own reads are not seen: an end after bytes is the end of an answer
		stdio              unavailable  closed  libc's own reads are not seen, nor then what they read
		io_uring           half         hangs   the ring's reads are not seen: silence may be the end of an answer
		io_uring           cut          closed  the ring's reads are not seen: an end after bytes is the end of an answer
		io_uring           early        closed  the ring's reads are not seen: an end after bytes is the end of an answer
		io_uring           unavailable  closed  the ring's reads are not seen, nor then what they read
	END
}

# The server of a fault: NAME MODE.
faulty() { peer "$1" 127.0.0.1 "$2"; }

table_head() { printf '# %-18s %-10s %-10s %-10s %-10s %-10s %s\n' client hang drip half cut early 503 >&3; }

row() {
	local client=$1 fault policy limit clock kind lanes=() cells='' wrong='' seen reason how=too_late
	while read -r fault policy limit clock kind; do
		faulty "$fault" "$fault"
		without_shim "$client" "$fault" "$limit" >"$dir/$fault.bare" 2>&1 &
		lanes+=("$!")
	done < <(faults)
	wait "${lanes[@]}" || true
	while read -r fault policy limit clock kind; do
		read -r seen <"$dir/$fault.bare" || true
		[ "$seen" = fails ] || fail "$client, $fault, without the shim: $(cat "$dir/$fault.bare")"
	done < <(faults)
	shim_part
	# What is timed first, side by side; then the rest, so that nothing disturbs the clocks more than it must.
	for part in timed untimed; do
		lanes=()
		while read -r fault policy limit clock kind; do
			if [ $part = timed ]; then [ "$limit" != 0 ] || continue; else [ "$limit" = 0 ] || continue; fi
			cell "$client" "$fault" "$policy" "$limit" "$clock" "$kind" >"$dir/$fault.cell" 2>"$dir/$fault.err" &
			lanes+=("$!")
		done < <(faults)
		# With none to wait for it would wait for the servers.
		[ ${#lanes[@]} = 0 ] || wait "${lanes[@]}" || true
	done
	while read -r fault policy limit clock kind; do
		seen=$(cat "$dir/$fault.cell")
		cells+=$(printf '%-11s' "${seen:-nothing}")
		case $seen in
		open | +* | -*) continue ;;
		esac
		reason=$(exceptions | awk -v c="$client" -v f="$fault" -v s="$seen" '$1 == c && $2 == f && $3 == s')
		[ -n "$reason" ] || [[ $seen == late:* ]] || how=fail
		[ -n "$reason" ] || wrong+="$client, $fault: ${seen:-nothing} $(cat "$dir/$fault.err" "$dir/$fault.calls" 2>/dev/null)"$'\n'
	done < <(faults)
	printf '# %-18s %s\n' "$client" "$cells" >&3
	[ -z "$wrong" ] || "$how" "$wrong"
}

# The world as it is: the call waits for longer than the limit, or ends with an error of its own. "fails", or what it does instead.
without_shim() { # CLIENT FAULT LIMIT
	local port=$2_port code=0 pid
	caller "$1" 127.0.0.1 "${!port}"
	if [ "$3" = 0 ]; then
		bare "${cmd[@]}" >"$dir/$2.bare.out" 2>&1 </dev/null || code=$?
		case $code in
		0) echo "ends with 0: $(cat "$dir/$2.bare.out")" ;;
		124) echo "hangs" ;;
		3) if exceptions | grep -qE "^$1 +$2 +short "; then echo fails; else echo "takes a short body"; fi ;;
		*) echo fails ;;
		esac
		return
	fi
	start "$2_bare" bare "${cmd[@]}"
	pid=$2_bare_pid
	pid=${!pid}
	wait_until peer_has "$2" accepted 1
	sleep "$(awk -v ms="$3" 'BEGIN { print (ms + 150) / 1000 }')"
	if kill "$pid" 2>/dev/null; then echo fails; else echo "ends by itself: $(cat "$dir/$2_bare.out" "$dir/$2_bare.err")"; fi
	wait "$pid" || true
	wait_until file_has '^closed ' "$dir/$2.log"
}

# Five calls in a row, and what was seen of them.
cell() { # CLIENT FAULT POLICY LIMIT CLOCK KIND
	local client=$1 fault=$2 policy=$3 limit=$4 clock=$5 kind=$6 port=$2_port log=$dir/$2.log made=0 code before late early='' name worst=error
	# A call begins with its connect, which the server's accept may follow late; what it has sent and read is timed to the ms.
	local clock_slack=-${peer_slack_ms:-5}
	[ "$clock" != accept ] || clock_slack=-60
	local TEST_TIMEOUT=15 # a call that no limit ends is told as such, soon
	name=127.0.0.1:${!port}
	export RESIL_STATE_DIR=$dir/state.$fault RESIL_SET="$policy;failure_threshold=5;recovery_timeout=5m;recovery_max=5m"
	before=$(wc -l <"$log")
	caller "$client" 127.0.0.1 "${!port}" 5
	while [ "$made" -lt 5 ]; do
		code=0
		under "${cmd[@]}" >"$dir/$fault.out" 2>&1 </dev/null || code=$?
		made=$((made + calls))
		echo "call $made: $code $(tr '\n' ' ' <"$dir/$fault.out")" >>"$dir/$fault.calls"
		case $code in
		0) worst=success ;;
		124 | 137) worst=hangs ;;
		3) [ "$worst" != error ] || worst=short ;;
		esac
		[ $worst != hangs ] || break
	done
	wait_until all_closed "$log"
	# The latest and the earliest end, against the limit.
	read -r late early < <(tail -n +$((before + 1)) "$log" | awk -v clock="$clock" -v limit="$limit" '
		/^closed / {
			from = clock == "in" ? $4 : clock == "out" ? $5 : 0
			ms = $3 - from - limit
			if (!n++ || ms > late) late = ms
			if (n == 1 || ms < early) early = ms
		}
		END { print late + 0, early + 0 }')
	sed -n "$((before + 1)),\$p" "$log" >>"$dir/$fault.calls"
	destination "$name" failures >>"$dir/$fault.calls" 2>&1 || true
	# Whatever the program makes of it, the limit must have held and the circuit be open.
	if [ $worst = success ] || [ $worst = hangs ]; then
		echo $worst
	elif [ "$limit" != 0 ] && [ "$late" -gt $((20 + TEST_ALLOWANCE_MS)) ]; then
		echo "late:$late"
	elif [ "$limit" != 0 ] && [ "$early" -lt $((clock_slack - TEST_ALLOWANCE_MS / 2)) ]; then
		echo "early:$early"
	elif ! state_is "$name" open; then
		echo closed
	elif [ "$(grep -c ^accepted "$dir/$fault.calls")" -gt 5 ]; then
		echo more-than-5
	elif [ "$(failed_by "$name" "$kind")" != 5 ]; then
		echo "not:$kind"
	elif [ $worst = short ]; then
		echo short
	elif [ "$limit" != 0 ]; then
		printf '%+dms\n' "$late"
	else
		echo open
	fi
}
all_closed() { [ "$(grep -c '^accepted ' "$1")" = "$(grep -c '^closed ' "$1")" ]; }
