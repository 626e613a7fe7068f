# A name server of a test's own (servers/dns.py), in network and mount namespaces with a resolv.conf that leads to it. Load it after
# `lib/common`. From dns_start on `under`, `bare`, `start`, `peer` and `resil` run there.

# dns_start [LINE-OF-RESOLV.CONF]...: names are told by `zone`; "localhost" is in /etc/hosts.
dns_start() {
	local flags=(-n -m) enter=(-n -m) line
	if [ "$(id -u)" != 0 ]; then
		flags=(-U -r -n -m)
		enter=(-U -n -m --preserve-credentials)
	fi
	unshare "${flags[@]}" true 2>/dev/null || skip "network and mount namespaces are not to be had here"
	echo 'nameserver 127.0.0.1' >"$dir/resolv.conf"
	for line in "$@"; do echo "$line" >>"$dir/resolv.conf"; done
	printf '127.0.0.1 localhost\n::1 localhost\n127.0.0.9 hosts-only.test\n' >"$dir/hosts"
	echo 'hosts: files dns' >"$dir/nsswitch.conf"
	: >"$dir/zone"
	unshare "${flags[@]}" sh -ec "
		ip link set lo up
		for file in resolv.conf hosts nsswitch.conf; do mount --bind '$dir'/\$file /etc/\$file; done
		echo ready
		exec sleep 600" >"$dir/netns.log" 2>&1 3>&- &
	netns_pid=$!
	started+=("$netns_pid")
	wait_until netns_is_up
	via=(nsenter -t "$netns_pid" "${enter[@]}" --)
	start dns bare python3 "$root/tests/servers/dns.py" 127.0.0.1 "$dir/zone"
	wait_until dns_is_up
}
netns_is_up() {
	! is_gone "$netns_pid" || skip "mounts in a namespace are not to be had here: $(cat "$dir/netns.log")"
	file_has ready "$dir/netns.log"
}
dns_is_up() {
	! is_gone "$dns_pid" || in_vain "the name server did not start: $(cat "$dir/dns.err")" || return
	file_has '^ready' "$dir/dns.out"
}
# zone NAME HOW [ADDRESS]...: what the server says of a name, from its next question on.
zone() {
	local line zone=
	while IFS= read -r line; do
		[[ $line == "$1 "* ]] || zone+=$line$'\n'
	done <"$dir/zone"
	printf '%s' "$zone$*"$'\n' >"$dir/zone.new"
	mv "$dir/zone.new" "$dir/zone"
}
# queries NAME: how often it was asked.
queries() { grep -c "^query $1 " "$dir/dns.out" || true; }

# told COMMAND...: what it says without the time, which goes to `took`.
told() {
	run "$@"
	took=${output##* }
	output=${output% *}
}

# as_without_us HOW NAME...: what a form of look-up answers under a limit that does not pass is what it answers bare.
as_without_us() {
	local how=$1 name expected
	shift
	for name in "$@"; do
		told bare "$bin/lookup" "$how" "$name"
		expected="$output $status"
		[ -z "$TEST_BARE" ] || continue
		RESIL_SET='resolve_timeout=5s' told under "$bin/lookup" "$how" "$name"
		assert_equal "$how $name: $output $status" "$how $name: $expected"
	done
}

# three_addresses NAME: 127.0.0.1 refuses, 127.0.0.2 and .3 answer, all at `port`.
three_addresses() {
	peer second 127.0.0.2 answer
	port=$second_port
	peer third 127.0.0.3 answer "$port"
	zone "$1" answer 127.0.0.1 127.0.0.2 127.0.0.3
}
# Where a command's stream connects to `port` went, in order. (libc connects datagram sockets to sort its answer.)
attempts() {
	${via[@]+"${via[@]}"} timeout -k 2 "$TEST_TIMEOUT" strace -f -qq -e trace=socket,connect -e signal=none -E "LD_PRELOAD=$shim" \
		-o "$dir/trace" "$@" >/dev/null 2>&1 3>&- || true
	awk -v port="$port" '
		/ socket\(/ && / = [0-9]+$/ { is_stream[$1 " " $NF] = /SOCK_STREAM/ }
		/ connect\(/ && index($0, "htons(" port ")") {
			match($0, /connect\([0-9]+/)
			fd = substr($0, RSTART + 8, RLENGTH - 8)
			match($0, /(inet_addr\("|::ffff:)[0-9.]+/)
			if (is_stream[$1 " " fd])
				printf "%s ", substr($0, RSTART + (substr($0, RSTART, 1) == "i" ? 11 : 7), RLENGTH - (substr($0, RSTART, 1) == "i" ? 11 : 7))
		}' "$dir/trace"
}
